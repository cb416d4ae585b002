"""Starting, resuming and loading runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from g2c.pretraining import Ids, LossReport
from g2c.pretraining.arguments import check_count
from g2c.pretraining.modules import device_of
from g2c.training.checkpoint import load_newest
from g2c.training.config import TrainingConfig
from g2c.training.identity import DataFacts, check_fit, count_parameters, identity_of
from g2c.training.loop import Report, Training
from g2c.training.metrics import read_metrics
from g2c.training.records import History, StepRecord, TrainingResult
from g2c.training.run_folder import RunFolder


def train(
    model: nn.Module,
    train_ids: Ids,
    val_ids: Ids | None = None,
    config: TrainingConfig | None = None,
    *,
    run_dir: str | Path | None = None,
    corpus_name: str | None = None,
    corpus_digest: str | None = None,
    stop_after: int | None = None,
    progress: bool = True,
    on_step: Callable[[StepRecord], None] | None = None,
    report: Report = print,
) -> TrainingResult:
    """Train ``model`` in place, or go on with the training in ``run_dir``.

    In a run folder the run survives whatever stops it: the same call goes on from the newest intact
    checkpoint with the same losses and weights, bit for bit, as an unbroken run on the same machine
    and versions. A finished run is loaded instead of trained again. Ctrl-C stops between two steps,
    saves, and raises KeyboardInterrupt; a second one stops at once.

    Args:
        model: any module that maps ids (B, T) to logits (B, T, V), on the device to train on.
        train_ids, val_ids: token ids (n,) of any integer dtype, or ChunkedIds.
        config: StoryLM-1M's recipe unless given.
        run_dir: folder of the run; None keeps everything in memory.
        corpus_name, corpus_digest: recorded in the run folder. The ids themselves are digested too.
        stop_after: stop after so many steps of this call, saved.
        progress: show progress bars.
        on_step: called after every step, once its row is written.
        report: takes the few lines that are worth saying; prints them unless given.

    Raises:
        TypeError, ValueError: before any work: arguments that don't fit each other, a ``run_dir``
            that holds another run or something else or that another process trains in, or a run
            whose checkpoints are all damaged.
        NonFiniteLossError: the loss or the gradient became NaN or infinite; the state before that
            step is kept.
        OSError: the disk is full, say; the last checkpoint is intact.
        KeyboardInterrupt: see above.
    """
    config = TrainingConfig() if config is None else config
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if stop_after is not None:
        check_count("stop_after", stop_after)
    train_facts = DataFacts.of("train_ids", train_ids)
    val_facts = None if val_ids is None else DataFacts.of("val_ids", val_ids)
    check_fit(model, (train_ids, train_facts), val_facts, config)
    identity = identity_of(model, train_facts, val_facts, config)

    def go_on(training: Training, run: RunFolder | None) -> TrainingResult:
        last = config.steps
        if stop_after is not None:
            last = min(last, training.step + stop_after)
        validation = training.run(last, progress=progress, on_step=on_step)
        return _result(training, validation, run)

    if run_dir is None:
        return go_on(Training(model, train_ids, val_ids, config, None, identity, report), None)
    with RunFolder(Path(run_dir), identity) as run:
        training = Training(model, train_ids, val_ids, config, run, identity, report)
        checkpoint = load_newest(run.checkpoints, report)
        if checkpoint is not None:
            training.restore(checkpoint)
            finished = _load_finished(training, run)
            if finished is not None:
                report(_finished_line(finished))
                return finished
            report(f"{run.path}: going on from step {training.step} of {config.steps}")
        run.begin_session(
            from_step=training.step,
            config=config.to_dict(),
            corpus={"name": corpus_name, "digest": corpus_digest},
            parameters=count_parameters(model),
            device=device_of(model),
        )
        result = go_on(training, run)
        if result.finished:
            _write_result(run, result)
        else:
            report(f"{run.path}: stopped at step {result.steps} of {config.steps}, saved")
        return result


def _result(training: Training, validation: LossReport | None, run: RunFolder | None) -> TrainingResult:
    tokens = training.step * training.config.tokens_per_step
    return TrainingResult(
        history=History(tuple(training.records)),
        steps=training.step,
        finished=training.step == training.config.steps,
        final_validation=validation,
        seconds=training.seconds,
        tokens_per_s=tokens / training.seconds if training.seconds else 0.0,
        parameters=count_parameters(training.model),
        run_dir=None if run is None else run.path,
    )


def _write_result(run: RunFolder, result: TrainingResult) -> None:
    validation = result.final_validation
    run.write_result(
        {
            "steps": result.steps,
            "validation": None if validation is None else validation._asdict(),
            "seconds": result.seconds,
            "tokens_per_s": result.tokens_per_s,
            "parameters": result.parameters,
        }
    )


def _load_finished(training: Training, run: RunFolder) -> TrainingResult | None:
    """The result of a run whose last step is both recorded and restored; None of any other."""
    if training.step != training.config.steps:
        return None
    content = run.read_result()
    if content is None:
        return None
    training.records = read_metrics(run.metrics)
    validation = content["validation"]
    return _result(training, None if validation is None else LossReport(**validation), run)


def _finished_line(result: TrainingResult) -> str:
    loss = "" if result.val_loss is None else f", validation {result.val_loss:.3f} nats per token"
    return f"{result.run_dir}: finished earlier and loaded ({result.steps:,} steps{loss})"
