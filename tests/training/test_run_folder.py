"""Run folders that are not this run's, and metrics files in every state."""

import subprocess

import pytest
import torch

from g2c.artifacts import ChunkedIds
from g2c.training import run_folder, train
from g2c.training.metrics import MetricsFile, read_metrics
from g2c.training.records import StepRecord
from g2c.training.run_folder import RunFolder
from tests.training.runs import (
    NUMBERS,
    TRAIN,
    VAL,
    config,
    content_digest,
    dropout_model,
    hybrid,
    rows,
    run,
    transformer,
)


@pytest.fixture
def folder(tmp_path):
    run(hybrid(), tmp_path / "run", stop_after=3)
    return tmp_path / "run"


CHUNKS = ChunkedIds(TRAIN, 100, torch.arange(0, 1000, 100))
OTHER_RUNS = [
    ({"config": config(max_lr=1e-3)}, "config.max_lr is 0.003 there and 0.001 here"),
    ({"config": config(seed=1)}, "config.seed is 0 there and 1 here"),
    ({"config": config(steps=40)}, "config.steps is 20 there and 40 here; config.warmup_steps"),
    ({"config": config(eval_every=None)}, "config.eval_every is 6 there and None here"),
    ({"model": hybrid(pattern=("linear", "linear"))}, r"model.layer_pattern is \['linear', 'full'"),
    ({"model": hybrid(pattern=("linear", "full") * 2)}, "; and .. more. Choose another folder"),
    ({"model": transformer()}, "model.class is .*HybridTransformerLM there and .*TransformerLM"),
    ({"model": hybrid().double()}, r"is float32 \[.*there and float64"),
    ({"model": dropout_model()}, "model.vocab_size is 40 there and None here"),
    ({"train_ids": TRAIN.long().flip(0)}, "data.train.sha256"),
    ({"train_ids": CHUNKS}, "data.train.num_tokens is 2000 there and 1000 here"),
    ({"val_ids": VAL[:200]}, "data.validation.num_tokens is 300 there and 200 here"),
    ({"val_ids": None}, "data.validation"),
]


@pytest.mark.parametrize(("changes", "says"), OTHER_RUNS, ids=[case[1][:24] for case in OTHER_RUNS])
def test_another_run_is_refused_and_left_alone(folder, changes, says):
    arguments = {"model": hybrid(), "train_ids": TRAIN, "val_ids": VAL, "config": config()}
    digest = content_digest(folder)
    with pytest.raises(ValueError, match=f"holds another run: .*{says}"):
        train(**{**arguments, **changes}, run_dir=folder, progress=False)
    assert content_digest(folder) == digest


def test_first_weights_are_no_part_of_the_identity(folder):
    assert run(hybrid(seed=5), folder).finished


def test_a_folder_that_is_no_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is not a run, but holds notes.txt"):
        run(hybrid(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match=r"notes.txt is not a folder"):
        run(hybrid(), tmp_path / "notes.txt")


def test_an_empty_folder_and_one_with_a_killed_writers_leavings(tmp_path):
    (tmp_path / ".run.json.999999999-abcd.g2c-tmp").write_text("{")
    assert run(hybrid(), tmp_path, stop_after=1).steps == 1
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "run.json is damaged"), ("[]", "not the record of a run"), ("{}", "not the record")],
)
def test_a_damaged_record(folder, content, says):
    (folder / "run.json").write_text(content)
    with pytest.raises(ValueError, match=says):
        run(hybrid(), folder)


def test_one_process_at_a_time(folder):
    messages = []

    def on_step(record):
        with pytest.raises(ValueError, match="another process trains in") as caught:
            run(hybrid(), folder)
        messages.append(str(caught.value))

    run(hybrid(), folder, stop_after=1, on_step=on_step)
    assert len(messages) == 1
    assert run(hybrid(), folder).finished


def test_the_lock_goes_with_an_error(tmp_path):
    with pytest.raises(RuntimeError), RunFolder(tmp_path, {}):
        raise RuntimeError
    with RunFolder(tmp_path, {}):
        pass


def test_the_git_revision(tmp_path, monkeypatch):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(tmp_path)]
    monkeypatch.setattr(run_folder, "checkout", lambda: tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert run_folder.git_revision() is None
    (tmp_path / "file").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert run_folder.git_revision() == head.stdout.strip()
    (tmp_path / "file").write_text("2")
    assert run_folder.git_revision() == head.stdout.strip() + "-dirty"
    monkeypatch.setattr(run_folder, "checkout", lambda: None)
    assert run_folder.git_revision() is None


RECORDS = [
    StepRecord(1, 0.1 + 0.2, 1e-5, 2.5, 1000.0, 0.5),
    StepRecord(2, 1 / 3, 1e-17, 2.5, 1000.0, 1.0, val_loss=2 / 3, val_tokens=77),
    StepRecord(3, 3.0, 3e-4, 0.0, 1e9, 1.5),
]


def write(path, records):
    with MetricsFile(path, 0) as metrics:
        for record in records:
            metrics.append(record)


def test_numbers_come_back_exactly(tmp_path):
    write(tmp_path / "m.csv", RECORDS)
    assert read_metrics(tmp_path / "m.csv") == RECORDS
    assert read_metrics(tmp_path / "absent.csv") == []


def test_rows_past_the_step_and_a_cut_off_row_go(tmp_path):
    path = tmp_path / "m.csv"
    write(path, RECORDS)
    text = path.read_text()
    path.write_text(text[:-4])
    assert read_metrics(path) == RECORDS[:2]
    with MetricsFile(path, 1) as metrics:
        assert metrics.records == RECORDS[:1]
        metrics.append(RECORDS[1])
        assert read_metrics(path) == RECORDS[:2]
    path.write_bytes(text.replace("3.0", "3.x").encode())
    assert read_metrics(path) == RECORDS[:2]
    path.write_bytes(text.encode() + b"\0\0\0\0\n")
    assert read_metrics(path) == RECORDS


def test_other_columns_are_refused(tmp_path):
    (tmp_path / "m.csv").write_text("step,accuracy\n1,2\n")
    with pytest.raises(ValueError, match="expected the columns step,loss,lr,tokens_per_s"):
        read_metrics(tmp_path / "m.csv")


def test_lost_metrics_are_said_and_stop_nothing(folder):
    expected = rows(folder, *NUMBERS)
    (folder / "metrics.csv").unlink()
    lines = []
    result = run(hybrid(), folder, report=lines.append)
    assert any("metrics.csv lacks steps before 3" in line for line in lines)
    assert result.history.steps == list(range(4, 21)) and len(expected) == 3
