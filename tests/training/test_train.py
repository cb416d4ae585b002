"""Runs that nothing disturbs: numbers, records, options."""

import csv
import json

import pytest
import torch

from g2c.artifacts import ChunkedIds
from g2c.pretraining import evaluate, get_lm_batch, language_model_loss
from g2c.training import TrainingConfig, clip_grad_norm_, make_optimizer, train
from tests.training.runs import (
    CONTEXT,
    NUMBERS,
    TRAIN,
    VAL,
    VOCAB,
    config,
    content_digest,
    dropout_model,
    hybrid,
    rows,
    run,
    same,
    steps_on_disk,
    transformer,
    weights,
)


@pytest.mark.parametrize("make", [hybrid, transformer, dropout_model])
def test_equals_the_loop_that_one_would_write_by_hand(make):
    model = make()
    result = run(model)
    expected = make()
    cfg = config()
    optimizer = make_optimizer(expected, cfg)
    generator = torch.Generator().manual_seed(cfg.seed)
    losses, norms = [], []
    for step in range(cfg.steps):
        for group in optimizer.param_groups:
            group["lr"] = cfg.lr(step)
        x, y = get_lm_batch(TRAIN, 4, CONTEXT, generator=generator)
        loss = language_model_loss(expected, x, y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(clip_grad_norm_(expected.parameters(), 1.0)))
        optimizer.step()
        losses.append(loss.item())
    assert result.history.losses == losses
    assert [record.grad_norm for record in result.history.records] == norms
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_it_learns():
    cfg = config(steps=150, batch_size=16, max_lr=1e-2)
    result = run(hybrid(), cfg=cfg)
    # Three next tokens are equally likely: ln 3 is the least there is.
    assert result.history.losses[0] > 3.4
    assert 1.0 < result.val_loss < 1.5


def test_result_and_history():
    model = hybrid()
    result = run(model)
    assert result.finished and result.steps == 20 and result.run_dir is None
    assert result.history.steps == list(range(1, 21))
    assert result.history.val_steps == [6, 12, 18, 20]
    assert result.parameters == sum(p.numel() for p in model.parameters())
    assert result.final_validation == evaluate(model, VAL, CONTEXT, 4)
    assert result.val_loss == result.final_validation.nats_per_token
    assert result.history.val_losses[-1] == evaluate(model, VAL, CONTEXT, 4, max_batches=3).nats_per_token
    assert result.seconds == result.history.records[-1].seconds > 0
    assert result.tokens_per_s == pytest.approx(20 * 32 / result.seconds)
    assert result.seconds == pytest.approx(sum(32 / record.tokens_per_s for record in result.history.records))


def test_variants_see_the_same_batches_in_the_same_order():
    seen = {}
    for pattern in (("linear",), ("full", "full"), ("linear", "full")):
        model = hybrid(seed=len(pattern), pattern=pattern)
        batches = seen.setdefault(pattern, [])
        model.register_forward_pre_hook(
            lambda m, inputs, b=batches: b.append(inputs[0].clone()) if m.training else None
        )
        run(model)
    first, *others = seen.values()
    assert len(first) == 20
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_seed_decides_the_batches_and_nothing_else_does():
    losses = run(dropout_model(), cfg=config(seed=1)).history.losses
    torch.rand(100)
    assert run(dropout_model(), cfg=config(seed=1)).history.losses == losses
    assert run(dropout_model(), cfg=config(seed=2)).history.losses != losses


def test_accumulation_changes_memory_and_not_the_result():
    sizes = []
    whole, parts = hybrid(), hybrid()
    parts.register_forward_pre_hook(
        lambda m, inputs: sizes.append(inputs[0].shape[0]) if m.training else None
    )
    a = run(whole, cfg=config(batch_size=8))
    b = run(parts, cfg=config(batch_size=8, accumulation=4))
    assert sizes == [2] * 80
    assert torch.allclose(torch.tensor(a.history.losses), torch.tensor(b.history.losses), atol=2e-5, rtol=0)


def test_no_clipping():
    cfg = config(max_grad_norm=None)
    unclipped, clipped = hybrid(), hybrid()
    result = run(unclipped, cfg=cfg)
    run(clipped, cfg=config(max_grad_norm=0.01))
    assert all(record.grad_norm > 0.01 for record in result.history.records)
    assert not same(weights(unclipped), weights(clipped))


@pytest.mark.parametrize("make", [hybrid, dropout_model])
def test_autocast_computes_in_bfloat16_and_keeps_float32_weights(make):
    model = make()
    dtypes = set()
    model.register_forward_hook(lambda m, inputs, output: dtypes.add(output.dtype))
    result = run(model, cfg=config(autocast="bfloat16"))
    assert dtypes == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    plain = run(make())
    assert result.history.losses != plain.history.losses
    assert result.val_loss == pytest.approx(plain.val_loss, abs=0.03)


def test_chunked_ids_and_other_dtypes():
    starts = torch.tensor([160, 0, 320, 80])
    chunks = ChunkedIds(TRAIN, 20, starts)
    result = train(hybrid(), chunks, ChunkedIds(TRAIN, 20, starts + 20), config(), progress=False)
    assert result.final_validation.num_tokens == 4 * 19
    again = train(hybrid(), TRAIN.long(), VAL.int(), config(), progress=False)
    assert again.history.losses == run(hybrid()).history.losses


def test_without_validation_and_with_whole_validations():
    result = train(hybrid(), TRAIN, None, config(), progress=False)
    assert result.finished and result.val_loss is None and result.history.val_steps == []
    rare = run(hybrid(), cfg=config(eval_every=None))
    assert rare.history.val_steps == [] and rare.final_validation.num_tokens == 299
    model = hybrid()
    passes = []
    model.register_forward_hook(lambda m, i, o: passes.append(1) if not m.training else None)
    whole = run(model, cfg=config(eval_every=20, eval_batches=None))
    assert whole.history.val_losses == [whole.val_loss]
    assert len(passes) == 11  # 37 full windows in tens, and a short one: not measured twice


def test_files_of_a_finished_run(tmp_path):
    model = hybrid()
    result = run(model, tmp_path / "a" / "run", corpus_name="some-corpus", corpus_digest="abc", cfg=config())
    folder = tmp_path / "a" / "run"
    assert result.run_dir == folder
    assert steps_on_disk(folder) == ["step-000010", "step-000015", "step-000020"]
    with (folder / "metrics.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert list(lines[0])[:4] == ["step", "loss", "lr", "tokens_per_s"]
    assert [float(line["loss"]) for line in lines] == result.history.losses
    assert [float(line["lr"]) for line in lines] == [config().lr(step) for step in range(20)]
    assert {line["step"]: float(line["val_loss"]) for line in lines if line["val_loss"]} == {
        str(s): v for s, v in zip(result.history.val_steps, result.history.val_losses, strict=True)
    }
    record = json.loads((folder / "run.json").read_text())
    assert record["corpus"] == {"name": "some-corpus", "digest": "abc"}
    assert record["config"] == config().to_dict()
    assert record["identity"]["model"]["layer_pattern"] == ["linear", "full"]
    (session,) = record["sessions"]
    assert session["versions"]["torch"] == torch.__version__
    assert {"command", "git_revision", "started", "device", "threads"} <= session.keys()
    stored = json.loads((folder / "result.json").read_text())
    assert stored["validation"]["nats_per_token"] == result.val_loss
    assert [p.name for p in folder.rglob(".*")] == []


def test_the_model_file_is_plain_safetensors(tmp_path):
    from safetensors.torch import load_file

    model = hybrid()
    run(model, tmp_path / "run")
    other = hybrid(seed=5)
    other.load_state_dict(load_file(tmp_path / "run/checkpoints/step-000020/model.safetensors"))
    assert same(weights(other), weights(model))


def test_a_finished_run_is_loaded_and_not_touched(tmp_path):
    model = dropout_model()
    first = run(model, tmp_path / "run")
    digest = content_digest(tmp_path / "run")
    lines, other = [], dropout_model(seed=9)
    calls = []
    again = run(other, tmp_path / "run", report=lines.append, on_step=calls.append)
    assert again == first
    assert same(weights(other), weights(model))
    assert calls == [] and "finished earlier and loaded (20 steps, validation" in lines[0]
    assert content_digest(tmp_path / "run") == digest


def test_stop_after_and_go_on(tmp_path):
    whole = hybrid()
    expected = run(whole, tmp_path / "whole")
    lines = []
    part = run(hybrid(), tmp_path / "run", stop_after=7, report=lines.append)
    assert (part.steps, part.finished, part.val_loss) == (7, False, None)
    assert part.history.losses == expected.history.losses[:7]
    assert lines == [f"{tmp_path / 'run'}: stopped at step 7 of 20, saved"]
    assert run(hybrid(seed=8), tmp_path / "run", stop_after=3).steps == 10
    model = hybrid(seed=9)
    result = run(model, tmp_path / "run", stop_after=100)
    assert result.finished and result.history.losses == expected.history.losses
    assert same(weights(model), weights(whole))
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert [session["from_step"] for session in record["sessions"]] == [0, 7, 10]


def test_on_step_gets_every_record_and_the_row_is_there_already(tmp_path):
    records = []

    def on_step(record):
        records.append(record)
        assert rows(tmp_path / "run", "step")[-1] == (str(record.step),)

    result = run(hybrid(), tmp_path / "run", on_step=on_step)
    assert tuple(records) == result.history.records


def test_bars_show_loss_and_time_left_in_one_line(capsys):
    train(hybrid(), TRAIN, VAL, config(), progress=True)
    err = capsys.readouterr().err
    assert "20/20" in err and "loss" in err and "tokens/s" in err and "validation" in err
    assert err.count("\n") <= 2


def test_housekeeping_may_change_between_sessions(tmp_path):
    run(hybrid(), tmp_path / "run", stop_after=7)
    cfg = config(checkpoint_every=2, keep_checkpoints=1)
    assert run(hybrid(), tmp_path / "run", cfg=cfg).finished
    assert steps_on_disk(tmp_path / "run") == ["step-000020"]
    assert len(rows(tmp_path / "run", *NUMBERS)) == 20


BAD = [
    ({"model": "model"}, TypeError, "model: expected a torch.nn.Module, got str"),
    ({"train_ids": TRAIN[:CONTEXT]}, ValueError, "train_ids: 8 tokens are too few"),
    ({"train_ids": TRAIN[:0]}, ValueError, "train_ids: there are no tokens"),
    ({"train_ids": TRAIN.float()}, TypeError, "train_ids: expected integer"),
    ({"train_ids": TRAIN.long() - 1}, ValueError, "train_ids: id -1 is outside"),
    ({"train_ids": TRAIN.long() + 1}, ValueError, "train_ids: id 40 is outside the model's vocab"),
    ({"val_ids": TRAIN.long() + 1}, ValueError, "val_ids: id 40 is outside .* another tokenizer"),
    ({"val_ids": TRAIN[:1]}, ValueError, "val_ids: one token leaves none to predict"),
    ({"train_ids": ChunkedIds(TRAIN, 8, torch.tensor([0]))}, ValueError, "no window of context"),
    ({"config": config(context_length=17)}, ValueError, "17 is over the model's max_seq_len of 16"),
    ({"stop_after": 0}, ValueError, "stop_after: expected at least 1"),
]


@pytest.mark.parametrize(("changes", "error", "says"), BAD)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, changes, error, says):
    arguments = {"model": hybrid(), "train_ids": TRAIN, "val_ids": VAL, "config": config()}
    with pytest.raises(error, match=says):
        train(**{**arguments, **changes}, run_dir=tmp_path / "run", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_defaults_are_the_recipe():
    model = hybrid()
    with pytest.raises(ValueError, match="context_length: 128 is over"):
        train(model, TRAIN)
    assert TrainingConfig().tokens_per_step == 2048 and model.vocab_size == VOCAB
