"""Exercise 3: recall probes, trained once and reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from g2c.artifacts.files import write_json
from g2c.lesson.compare import pattern_name
from g2c.lesson.results import Results, Table
from g2c.lesson.settings import Settings
from g2c.recall import (
    CHANCE,
    Accuracy,
    RecallConfig,
    RecallResult,
    evaluation_rows,
    frequent_digit_rate,
    train_probe,
)


def run_probes(patterns: Sequence[str], settings: Settings, *, progress: bool = True) -> list[RecallResult]:
    """A probe for each pattern and seed of ``settings``; finished ones are read from the run
    folder, unless they were trained with another configuration."""
    config = RecallConfig(steps=settings.recall_steps)
    store = Results(settings.run_dir)
    found = []
    for pattern in patterns:
        for seed in settings.recall_seeds:
            name = f"recall/{pattern}-seed{seed}-{config.steps}steps"
            result = _stored(store.load_json(name), config)
            if result is None:
                _, result = train_probe(
                    pattern, seed=seed, config=config, device=settings.device, progress=progress
                )
                write_json(
                    settings.run_dir / f"{name}.json",
                    {"config": asdict(config), "result": result.to_json()},
                )
            else:
                print(f"{pattern}, seed {seed}: trained earlier and read from {name}.json")
            found.append(result)
    return found


def _stored(content: object, config: RecallConfig) -> RecallResult | None:
    if not isinstance(content, dict) or content.get("config") != asdict(config):
        return None
    try:
        return RecallResult.from_json(content.get("result"))
    except ValueError:
        return None


def guess_rate() -> float:
    """What answering with the row's most frequent digit reaches on the evaluation rows."""
    return frequent_digit_rate(evaluation_rows())


def table(results: Sequence[RecallResult], settings: Settings) -> Table:
    """Overall accuracy with its interval, and the near and the far half, for each run."""
    mark = f", {settings.note}" if settings.note else ""
    rows = []
    for r in results:
        low, high = r.overall.interval
        half = len(r.by_distance) // 2
        rows.append(
            (
                pattern_name(r.pattern),
                r.seed,
                round(100 * r.overall.rate, 1),
                f"{100 * low:.1f} to {100 * high:.1f}",
                round(100 * _pooled(r.by_distance[:half]).rate, 1),
                round(100 * _pooled(r.by_distance[half:]).rate, 1),
                round(sum(r.losses[-20:]) / len(r.losses[-20:]), 3),
            )
        )
    half = len(results[0].by_distance) // 2
    return Table(
        f"Recall after {results[0].steps:,} steps{mark}; chance is {CHANCE:.0%}",
        (
            "layers",
            "seed",
            "right (%)",
            "95 % interval",
            f"distance 1–{half} (%)",
            f"distance {half + 1}–{2 * half} (%)",
            "last losses (nats per answer)",
        ),
        tuple(rows),
    )


def describe(results: Sequence[RecallResult], without_lookup: float) -> str:
    """Per pattern: is it above chance, and above a guess that looks nothing up? As sentences.

    A result counts as above a rate when the 95 % interval of every seed lies above it.
    """
    lines = []
    for pattern in dict.fromkeys(r.pattern for r in results):
        mine = [r for r in results if r.pattern == pattern]
        rates = ", ".join(f"{100 * r.overall.rate:.1f} %" for r in mine)
        lowest = min(r.overall.interval[0] for r in mine)
        if lowest > without_lookup:
            verdict = "looks values up: above the guess at the row's most frequent digit"
        elif lowest > CHANCE:
            verdict = (
                "above chance, but not above the guess at the row's most frequent digit "
                f"({100 * without_lookup:.1f} %): no sign that a value is tied to its letter"
            )
        else:
            verdict = f"not above chance ({100 * CHANCE:.0f} %) with every seed"
        lines.append(f"{pattern_name(pattern)}: {rates} by seed; {verdict}")
    return "\n".join(lines)


def _pooled(parts: Sequence[Accuracy]) -> Accuracy:
    return Accuracy(None, sum(a.right for a in parts), sum(a.asked for a in parts))
