"""Progress bars of a run."""

from __future__ import annotations

from types import TracebackType

from tqdm.auto import tqdm

from g2c.training.records import StepRecord

_SMOOTHING = 0.9


class TrainingBar:
    """Steps done and time left, with the loss (smoothed over some ten steps) and the speed."""

    def __init__(self, title: str, done: int, steps: int, *, show: bool) -> None:
        self._bar = tqdm(
            total=steps,
            initial=done,
            desc=title,
            unit="step",
            dynamic_ncols=True,
            mininterval=0.5,
            disable=not show,
        )
        self._loss: float | None = None
        self._validation = ""

    def advance(self, record: StepRecord) -> None:
        if self._loss is None:
            self._loss = record.loss
        else:
            self._loss = _SMOOTHING * self._loss + (1 - _SMOOTHING) * record.loss
        if record.val_loss is not None:
            self._validation = f", validation {record.val_loss:.3f}"
        self._bar.set_postfix_str(
            f"loss {self._loss:.3f}{self._validation}, {record.tokens_per_s:,.0f} tokens/s",
            refresh=False,
        )
        self._bar.update()

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()


class ValidationBar:
    """Tokens done of a long validation; it disappears at the end."""

    def __init__(self, title: str, *, show: bool) -> None:
        self._bar = tqdm(
            desc=title,
            unit="token",
            unit_scale=True,
            dynamic_ncols=True,
            mininterval=0.5,
            leave=False,
            disable=not show,
        )

    def update(self, done: int, total: int) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> ValidationBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
