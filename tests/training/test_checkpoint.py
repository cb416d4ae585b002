"""Checkpoint folders: damage, full disks, what is kept."""

import errno
import shutil
from pathlib import Path

import pytest
import torch

from g2c.training import DamagedCheckpointError, checkpoint
from g2c.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from g2c.training.tensors import load_model_tensors, model_tensors
from tests.training.runs import (
    NUMBERS,
    config,
    dropout_model,
    edit_json,
    hybrid,
    rows,
    run,
    same,
    steps_on_disk,
    weights,
)

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-7])


DAMAGES = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut off": cut_off,
    "one bit": flip_a_bit,
    "other content": lambda path: path.write_bytes(b"[1, 2]"),
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(file, damage, tmp_path):
    whole = hybrid()
    run(whole, tmp_path / "whole")
    run(hybrid(), tmp_path / "run", stop_after=13)
    DAMAGES[damage](tmp_path / "run/checkpoints/step-000013" / file)
    lines, model = [], hybrid(seed=9)
    result = run(model, tmp_path / "run", report=lines.append)
    assert "step-000013 is damaged" in lines[0] and "trying the one before it" in lines[0]
    assert file in lines[0] or file == "state.json"
    assert lines[1].endswith("going on from step 10 of 20")
    assert result.finished and same(weights(model), weights(whole))
    assert rows(tmp_path / "run", *NUMBERS) == rows(tmp_path / "whole", *NUMBERS)
    assert "damaged-step-000013" in steps_on_disk(tmp_path / "run")


def test_damaged_newer_checkpoints_push_out_no_intact_one(tmp_path):
    run(hybrid(), tmp_path / "run", stop_after=16)
    for step in (15, 16):
        cut_off(tmp_path / f"run/checkpoints/step-{step:06d}/model.safetensors")
    cfg = config(keep_checkpoints=1)
    run(hybrid(), tmp_path / "run", cfg, stop_after=1)
    assert [name for name in steps_on_disk(tmp_path / "run") if name.startswith("step")] == ["step-000011"]


def test_a_finished_run_with_a_damaged_end_is_finished_again(tmp_path):
    first = run(hybrid(), tmp_path / "run")
    cut_off(tmp_path / "run/checkpoints/step-000020/model.safetensors")
    again = run(hybrid(), tmp_path / "run")
    assert again.history.losses == first.history.losses
    assert again.final_validation == first.final_validation
    (tmp_path / "run/result.json").write_text("{")
    assert run(hybrid(), tmp_path / "run").final_validation == first.final_validation


def test_only_damaged_checkpoints(tmp_path):
    run(hybrid(), tmp_path / "run", stop_after=3)
    for path in (tmp_path / "run/checkpoints").iterdir():
        cut_off(path / "state.json")
    with pytest.raises(DamagedCheckpointError, match=r"every checkpoint in .* is damaged; delete"):
        run(hybrid(), tmp_path / "run")


def test_no_checkpoint_yet_starts_from_the_beginning(tmp_path):
    whole, model = hybrid(), hybrid()
    run(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    run(model, tmp_path / "run")
    assert same(weights(model), weights(whole))
    assert len(rows(tmp_path / "run", "step")) == 20


def test_the_last_ones_are_kept(tmp_path):
    run(hybrid(), tmp_path / "run", config(checkpoint_every=3, keep_checkpoints=2))
    assert steps_on_disk(tmp_path / "run") == ["step-000018", "step-000020"]


def test_order_is_by_number(tmp_path):
    state = {"x": 1}
    for step in (1_000_000, 999_999, 7):
        save_checkpoint(tmp_path, Checkpoint(step, {}, {}, state))
    names = [path.name for path in checkpoint.list_checkpoints(tmp_path)]
    assert names == ["step-000007", "step-999999", "step-1000000"]
    checkpoint.prune(tmp_path, 1)
    assert load_checkpoint(tmp_path / "step-1000000").state == state
    assert len(list(tmp_path.iterdir())) == 1


def test_saving_over_a_checkpoint_replaces_it(tmp_path):
    tensors = {"w": torch.arange(3.0)}
    save_checkpoint(tmp_path, Checkpoint(4, {}, {}, {}))
    save_checkpoint(tmp_path, Checkpoint(4, tensors, {"w.step": torch.tensor(2.0)}, {"a": [1]}))
    loaded = load_checkpoint(tmp_path / "step-000004")
    assert torch.equal(loaded.model["w"], tensors["w"]) and loaded.state == {"a": [1]}
    assert steps_names(tmp_path) == ["step-000004"]
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        load_checkpoint(tmp_path / "step-000005")


def steps_names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_another_format_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, Checkpoint(4, {}, {}, {}))
    edit_json(path / "state.json", lambda content: content.update(format=99))
    with pytest.raises(DamagedCheckpointError, match="format 99, not 1"):
        load_checkpoint(path)


class FullDisk:
    """Stands in for Path.write_bytes and fails, half-way, at the given call from now on."""

    def __init__(self, monkeypatch, call):
        self.left = call
        original = Path.write_bytes
        monkeypatch.setattr(Path, "write_bytes", lambda path, data: self.write(original, path, data))

    def write(self, original, path, data):
        self.left -= 1
        if self.left < 0:
            original(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return original(path, data)


@pytest.mark.parametrize("file", [0, 1, 2], ids=FILES)
def test_a_full_disk_keeps_the_last_checkpoint(file, tmp_path, monkeypatch):
    whole = hybrid()
    run(whole, tmp_path / "whole")
    with monkeypatch.context() as patch:
        FullDisk(patch, 2 * 3 + file)  # steps 0 and 5 are written, then some files of step 10
        with pytest.raises(OSError, match=r"step 10: can't write .* \(No space left") as caught:
            run(hybrid(), tmp_path / "run")
    assert caught.value.errno == errno.ENOSPC
    assert "the last checkpoint is step-000005" in str(caught.value)
    assert steps_on_disk(tmp_path / "run") == ["step-000000", "step-000005"]
    model = hybrid(seed=9)
    run(model, tmp_path / "run")
    assert same(weights(model), weights(whole))


def test_a_full_disk_at_ctrl_c_still_interrupts(tmp_path, monkeypatch):
    FullDisk(monkeypatch, 2 * 3)

    def on_step(record):
        if record.step == 8:
            raise KeyboardInterrupt

    lines = []
    with pytest.raises(KeyboardInterrupt):
        run(hybrid(), tmp_path / "run", on_step=on_step, report=lines.append)
    assert "No space left" in lines[0] and "step-000005" in lines[0]


def test_a_full_disk_at_the_metrics(tmp_path, monkeypatch):
    from g2c.training.metrics import MetricsFile

    original = MetricsFile.append

    def append(self, record):
        if record.step == 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(MetricsFile, "append", append)
        with pytest.raises(OSError, match=r"step 7: .*step-000005"):
            run(hybrid(), tmp_path / "run")
    assert run(hybrid(), tmp_path / "run").finished


def test_a_tied_parameter_is_stored_once_and_stays_tied():
    model, other = dropout_model(), dropout_model(seed=4)
    tensors = model_tensors(model)
    assert set(tensors) == {"embedding.weight", "head.bias", "calls"}
    load_model_tensors(other, tensors)
    assert other.head.weight is other.embedding.weight
    assert same(weights(other), weights(model))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("head_bias"), "head_bias is missing, the model's is torch.float32"),
        (lambda t: t.update(more=torch.zeros(1)), "more is .*the model's is missing"),
        (lambda t: t.update(head_bias=torch.zeros(3)), r"head_bias is torch.float32 \(3,\)"),
        (lambda t: t.update(head_bias=t["head_bias"].half()), "head_bias is torch.float16"),
    ],
)
def test_tensors_of_another_model_change_nothing(change, says):
    model = hybrid()
    tensors = {name: tensor + 1 for name, tensor in model_tensors(model).items()}
    change(tensors)
    before = weights(model)
    with pytest.raises(ValueError, match=says):
        load_model_tensors(model, tensors)
    assert same(weights(model), before)
