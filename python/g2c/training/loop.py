"""The steps of a run, and what is kept of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from g2c.pretraining import (
    Ids,
    LossReport,
    evaluate,
    language_model_loss,
    sample_starts,
    windows_at,
)
from g2c.pretraining.modules import device_of
from g2c.training.checkpoint import (
    Checkpoint,
    checkpoint_name,
    prune,
    save_checkpoint,
    set_aside_newer,
)
from g2c.training.config import TrainingConfig
from g2c.training.interrupt import DeferredInterrupt
from g2c.training.metrics import MetricsFile
from g2c.training.optimizer import make_optimizer
from g2c.training.progress import TrainingBar, ValidationBar
from g2c.training.randomness import RandomState
from g2c.training.records import StepRecord
from g2c.training.run_folder import RunFolder
from g2c.training.tensors import (
    load_model_tensors,
    load_optimizer_tensors,
    model_tensors,
    optimizer_tensors,
)

Report = Callable[[str], None]


class NonFiniteLossError(FloatingPointError):
    """The loss or the gradient became NaN or infinite; the model keeps the weights before it.

    ``step`` is the number of the update that was not done.
    """

    def __init__(self, step: int, message: str) -> None:
        super().__init__(message)
        self.step = step


class Training:
    """A run in progress: the model, its optimiser, and where it stands.

    Without a run folder nothing is kept but ``records``.
    """

    def __init__(
        self,
        model: nn.Module,
        train_ids: Ids,
        val_ids: Ids | None,
        config: TrainingConfig,
        run: RunFolder | None,
        identity: dict[str, Any],
        report: Report,
    ) -> None:
        self.model = model
        self.config = config
        self.step = 0
        self.seconds = 0.0
        self.records: list[StepRecord] = []
        self._train_ids = train_ids
        self._val_ids = val_ids
        self._run = run
        self._identity = identity
        self._report = report
        self._device = device_of(model)
        self._optimizer = make_optimizer(model, config)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._data = torch.Generator().manual_seed(config.seed)
        self._metrics: MetricsFile | None = None
        self._saved_step: int | None = None
        # While a step computes its gradients: what that changes, as it was before.
        self._before_step: tuple[RandomState, list[torch.Tensor]] | None = None
        # From the first change of a weight until the step's row is written.
        self._in_update = False

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go back to where ``checkpoint`` was written, bit for bit."""
        load_model_tensors(self.model, checkpoint.model)
        load_optimizer_tensors(self.model, self._optimizer, checkpoint.optimizer)
        RandomState.from_json(checkpoint.state["random"]).restore(self._data, self._device)
        self.step = self._saved_step = checkpoint.step
        self.seconds = checkpoint.state["seconds"]

    def run(
        self, last: int, *, progress: bool, on_step: Callable[[StepRecord], None] | None
    ) -> LossReport | None:
        """Train up to step ``last``; at the end of the config also take the final validation.

        Raises:
            KeyboardInterrupt: Ctrl-C, or raised by ``on_step``; the run is saved and said so.
            NonFiniteLossError, OSError: see `g2c.training.train`.
        """
        title = self._run.path.name if self._run else "training"
        with self._open_metrics(), DeferredInterrupt() as interrupt:
            try:
                self.model.train()
                if self.step == 0:
                    self._save()
                with TrainingBar(title, self.step, self.config.steps, show=progress) as bar:
                    while self.step < last:
                        record = self._advance()
                        bar.advance(record)
                        if on_step is not None:
                            on_step(record)
                        if self.step % self.config.checkpoint_every == 0:
                            self._save()
                        interrupt.check()
                self._save()
                if self.step < self.config.steps or self._val_ids is None:
                    return None
                return self._final_validation(title, interrupt, progress)
            except KeyboardInterrupt:
                self._interrupted()
                raise

    def _advance(self) -> StepRecord:
        random = RandomState.capture(self._data, self._device)
        self._before_step = random, [buffer.clone() for buffer in self.model.buffers()]
        began = time.perf_counter()
        loss, grad_norm = self._gradients()
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise self._non_finite(loss, grad_norm)
        self._before_step = None
        self._in_update = True
        lr = self.config.lr(self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self.step += 1
        elapsed = time.perf_counter() - began
        self.seconds += elapsed
        validation = self._validation() if self._validation_due() else None
        record = StepRecord(
            step=self.step,
            loss=loss,
            lr=lr,
            grad_norm=grad_norm,
            tokens_per_s=self.config.tokens_per_step / elapsed,
            seconds=self.seconds,
            val_loss=None if validation is None else validation.nats_per_token,
            val_tokens=None if validation is None else validation.num_tokens,
        )
        self._keep(record)
        self._in_update = False
        return record

    def _gradients(self) -> tuple[float, float]:
        """Clipped gradients of one batch: returns its loss, and their norm before clipping."""
        self._optimizer.zero_grad(set_to_none=True)
        config = self.config
        starts = sample_starts(
            self._train_ids, config.batch_size, config.context_length, generator=self._data
        )
        total = torch.zeros((), device=self._device)
        for part in torch.split(starts, config.batch_size // config.accumulation):
            x, y = windows_at(self._train_ids, part, config.context_length)
            with self._precision():
                loss = language_model_loss(self.model, x.to(self._device), y.to(self._device))
            (loss / config.accumulation).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        limit = math.inf if config.max_grad_norm is None else config.max_grad_norm
        norm = clip_grad_norm_(self._trained, limit)
        return float(total) / config.accumulation, float(norm)

    def _validation_due(self) -> bool:
        every = self.config.eval_every
        return every is not None and (self.step % every == 0 or self.step == self.config.steps)

    def _validation(self) -> LossReport | None:
        return self._evaluate(self.config.eval_batches, None)

    def _final_validation(
        self, title: str, interrupt: DeferredInterrupt, progress: bool
    ) -> LossReport | None:
        last = self.records[-1] if self.records else None
        if (
            self.config.eval_batches == self.config.final_eval_batches
            and last is not None
            and last.val_loss is not None
            and last.val_tokens is not None
        ):
            return LossReport(last.val_loss, last.val_tokens)
        with ValidationBar(f"{title}: validation", show=progress) as bar:

            def advance(done: int, total: int) -> None:
                bar.update(done, total)
                interrupt.check()

            return self._evaluate(self.config.final_eval_batches, advance)

    def _evaluate(
        self, max_batches: int | None, progress: Callable[[int, int], None] | None
    ) -> LossReport | None:
        if self._val_ids is None:
            return None
        with self._precision():
            return evaluate(
                self.model,
                self._val_ids,
                self.config.context_length,
                self.config.batch_size,
                max_batches=max_batches,
                progress=progress,
            )

    def _precision(self) -> AbstractContextManager[Any]:
        if self.config.autocast is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)

    @contextmanager
    def _open_metrics(self) -> Iterator[None]:
        if self._run is None:
            yield
            return
        with self._writing():
            self._metrics = MetricsFile(self._run.metrics, self.step)
            set_aside_newer(self._run.checkpoints, self.step)
        self.records = self._metrics.records
        if [record.step for record in self.records] != list(range(1, self.step + 1)):
            self._report(
                f"{self._run.metrics} lacks steps before {self.step}; the training itself goes on unchanged"
            )
        with self._metrics:
            yield

    def _keep(self, record: StepRecord) -> None:
        if self._metrics is None:
            self.records.append(record)
            return
        with self._writing():
            self._metrics.append(record)

    def _save(self) -> None:
        """Write a checkpoint of the present step, unless there is one."""
        if self._run is None or self._metrics is None or self._saved_step == self.step:
            return
        random = RandomState.capture(self._data, self._device)
        checkpoint = Checkpoint(
            self.step,
            model_tensors(self.model),
            optimizer_tensors(self.model, self._optimizer),
            {
                "seconds": self.seconds,
                "random": random.to_json(),
                "config": self.config.to_dict(),
                "model": self._identity["model"],
            },
        )
        with self._writing():
            # Rows first: a checkpoint never knows of steps that the metrics lack.
            self._metrics.sync()
            save_checkpoint(self._run.checkpoints, checkpoint)
            self._saved_step = self.step
            prune(self._run.checkpoints, self.config.keep_checkpoints)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                error.errno,
                f"step {self.step}: can't write the run folder ({error.strerror}); {self._kept()}",
            ) from error

    def _kept(self) -> str:
        if self._run is None or self._saved_step is None:
            return "nothing of this run is kept"
        return (
            f"the last checkpoint is {checkpoint_name(self._saved_step)} in "
            f"{self._run.checkpoints}; run the same again to go on from it"
        )

    def _non_finite(self, loss: float, grad_norm: float) -> NonFiniteLossError:
        self._optimizer.zero_grad(set_to_none=True)
        self._rewind()
        self._save()
        message = (
            f"step {self.step + 1}: the loss is {loss} and the gradient norm {grad_norm}; the "
            f"model keeps the weights of step {self.step}"
        )
        if self._run is not None:
            message += f", saved in {self._run.checkpoints / checkpoint_name(self.step)}"
        return NonFiniteLossError(self.step + 1, f"{message}. A lower max_lr or a longer warm-up may help")

    def _rewind(self) -> None:
        """Undo what a step did before its update: draw numbers, and change buffers."""
        if self._before_step is None:
            return
        random, buffers = self._before_step
        random.restore(self._data, self._device)
        for buffer, before in zip(self.model.buffers(), buffers, strict=True):
            buffer.copy_(before)
        self._before_step = None

    def _interrupted(self) -> None:
        if self._run is None:
            return
        try:
            if not self._in_update:
                self._rewind()
                self._save()
        except OSError as error:
            self._report(str(error))
            return
        self._report(f"Interrupted at step {self.step} of {self.config.steps}: {self._kept()}")
