"""What shapes the distribution of the next token, against plain numpy in float64."""

import itertools
import math

import numpy as np
import pytest
import torch

from g2c.sampling import apply_repetition_penalty, next_token_distribution, sample_token
from g2c.sampling.distribution import SamplingOptions


def by_hand(logits, seen, temperature=1.0, top_k=None, top_p=None, repetition_penalty=1.0):
    """One step after another, over Python lists: penalty, temperature, top-k, top-p."""
    values = [float(x) for x in logits]
    for i, was_seen in enumerate(seen):
        if was_seen:
            values[i] = values[i] / repetition_penalty if values[i] > 0 else values[i] * repetition_penalty
    ranking = sorted(range(len(values)), key=lambda i: (-values[i], i))
    if temperature == 0:
        return np.eye(len(values))[ranking[0]]
    kept = ranking if top_k is None else ranking[:top_k]
    weights = {i: math.exp((values[i] - values[ranking[0]]) / temperature) for i in kept}
    total = sum(weights.values())
    probabilities = np.zeros(len(values))
    mass = 0.0
    for i in kept:
        if top_p is not None and mass >= top_p:
            break
        probabilities[i] = weights[i] / total
        mass += weights[i] / total
    return probabilities / probabilities.sum()


GRID = list(
    itertools.product([0, 0.3, 1.0, 2.5], [None, 1, 3, 500], [None, 0.05, 0.6, 0.95, 1.0], [1.0, 1.7, 0.6])
)


def test_every_combination_equals_the_definition():
    for seed, (temperature, top_k, top_p, penalty) in enumerate(GRID):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(37, generator=generator) * 2
        seen = torch.rand(37, generator=generator) < 0.3
        fields = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "repetition_penalty": penalty,
        }
        got = next_token_distribution(logits, SamplingOptions(**fields), seen)
        expected = by_hand(logits, seen, **fields)
        assert got.dtype == torch.float32
        assert ((got.numpy() > 0) == (expected > 0)).all(), fields
        np.testing.assert_allclose(got.numpy(), expected, rtol=2e-5, atol=1e-9, err_msg=str(fields))


def test_rows_are_independent():
    logits, seen = torch.randn(3, 4, 11), torch.rand(3, 4, 11) < 0.5
    options = SamplingOptions(0.7, 6, 0.8, 1.3)
    whole = next_token_distribution(logits, options, seen)
    for b, t in itertools.product(range(3), range(4)):
        row = next_token_distribution(logits[b, t], options, seen[b, t])
        assert torch.allclose(whole[b, t], row, rtol=1e-6)


def test_the_order_of_the_steps_matters_and_is_the_documented_one():
    # The penalty comes before top-k: token 0 leads, but not once it has been seen.
    logits, seen = torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, False])
    penalised = next_token_distribution(logits, SamplingOptions(1.0, 1, None, 2.0), seen)
    assert penalised.tolist() == [0, 1, 0]
    greedy = next_token_distribution(logits, SamplingOptions(0.0, None, None, 2.0), seen)
    assert greedy.tolist() == [0, 1, 0]
    # Top-p looks at what top-k left, rescaled: 0.5, 0.3, 0.2 become 0.625, 0.375.
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    assert next_token_distribution(logits, SamplingOptions(1.0, 2, 0.6)).tolist() == [1, 0, 0]
    assert (next_token_distribution(logits, SamplingOptions(1.0, None, 0.6)) > 0).tolist() == [
        True,
        True,
        False,
    ]
    # Temperature comes before top-p: hot, no token alone reaches half.
    hot = next_token_distribution(logits, SamplingOptions(10.0, None, 0.45))
    assert (hot > 0).tolist() == [True, True, False]


def test_ties_go_to_the_lower_id():
    logits = torch.zeros(50)
    assert int(next_token_distribution(logits, SamplingOptions(0.0)).argmax()) == 0
    kept = next_token_distribution(logits, SamplingOptions(top_k=3))
    assert kept.nonzero().flatten().tolist() == [0, 1, 2]


def test_penalty_by_sign_and_once_per_token():
    logits = torch.tensor([2.0, -2.0, 0.0, 4.0])
    seen = torch.tensor([True, True, True, False])
    assert apply_repetition_penalty(logits, seen, 2.0).tolist() == [1.0, -4.0, 0.0, 4.0]
    assert apply_repetition_penalty(logits, seen, 1.0) is logits
    assert logits.tolist() == [2.0, -2.0, 0.0, 4.0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3])
def test_tiny_temperatures_are_argmax(temperature):
    logits = torch.tensor([1.0, 5.0, 4.0]) * 100
    assert next_token_distribution(logits, SamplingOptions(temperature)).tolist() == [0, 1, 0]


def test_dtypes():
    logits = torch.randn(9)
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype)
        assert torch.equal(
            next_token_distribution(half, SamplingOptions(0.5)),
            next_token_distribution(half.float(), SamplingOptions(0.5)),
        )
    assert next_token_distribution(logits.double(), SamplingOptions()).dtype == torch.float64


def test_masked_tokens_stay_impossible():
    logits = torch.tensor([-math.inf, 1.0, -math.inf, 0.0])
    for options in (SamplingOptions(), SamplingOptions(2.0, 3, 0.99), SamplingOptions(0.0)):
        got = next_token_distribution(logits, options)
        assert got[0] == got[2] == 0 and math.isclose(float(got.sum()), 1.0, rel_tol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_without_a_distribution(bad, temperature):
    logits = torch.full((5,), -math.inf) if bad is None else torch.tensor([0.0, bad, 1.0])
    with pytest.raises(ValueError, match="logits: the largest must be finite, got"):
        next_token_distribution(logits, SamplingOptions(temperature))


def test_a_penalty_needs_to_know_what_was_seen():
    with pytest.raises(ValueError, match="seen: a repetition_penalty needs to know"):
        next_token_distribution(torch.zeros(3), SamplingOptions(repetition_penalty=2.0))


def test_draws_follow_the_distribution_and_the_generator():
    probabilities = torch.tensor([0.5, 0.0, 0.3, 0.2])
    generator = torch.Generator().manual_seed(0)
    draws = sample_token(probabilities.expand(20_000, 4), generator)
    assert draws.shape == (20_000,) and draws.dtype == torch.int64
    frequencies = torch.bincount(draws, minlength=4) / 20_000
    assert torch.allclose(frequencies, probabilities, atol=0.015) and frequencies[1] == 0
    one = sample_token(probabilities, torch.Generator().manual_seed(3))
    assert one.shape == ()
    assert one == sample_token(probabilities, torch.Generator().manual_seed(3))


def test_rounding_does_not_change_how_much_is_drawn():
    certain, almost = torch.tensor([1.0, 0.0]), torch.tensor([1.0 - 6e-8, 6e-8])
    states = []
    for probabilities in (certain, almost):
        generator = torch.Generator().manual_seed(0)
        assert sample_token(probabilities, generator) == 0
        states.append(generator.get_state())
    assert torch.equal(*states)


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"temperature": -0.1}, ValueError, "temperature: expected at least 0, got -0.1"),
        ({"temperature": math.nan}, ValueError, "temperature: expected a finite number"),
        ({"temperature": "hot"}, TypeError, "temperature: expected a number, got 'hot'"),
        ({"top_k": 0}, ValueError, "top_k: expected at least 1, got 0"),
        ({"top_k": 2.0}, TypeError, "top_k: expected an integer"),
        ({"top_p": 0.0}, ValueError, "top_p: expected more than 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, ValueError, "top_p"),
        ({"repetition_penalty": 0.0}, ValueError, "repetition_penalty: expected more than 0"),
        ({"repetition_penalty": -2}, ValueError, "repetition_penalty"),
    ],
)
def test_bad_options(fields, error, says):
    with pytest.raises(error, match=says):
        SamplingOptions(**fields)
