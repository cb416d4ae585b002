"""What a training run is asked to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from g2c.pretraining.arguments import check_count, check_number
from g2c.training.schedule import check_schedule, cosine_with_warmup

# What may change between two sessions of one run, because no loss or weight depends on it.
_HOUSEKEEPING = ("checkpoint_every", "keep_checkpoints")


@dataclass(frozen=True)
class TrainingConfig:
    """A training run; the defaults are StoryLM-1M's recipe. Values are checked on construction.

    Attributes:
        steps: optimiser updates.
        batch_size: windows to an update, over all accumulated parts together.
        context_length: tokens in a window.
        max_lr, min_lr: learning rate after the warm-up and at the end.
        warmup_steps: None takes a tenth of the steps.
        weight_decay: decoupled, for parameters of two or more dimensions (projections and
            embeddings); biases, norms and decay logits are left alone.
        betas, eps: of AdamW; torch's own defaults.
        max_grad_norm: gradients are scaled down to this total norm; None leaves them.
        seed: of the order of the data, and of nothing else: runs with the same seed, sizes and
            corpus see the same batches whatever the model.
        accumulation: parts that a batch is computed in, to save memory.
        autocast: "bfloat16" computes in mixed precision.
        eval_every: steps between validations (the last step has one too); None for none at all
            but the final one.
        eval_batches: batches to a validation, spread evenly; None takes all validation tokens.
        final_eval_batches: the same for the final validation loss.
        checkpoint_every: steps between checkpoints.
        keep_checkpoints: newest checkpoints kept.
    """

    steps: int = 1000
    batch_size: int = 16
    context_length: int = 128
    max_lr: float = 3e-4
    min_lr: float = 3e-5
    warmup_steps: int | None = None
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    max_grad_norm: float | None = 1.0
    seed: int = 0
    accumulation: int = 1
    autocast: Literal["bfloat16"] | None = None
    eval_every: int | None = 100
    eval_batches: int | None = 20
    final_eval_batches: int | None = None
    checkpoint_every: int = 100
    keep_checkpoints: int = 3

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "context_length", "accumulation"):
            check_count(name, getattr(self, name))
        for name in ("checkpoint_every", "keep_checkpoints"):
            check_count(name, getattr(self, name))
        for name in ("eval_every", "eval_batches", "final_eval_batches"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_count("seed", self.seed, minimum=0)
        check_schedule(self.warmup, self.steps, self.max_lr, self.min_lr)
        if self.batch_size % self.accumulation != 0:
            raise ValueError(
                f"accumulation: {self.accumulation} parts do not divide a batch_size of {self.batch_size}"
            )
        if check_number("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay: expected at least 0, got {self.weight_decay}")
        if check_number("eps", self.eps) <= 0:
            raise ValueError(f"eps: expected more than 0, got {self.eps}")
        if len(self.betas) != 2 or not all(0 <= check_number("betas", b) < 1 for b in self.betas):
            raise ValueError(f"betas: expected two numbers in [0, 1), got {self.betas}")
        limit = self.max_grad_norm
        if limit is not None and check_number("max_grad_norm", limit) <= 0:
            raise ValueError(f"max_grad_norm: expected more than 0, got {limit}")
        if self.autocast not in (None, "bfloat16"):
            raise ValueError(f'autocast: expected None or "bfloat16", got {self.autocast!r}')

    @property
    def warmup(self) -> int:
        """Steps of warm-up, the default filled in."""
        if self.warmup_steps is None:
            return check_count("steps", self.steps) // 10
        return self.warmup_steps

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.context_length

    def lr(self, step: int) -> float:
        """Learning rate of update number ``step``, counted from 0."""
        return cosine_with_warmup(
            step,
            warmup_steps=self.warmup,
            max_steps=self.steps,
            max_lr=self.max_lr,
            min_lr=self.min_lr,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return {**dataclasses.asdict(self), "betas": list(self.betas)}

    def identity(self) -> dict[str, Any]:
        """The fields that losses and weights depend on."""
        fields = {**self.to_dict(), "warmup_steps": self.warmup}
        return {name: value for name, value in fields.items() if name not in _HOUSEKEEPING}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> TrainingConfig:
        """The config that `to_dict` gave.

        Raises:
            ValueError, TypeError: a field that there isn't, or a value that isn't allowed.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(fields) - known)
        if unknown:
            raise ValueError(f"config: no such field: {', '.join(unknown)}")
        values = dict(fields)
        if "betas" in values:
            values["betas"] = tuple(values["betas"])
        return cls(**values)
