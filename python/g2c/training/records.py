"""What a run tells about itself, step by step and at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from g2c.pretraining import LossReport


@dataclass(frozen=True)
class StepRecord:
    """One optimiser update: a row of ``metrics.csv``.

    Attributes:
        step: updates done, this one included: the first is 1.
        loss: nats per token of its batch, before the update.
        lr: learning rate of the update.
        grad_norm: total norm of the gradients before clipping.
        tokens_per_s: tokens of the batch by the time of the update, validation left out.
        seconds: training time so far, over all sessions, validation left out.
        val_loss: nats per token after the update, at steps with a validation.
        val_tokens: tokens that it was measured on.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    seconds: float
    val_loss: float | None = None
    val_tokens: int | None = None


@dataclass(frozen=True)
class History:
    """The records of a run, from its first step on."""

    records: tuple[StepRecord, ...]

    @property
    def steps(self) -> list[int]:
        return [record.step for record in self.records]

    @property
    def losses(self) -> list[float]:
        """Training loss of each step, nats per token."""
        return [record.loss for record in self.records]

    @property
    def val_steps(self) -> list[int]:
        """Steps that have a validation."""
        return [record.step for record in self.records if record.val_loss is not None]

    @property
    def val_losses(self) -> list[float]:
        """Validation loss at each of `val_steps`, nats per token."""
        return [record.val_loss for record in self.records if record.val_loss is not None]


@dataclass(frozen=True)
class TrainingResult:
    """What `train` returns.

    Attributes:
        history: every step so far, those of earlier sessions too.
        steps: updates done.
        finished: all steps of the config are done; False after ``stop_after``.
        final_validation: of the finished model; None before that or without validation tokens.
        seconds: training time over all sessions, without validation and checkpoints.
        tokens_per_s: training tokens by ``seconds``.
        parameters: trained or not, tied ones once.
        run_dir: where all of it is kept; None for a run in memory.
    """

    history: History
    steps: int
    finished: bool
    final_validation: LossReport | None
    seconds: float
    tokens_per_s: float
    parameters: int
    run_dir: Path | None

    @property
    def val_loss(self) -> float | None:
        """Final validation loss in nats per token; None where there is none."""
        return None if self.final_validation is None else self.final_validation.nats_per_token
