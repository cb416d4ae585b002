"""Runs that are stopped in every way, and go on as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from g2c.training import NonFiniteLossError
from g2c.training.interrupt import DeferredInterrupt
from tests.training.runs import (
    NUMBERS,
    config,
    dropout_model,
    hybrid,
    rows,
    run,
    same,
    steps_on_disk,
    transformer,
    weights,
)

MODELS = [hybrid, transformer, dropout_model]


def unbroken(make, tmp_path, cfg=None):
    """Weights, result and metrics of a run that nothing stops."""
    model = make()
    result = run(model, tmp_path / "unbroken", cfg)
    return weights(model), result, rows(tmp_path / "unbroken", *NUMBERS)


def check_same_end(make, tmp_path, expected, cfg=None):
    """Finish the run in tmp_path/run with another model and compare everything."""
    wanted, wanted_result, wanted_rows = expected
    model = make(seed=99)
    torch.manual_seed(1234)  # where the process stands when it resumes must not matter
    result = run(model, tmp_path / "run", cfg)
    assert result.finished
    assert same(weights(model), wanted)
    assert result.history.losses == wanted_result.history.losses
    assert result.final_validation == wanted_result.final_validation
    assert rows(tmp_path / "run", *NUMBERS) == wanted_rows


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("stop", [1, 5, 6, 13, 19])
def test_stopping_anywhere_changes_nothing(make, stop, tmp_path):
    expected = unbroken(make, tmp_path)
    run(make(), tmp_path / "run", stop_after=stop)
    check_same_end(make, tmp_path, expected)


def test_accumulation_and_autocast_resume_too(tmp_path):
    cfg = config(accumulation=2, autocast="bfloat16")
    expected = unbroken(dropout_model, tmp_path, cfg)
    run(dropout_model(), tmp_path / "run", cfg, stop_after=7)
    check_same_end(dropout_model, tmp_path, expected, cfg)


@pytest.mark.parametrize("make", MODELS)
def test_ctrl_c_in_a_callback_saves_that_step(make, tmp_path):
    expected = unbroken(make, tmp_path)
    when = random.Random(0).randint(2, 19)

    def on_step(record):
        if record.step == when:
            raise KeyboardInterrupt

    lines = []
    with pytest.raises(KeyboardInterrupt):
        run(make(), tmp_path / "run", on_step=on_step, report=lines.append)
    assert steps_on_disk(tmp_path / "run")[-1] == f"step-{when:06d}"
    (line,) = lines
    assert line.startswith(f"Interrupted at step {when} of 20") and "run the same again" in line
    check_same_end(make, tmp_path, expected)


@pytest.mark.parametrize("where", ["forward", "backward", "between"])
def test_a_real_sigint_waits_for_the_end_of_the_step(where, tmp_path):
    expected = unbroken(dropout_model, tmp_path)
    model = dropout_model()
    calls = []

    def press(*_):
        calls.append(where)
        if len(calls) == 9:
            signal.raise_signal(signal.SIGINT)

    options = {}
    if where == "forward":
        model.register_forward_hook(lambda m, *_: press() if m.training else None)
    elif where == "backward":
        model.embedding.weight.register_hook(lambda grad: press())
    else:
        options["on_step"] = press
    previous = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path / "run", **options)
    assert signal.getsignal(signal.SIGINT) is previous
    assert steps_on_disk(tmp_path / "run")[-1] == "step-000009"
    check_same_end(dropout_model, tmp_path, expected)


def test_an_interrupt_in_the_middle_of_a_step_keeps_the_step_before(tmp_path):
    expected = unbroken(dropout_model, tmp_path)
    model = dropout_model()
    calls = []

    def press_twice(m, *_):
        calls.append(m.training)
        if calls.count(True) == 8:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    model.register_forward_hook(press_twice)
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path / "run")
    assert steps_on_disk(tmp_path / "run")[-1] == "step-000007"
    check_same_end(dropout_model, tmp_path, expected)


def test_an_interrupt_between_update_and_row_falls_back_to_the_last_checkpoint(tmp_path):
    expected = unbroken(hybrid, tmp_path)
    model = hybrid()

    def interrupt_validation(m, *_):
        if not m.training:
            raise KeyboardInterrupt

    handle = model.register_forward_hook(interrupt_validation)
    lines = []
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path / "run", report=lines.append)
    handle.remove()
    assert "the last checkpoint is step-000005" in lines[0]
    assert steps_on_disk(tmp_path / "run")[-1] == "step-000005"
    check_same_end(hybrid, tmp_path, expected)


def test_ctrl_c_in_the_final_validation_keeps_the_training(tmp_path):
    expected = unbroken(hybrid, tmp_path)
    model = hybrid()
    passes = []

    def press(m, *_):
        passes.append(m.training)
        if passes.count(True) == 20 and not m.training and len(set(passes[-5:])) == 1:
            signal.raise_signal(signal.SIGINT)

    model.register_forward_hook(press)
    with pytest.raises(KeyboardInterrupt):
        run(model, tmp_path / "run")
    assert not (tmp_path / "run/result.json").exists()
    done = []
    assert run(hybrid(), tmp_path / "run", on_step=done.append).finished and done == []
    check_same_end(hybrid, tmp_path, expected)


def test_ctrl_c_without_a_run_folder():
    def on_step(record):
        raise KeyboardInterrupt

    lines = []
    with pytest.raises(KeyboardInterrupt):
        run(hybrid(), on_step=on_step, report=lines.append)
    assert lines == []


def test_an_interrupt_is_never_swallowed():
    with pytest.raises(KeyboardInterrupt), DeferredInterrupt():
        signal.raise_signal(signal.SIGINT)
    with DeferredInterrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()
        interrupt.check()


CHILD = """
import os, signal, sys
import torch
torch.set_num_threads(1)
from pathlib import Path
from g2c.training import checkpoint
from tests.training import runs

make, folder, where, count = getattr(runs, sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])

def die_at(function):
    left = [count]
    def wrapper(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return wrapper

options = {}
if where == "step":
    options["on_step"] = die_at(lambda record: None)
elif where == "file":
    checkpoint._write = die_at(checkpoint._write)
elif where == "rename":
    checkpoint.os.rename = die_at(checkpoint.os.rename)
runs.run(make(), folder, **options)
"""


def start_and_kill(make, folder, where, count):
    child = subprocess.run(
        [sys.executable, "-c", CHILD, make.__name__, str(folder), where, str(count)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr


def test_kill_9_loses_no_more_than_the_last_interval(tmp_path):
    expected = unbroken(dropout_model, tmp_path)
    start_and_kill(dropout_model, tmp_path / "run", "step", 8)  # after step 8
    assert steps_on_disk(tmp_path / "run")[-1] == "step-000005"
    assert len(rows(tmp_path / "run", "step")) == 8
    # Its second file of the next checkpoint: a folder with weights and no optimiser.
    start_and_kill(dropout_model, tmp_path / "run", "file", 2)
    assert any(name.endswith(".partial") for name in steps_on_disk(tmp_path / "run"))
    # In the rename that would have made step 10 count.
    start_and_kill(dropout_model, tmp_path / "run", "rename", 1)
    check_same_end(dropout_model, tmp_path, expected)
    assert steps_on_disk(tmp_path / "run") == ["step-000010", "step-000015", "step-000020"]
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert [session["from_step"] for session in record["sessions"]] == [0, 5, 5, 5]


def poison(model, when):
    """Make the loss NaN in training pass number ``when``, counted from 1."""
    passes = []

    def hook(m, inputs, output):
        if m.training:
            passes.append(1)
        return output * float("nan") if len(passes) == when and m.training else output

    return model.register_forward_hook(hook)


@pytest.mark.parametrize("make", MODELS)
def test_a_loss_of_nan_stops_and_keeps_the_state_before_it(make, tmp_path):
    expected = unbroken(make, tmp_path)
    model = make()
    poison(model, 9)
    states = {}
    with pytest.raises(NonFiniteLossError, match="step 9: the loss is nan") as caught:
        run(model, tmp_path / "run", on_step=lambda r: states.update({r.step: weights(model)}))
    assert caught.value.step == 9
    assert str(tmp_path / "run/checkpoints/step-000008") in str(caught.value)
    assert same(weights(model), states[8])
    assert len(rows(tmp_path / "run", "step")) == 8
    check_same_end(make, tmp_path, expected)


def test_an_infinite_gradient_stops_too():
    model = hybrid()
    passes = []

    def hook(grad):
        passes.append(1)
        return grad * float("inf") if len(passes) == 4 else grad

    model.head_bias.register_hook(hook)
    with pytest.raises(FloatingPointError, match=r"step 4: the loss is \d.* gradient norm"):
        run(model)
    assert all(torch.isfinite(p).all() for p in model.parameters())
