"""Exercise 2 and 6: language models that differ in their layer pattern and in nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from g2c.artifacts import (
    TokenizedCorpus,
    best_available_corpus,
    load_tokenized_corpus_artifact,
)
from g2c.lesson.results import Table
from g2c.lesson.settings import Settings
from g2c.linear_attention import HybridTransformerLM
from g2c.pretraining import Ids, nats_per_byte
from g2c.sampling import generate
from g2c.storylm import build
from g2c.training import TrainingConfig, TrainingResult, train

SEED = 0
NAMES = {"F": "full", "L": "linear"}


@dataclass(frozen=True)
class Data:
    """Token ids to train on and to validate on, and how many bytes of text the latter are."""

    corpus: TokenizedCorpus
    train: Ids
    val: Ids
    val_bytes: int
    source: str


@dataclass(frozen=True)
class Variant:
    """One trained model and what its training told."""

    pattern: str
    model: HybridTransformerLM
    result: TrainingResult
    nats_per_token: float
    nats_per_byte: float

    @property
    def name(self) -> str:
        return pattern_name(self.pattern)


def pattern_name(pattern: str) -> str:
    """ "LLLF" as "linear ×3, full": runs of one kind are counted."""
    runs: list[list[object]] = []
    for letter in pattern:
        if runs and runs[-1][0] == letter:
            runs[-1][1] = int(str(runs[-1][1])) + 1
        else:
            runs.append([letter, 1])
    return ", ".join(f"{NAMES[str(k)]} ×{n}" if n != 1 else NAMES[str(k)] for k, n in runs)


def load_data(name: str | None) -> Data:
    """The corpus called ``name``, or the best one present. Its own validation text is used where
    it has one, else a tenth of it in shuffled chunks.

    Raises FileNotFoundError, with the command that makes one, where there is none.
    """
    corpus = load_tokenized_corpus_artifact(name or best_available_corpus())
    if corpus.validation is not None and corpus.validation_num_bytes is not None:
        return Data(
            corpus,
            corpus.ids,
            corpus.validation,
            corpus.validation_num_bytes,
            "the corpus's own validation text",
        )
    split = corpus.split(chunk_tokens=4096)
    return Data(
        corpus,
        split.train,
        split.val,
        corpus.count_bytes(split.val),
        "a tenth of the text, chunks of 4,096 tokens",
    )


def recipe(preset: str, steps: int, *, quick: bool) -> TrainingConfig:
    """The lesson's recipe for ``preset`` ("storylm-1m" or "storylm-5m"), over ``steps`` steps."""
    batches = {"storylm-1m": 16, "storylm-5m": 8}
    if preset not in batches:
        raise ValueError(f"recipe: preset must be one of {', '.join(batches)}, got {preset!r}")
    return TrainingConfig(
        steps=steps,
        batch_size=batches[preset],
        context_length=128,
        max_lr=3e-4,
        min_lr=3e-5,
        warmup_steps=steps // 10,
        weight_decay=0.05,
        max_grad_norm=1.0,
        seed=SEED,
        eval_every=max(steps // 10, 1),
        eval_batches=4 if quick else 10,
        final_eval_batches=10 if quick else 200,
    )


def train_variant(
    preset: str,
    pattern: str,
    data: Data,
    steps: int,
    settings: Settings,
    *,
    progress: bool = True,
) -> Variant:
    """Train one pattern in its run folder, or go on with it, or load it where it is finished.

    Every variant starts from the same seed and sees the same batches.
    """
    torch.manual_seed(SEED)
    model = build(preset, pattern=pattern, vocab_size=data.corpus.tokenizer.vocab_size)
    model.to(settings.device)
    folder = f"{preset}-{pattern}-{data.corpus.name}-{steps}steps"
    result = train(
        model,
        data.train,
        data.val,
        recipe(preset, steps, quick=settings.quick),
        run_dir=settings.run_dir / "training" / folder,
        corpus_name=data.corpus.name,
        corpus_digest=data.corpus.digest,
        progress=progress,
    )
    if result.final_validation is None:
        raise RuntimeError(f"{folder}: the run ended without its final validation")
    per_token = result.final_validation.nats_per_token
    return Variant(
        pattern,
        model,
        result,
        per_token,
        nats_per_byte(per_token, len(data.val), data.val_bytes),
    )


def parameter_table(variants: Sequence[Variant]) -> Table:
    """Exact parameter counts, and what each has beyond the first variant."""
    first = variants[0].result.parameters
    return Table(
        "Parameters",
        ("layers", "parameters", f"beyond {variants[0].pattern}", "linear layers"),
        tuple(
            (v.name, v.result.parameters, v.result.parameters - first, v.pattern.count("L")) for v in variants
        ),
    )


def result_table(variants: Sequence[Variant], data: Data, settings: Settings) -> Table:
    """Losses, time and speed of each variant."""
    mark = f", {settings.note}" if settings.note else ""
    steps = variants[0].result.steps
    return Table(
        f"{data.corpus.name}: {steps:,} steps{mark}",
        (
            "layers",
            "parameters",
            "validation (nats per token)",
            "validation (nats per byte)",
            "training time (s)",
            "tokens per second",
        ),
        tuple(
            (
                v.name,
                v.result.parameters,
                round(v.nats_per_token, 4),
                round(v.nats_per_byte, 4),
                round(v.result.seconds, 1),
                round(v.result.tokens_per_s),
            )
            for v in variants
        ),
    )


def describe(variants: Sequence[Variant]) -> str:
    """Which variant came out lowest, and how far apart they are, as a sentence."""
    ranked = sorted(variants, key=lambda v: v.nats_per_byte)
    best, worst = ranked[0], ranked[-1]
    return (
        f"Lowest validation loss: {best.name} with {best.nats_per_byte:.4f} nats per byte; "
        f"highest: {worst.name} with {worst.nats_per_byte:.4f}, "
        f"{(worst.nats_per_byte / best.nats_per_byte - 1) * 100:.2f} % above. One seed each: a gap "
        "that another seed could turn round shows nothing."
    )


def stories(
    variants: Sequence[Variant],
    data: Data,
    prompts: Sequence[str] = ("Once upon a time", "The little dog was sad because"),
    *,
    tokens: int = 80,
    temperature: float = 0.8,
) -> Table:
    """A story of each variant for each prompt, sampled with the same random numbers."""
    tokenizer = data.corpus.tokenizer
    rows = []
    for prompt in prompts:
        ids = torch.tensor(tokenizer.encode(prompt))
        told = []
        for variant in variants:
            device = next(variant.model.parameters()).device
            out = generate(
                variant.model,
                ids.to(device),
                tokens,
                temperature=temperature,
                top_p=0.95,
                eos_id=tokenizer.eos_id,
                generator=torch.Generator().manual_seed(SEED),
            )
            told.append(tokenizer.decode(out.tolist()).replace("<|endoftext|>", "").strip())
        rows.append(tuple(told))
    return Table(
        f"Stories at temperature {temperature}, up to {tokens} tokens",
        tuple(v.name for v in variants),
        tuple(rows),
    )
