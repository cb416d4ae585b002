"""Learning rates and the config that holds them."""

import math

import pytest

from g2c.training import TrainingConfig, cosine_with_warmup


def lr(step, *, warmup_steps=100, max_steps=1000, max_lr=3e-4, min_lr=3e-5):
    return cosine_with_warmup(
        step, warmup_steps=warmup_steps, max_steps=max_steps, max_lr=max_lr, min_lr=min_lr
    )


def test_warmup_is_a_line_that_starts_above_zero():
    assert lr(0) == pytest.approx(3e-6)
    assert lr(49) == pytest.approx(1.5e-4)
    assert lr(99) == pytest.approx(3e-4)


def test_cosine_from_the_top_through_the_middle_to_the_bottom():
    assert lr(100) == pytest.approx(3e-4)
    assert lr(550) == pytest.approx((3e-4 + 3e-5) / 2)
    assert lr(325) == pytest.approx(3e-5 + 2.7e-4 * (1 + math.cos(math.pi / 4)) / 2)
    assert lr(1000) == lr(5000) == 3e-5
    falling = [lr(step) for step in range(100, 1001)]
    assert falling == sorted(falling, reverse=True)


def test_without_warmup_and_with_nothing_else():
    assert lr(0, warmup_steps=0) == pytest.approx(3e-4)
    assert lr(9, warmup_steps=10, max_steps=10) == pytest.approx(3e-4)
    assert lr(10, warmup_steps=10, max_steps=10) == 3e-5
    assert cosine_with_warmup(10, warmup_steps=0, max_steps=10, max_lr=1.0) == 0.0


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"step": -1}, ValueError, "step: expected at least 0, got -1"),
        ({"step": 1.5}, TypeError, "step: expected an integer, got 1.5"),
        ({"step": 0, "max_steps": 0}, ValueError, "max_steps: expected at least 1"),
        ({"step": 0, "warmup_steps": 1001}, ValueError, r"at most max_steps \(1000\), got 1001"),
        ({"step": 0, "warmup_steps": -1}, ValueError, "warmup_steps"),
        ({"step": 0, "max_lr": 1e-5}, ValueError, "0 <= min_lr <= max_lr, got 3e-05, 1e-05"),
        ({"step": 0, "min_lr": -1e-5}, ValueError, "0 <= min_lr"),
        ({"step": 0, "max_lr": math.nan}, ValueError, "max_lr: expected a finite number"),
        ({"step": 0, "max_lr": "1"}, TypeError, "max_lr: expected a number, got '1'"),
    ],
)
def test_bad_schedules(changes, error, says):
    with pytest.raises(error, match=says):
        lr(**changes)


def test_the_default_config_is_the_recipe_of_storylm_1m():
    config = TrainingConfig()
    assert (config.steps, config.batch_size, config.context_length) == (1000, 16, 128)
    assert (config.max_lr, config.min_lr, config.warmup) == (3e-4, 3e-5, 100)
    assert (config.weight_decay, config.max_grad_norm) == (0.05, 1.0)
    assert [config.lr(step) for step in (0, 99, 1000)] == [lr(0), lr(99), lr(1000)]
    assert TrainingConfig(steps=2000).warmup == 200


def test_a_config_survives_json():
    config = TrainingConfig(betas=(0.8, 0.95), max_grad_norm=None, warmup_steps=7)
    assert TrainingConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="config: no such field: momentum"):
        TrainingConfig.from_dict({"momentum": 0.9})


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"steps": 0}, ValueError, "steps: expected at least 1, got 0"),
        ({"steps": "10"}, TypeError, "steps: expected an integer"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"context_length": -1}, ValueError, "context_length"),
        ({"accumulation": 3}, ValueError, "3 parts do not divide a batch_size of 16"),
        ({"warmup_steps": 1001}, ValueError, "warmup_steps"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay: expected at least 0, got -0.1"),
        ({"betas": (0.9, 1.0)}, ValueError, r"betas: expected two numbers in \[0, 1\)"),
        ({"betas": (0.9,)}, ValueError, "betas: expected two numbers"),
        ({"eps": 0}, ValueError, "eps: expected more than 0"),
        ({"max_grad_norm": 0.0}, ValueError, "max_grad_norm: expected more than 0"),
        ({"autocast": "float16"}, ValueError, 'autocast: expected None or "bfloat16"'),
        ({"seed": -1}, ValueError, "seed"),
        ({"eval_every": 0}, ValueError, "eval_every"),
        ({"final_eval_batches": 0}, ValueError, "final_eval_batches"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every"),
        ({"keep_checkpoints": 0}, ValueError, "keep_checkpoints"),
    ],
)
def test_bad_configs(changes, error, says):
    with pytest.raises(error, match=says):
        TrainingConfig(**changes)
