"""The notebook's figures. Each has a title, units and a legend, and is readable by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from g2c.lesson.compare import Variant, pattern_name
from g2c.lesson.cost import TrainingCost
from g2c.lesson.decay import NormCurve, half_life
from g2c.lesson.decode import DecodeTime, crossover
from g2c.lesson.equivalence import TOLERANCE, Deviation
from g2c.memory import StackBill, format_bytes
from g2c.recall import CHANCE, RecallResult

BLUE, ORANGE, GREEN, VIOLET, GREY = "#2f6fb0", "#d2691e", "#2e8b57", "#7a5ca8", "#6b7280"
_COLOURS = (ORANGE, BLUE, GREEN, VIOLET, GREY)
_MARKERS = ("o", "s", "^", "D", "v")


def _axes(
    title: str, xlabel: str, ylabel: str, *, size: tuple[float, float] = (7.5, 4.2)
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.subplots()
    _dress(axes, title, xlabel, ylabel)
    return figure, axes


def _dress(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.grid(True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _marked(title: str, note: str) -> str:
    return f"{title} ({note})" if note else title


def equivalence(found: Sequence[Deviation]) -> Figure:
    """Largest error of every form, by γ, against the tolerance."""
    figure, axes = _axes("Every form against a float64 token loop", "γ", "largest absolute error (float32)")
    gammas = list(dict.fromkeys(d.gamma for d in found))
    for i, form in enumerate(dict.fromkeys(d.form for d in found)):
        errors = [d.error for d in found if d.form == form]
        axes.plot(
            range(len(gammas)),
            errors,
            marker=_MARKERS[i % len(_MARKERS)],
            color=_COLOURS[i % len(_COLOURS)],
            lw=1.2,
            alpha=0.85,
            label=form,
        )
    axes.axhline(TOLERANCE, color="black", ls="--", lw=1, label=f"tolerance {TOLERANCE:g}")
    axes.set_yscale("log")
    axes.set_xticks(range(len(gammas)), [f"{g:g}" for g in gammas])
    axes.legend(ncols=2)
    return figure


def decode(times: Sequence[DecodeTime], device: str) -> Figure:
    """Time of one decode step against history, the crossover marked where there is one."""
    figure, axes = _axes(
        f"One decode step of one layer ({device}, median)",
        "history (tokens)",
        "time per step (µs)",
    )
    histories = [t.history for t in times]
    axes.plot(
        histories,
        [t.full_seconds * 1e6 for t in times],
        "o-",
        color=ORANGE,
        label="full attention, KV cache",
    )
    axes.plot(
        histories,
        [t.linear_seconds * 1e6 for t in times],
        "s-",
        color=BLUE,
        label="linear attention, (S, z)",
    )
    at = crossover(times)
    if at is not None:
        axes.axvline(at, color=GREY, ls=":", label=f"linear is faster from {at:,} tokens on")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(histories, [f"{h:,}" for h in histories])
    axes.legend()
    return figure


def training_cost(costs: Sequence[TrainingCost]) -> Figure:
    """Time and peak memory of forward and backward against T, one panel each."""
    figure = Figure(figsize=(10, 4.2), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.suptitle("Forward and backward of one layer, D = 128, H = 4, batch size 1")
    _dress(left, "Time", "T (tokens)", "time (ms)")
    _dress(right, "Peak memory of tensors", "T (tokens)", "memory (MB)")
    for i, form in enumerate(dict.fromkeys(c.form for c in costs)):
        mine = [c for c in costs if c.form == form]
        style = {"marker": _MARKERS[i], "color": _COLOURS[i], "label": form}
        lengths = [c.tokens for c in mine]
        left.plot(lengths, [c.seconds * 1e3 for c in mine], **style)
        if all(c.peak_bytes is not None for c in mine):
            right.plot(lengths, [(c.peak_bytes or 0) / 1e6 for c in mine], **style)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        lengths = sorted({c.tokens for c in costs})
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
        axes.legend()
    return figure


def learning_curves(variants: Sequence[Variant], corpus: str, note: str) -> Figure:
    """Training loss, smoothed, as lines; validation losses as points."""
    steps = variants[0].result.steps
    figure, axes = _axes(_marked(f"{corpus}, {steps:,} steps", note), "step", "loss (nats per token)")
    for i, variant in enumerate(variants):
        history = variant.result.history
        axes.plot(
            history.steps,
            _smooth(history.losses),
            color=_COLOURS[i],
            lw=1.1,
            alpha=0.7,
            label=f"{variant.name}: training, smoothed",
        )
        axes.plot(
            history.val_steps,
            history.val_losses,
            _MARKERS[i],
            color=_COLOURS[i],
            label=f"{variant.name}: validation",
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=9)
    return figure


def recall(results: Sequence[RecallResult], without_lookup: float, note: str) -> Figure:
    """Accuracy by distance: means over seeds as lines, every seed as a point, chance dashed.

    ``without_lookup`` is the share of right answers of a guess at the row's most frequent digit.
    """
    seeds = sorted({r.seed for r in results})
    shown = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    figure, axes = _axes(
        _marked(f"Recall by distance, {results[0].steps:,} steps, {shown}", note),
        "distance (pairs back from the question; 1 is the latest)",
        "answers right (%)",
    )
    for i, pattern in enumerate(dict.fromkeys(r.pattern for r in results)):
        mine = [r for r in results if r.pattern == pattern]
        distances = range(1, len(mine[0].by_distance) + 1)
        for result in mine:
            axes.plot(
                distances,
                [100 * a.rate for a in result.by_distance],
                _MARKERS[i],
                color=_COLOURS[i],
                ms=4,
                alpha=0.45,
            )
        means = [100 * sum(r.by_distance[k].rate for r in mine) / len(mine) for k in range(len(distances))]
        axes.plot(distances, means, color=_COLOURS[i], lw=2, label=f"{pattern_name(pattern)}: mean of seeds")
    axes.axhline(100 * CHANCE, color="black", ls="--", lw=1, label=f"chance, {CHANCE:.0%}")
    axes.axhline(
        100 * without_lookup,
        color="black",
        ls=":",
        lw=1,
        label=f"most frequent digit of the row, {without_lookup:.0%}",
    )
    axes.set_ylim(0, 103)
    axes.set_xticks(distances)
    axes.legend(fontsize=9)
    return figure


def recall_losses(results: Sequence[RecallResult], note: str) -> Figure:
    """Training loss of every probe, smoothed, against steps."""
    steps = results[0].steps
    figure, axes = _axes(
        _marked(f"Recall probes, training, {steps:,} steps", note), "step", "loss (nats per answer)"
    )
    seen: set[str] = set()
    patterns = list(dict.fromkeys(r.pattern for r in results))
    for result in results:
        i = patterns.index(result.pattern)
        axes.plot(
            range(1, steps + 1),
            _smooth(result.losses),
            color=_COLOURS[i],
            lw=1.2,
            alpha=0.8,
            label=None if result.pattern in seen else f"{pattern_name(result.pattern)}, a line per seed",
        )
        seen.add(result.pattern)
    axes.axhline(math.log(10), color="black", ls="--", lw=1, label="chance, ln 10")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=9)
    return figure


def state_norms(curves: Sequence[NormCurve]) -> Figure:
    """Norms of S and z against tokens for several fixed γ, one panel each."""
    figure = Figure(figsize=(10, 4.2), layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    figure.suptitle("State of one layer under fixed decay, random tokens")
    _dress(left, "Matrix S", "tokens seen", "Frobenius norm (mean over heads)")
    _dress(right, "Normaliser z", "tokens seen", "Euclidean norm (mean over heads)")
    for i, curve in enumerate(curves):
        tokens = range(1, len(curve.matrix) + 1)
        style = {"color": _COLOURS[i % len(_COLOURS)], "label": f"γ = {curve.gamma:g}", "lw": 1.8}
        left.plot(tokens, curve.matrix, **style)
        right.plot(tokens, curve.normaliser, **style)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.legend()
    return figure


def learned_decay(gammas: dict[str, dict[int, list[float]]], steps: int, note: str) -> Figure:
    """γ of every head by model and layer, as `decay.learned` gives them; the start is dashed."""
    figure, axes = _axes(_marked(f"Learned decay per head, {steps:,} steps", note), "layer", "γ")
    layers = max(layer for by_layer in gammas.values() for layer in by_layer)
    for i, (name, by_layer) in enumerate(gammas.items()):
        for layer, values in by_layer.items():
            shift = (i - (len(gammas) - 1) / 2) * 0.24
            spread = [layer + shift + 0.05 * (h - (len(values) - 1) / 2) for h in range(len(values))]
            first = layer == min(by_layer)
            axes.plot(
                spread,
                values,
                _MARKERS[i],
                color=_COLOURS[i],
                label=f"{name} (one point per head)" if first else None,
            )
    start = 1 / (1 + math.exp(-4.6))
    axes.axhline(
        start,
        color="black",
        ls="--",
        lw=1,
        label=f"start {start:.4f} (half-life {half_life(start):.0f} tokens)",
    )
    axes.set_xticks(range(1, layers + 1))
    axes.set_xlim(0.5, layers + 0.5)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.legend(fontsize=9)
    return figure


def memory_bill(stacks: dict[str, StackBill]) -> Figure:
    """Bytes of whole stacks on a logarithmic axis, split into what still grows and what doesn't."""
    tokens = next(iter(stacks.values())).tokens
    figure, axes = _axes(
        f"What a stack holds after {tokens:,} tokens",
        "bytes per sequence (logarithmic)",
        "",
        size=(7.5, 0.62 * len(stacks) + 1.5),
    )
    for place, stack in enumerate(stacks.values()):
        colour = ORANGE if stack.growing else BLUE
        axes.barh(place, stack.total, color=colour, alpha=0.75, height=0.6)
        axes.text(stack.total * 1.2, place, format_bytes(stack.total), va="center")
    axes.set_yticks(range(len(stacks)), list(stacks))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(min(s.total for s in stacks.values()) / 10, max(s.total for s in stacks.values()) * 30)
    for colour, text in ((ORANGE, "has layers that still grow"), (BLUE, "fixed for ever")):
        axes.barh([0], [0], color=colour, alpha=0.75, label=text)
    axes.legend(loc="lower right", fontsize=9)
    return figure


def _smooth(values: Sequence[float], weight: float = 0.95) -> list[float]:
    """Exponential running mean, corrected at its start."""
    smoothed, mean = [], 0.0
    for count, value in enumerate(values, start=1):
        mean = weight * mean + (1 - weight) * value
        smoothed.append(mean / (1 - weight**count))
    return smoothed
