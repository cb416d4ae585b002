"""The lesson's tests: eight of what is given, seven of what the learner writes."""

import pytest
import torch

from g2c.attention import MultiHeadAttention
from g2c.linear_attention import (
    HybridBlock,
    HybridTransformerLM,
    LinearAttention,
    feature_map,
)
from g2c.linear_attention.attention import EPS

B, T, D, H = 2, 12, 32, 4


def run_recurrent(attention: LinearAttention, x: torch.Tensor) -> torch.Tensor:
    """(B, T, D) -> (B, T, D), one step per token."""
    state = attention.init_state(x.shape[0])
    outputs = []
    for t in range(x.shape[1]):
        out, state = attention.step(x[:, t], state)
        outputs.append(out)
    return torch.stack(outputs, dim=1)


def test_feature_map_is_positive_and_monotone():
    x = torch.linspace(-20, 20, 401)
    y = feature_map(x)
    assert (y > 0).all()
    assert (y.diff() > 0).all()
    torch.testing.assert_close(y[x >= 0], x[x >= 0] + 1)
    torch.testing.assert_close(y[x < 0], torch.exp(x[x < 0]))


def test_construction_and_decay_range():
    attention = LinearAttention(D, H)
    assert (attention.embedding_dim, attention.num_heads, attention.head_dim) == (D, H, D // H)
    assert attention.decay.shape == (H,)
    assert ((attention.decay > 0) & (attention.decay < 1)).all()
    torch.testing.assert_close(attention.decay, torch.full((H,), 4.6).sigmoid())
    assert len(list(attention.parameters())) == 9
    assert any(p is attention.gamma_logit for p in attention.parameters())


def test_construction_rejects_indivisible_heads():
    with pytest.raises(ValueError, match=r"30.*4"):
        LinearAttention(30, 4)


def test_init_state_shapes():
    S, z = LinearAttention(D, H).init_state(B)
    assert S.shape == (B, H, D // H, D // H)
    assert z.shape == (B, H, D // H)
    assert not S.any() and not z.any()


def test_hybrid_pattern_validation():
    for pattern in ([], ["sparse"], ["linear", "nope"]):
        with pytest.raises(ValueError):
            HybridTransformerLM(50, D, pattern, H, 16)
    with pytest.raises(ValueError):
        HybridBlock(D, H, "nope")


def test_hybrid_block_kinds():
    assert isinstance(HybridBlock(D, H, "full").attn, MultiHeadAttention)
    assert isinstance(HybridBlock(D, H, "linear").attn, LinearAttention)


def test_patterns_are_parameter_matched_but_for_the_decay_scalars():
    def count(pattern):
        return sum(p.numel() for p in HybridTransformerLM(50, D, pattern, H, 16).parameters())

    full = count(["full"] * 4)
    assert count(["linear"] * 4) == full + 4 * H
    assert count(["linear", "linear", "linear", "full"]) == full + 3 * H


def test_hybrid_lm_rejects_over_long_input():
    model = HybridTransformerLM(50, D, ["full"], H, 8)
    with pytest.raises(ValueError, match=r"9.*8"):
        model(torch.zeros(1, 9, dtype=torch.long))


def test_forward_shape():
    out = LinearAttention(D, H)(torch.randn(B, T, D))
    assert out.shape == (B, T, D)
    assert torch.isfinite(out).all()


def test_forward_is_causal():
    attention = LinearAttention(D, H)
    x = torch.randn(B, T, D)
    changed = x.clone()
    changed[:, 7:] = torch.randn(B, T - 7, D)
    before, after = attention(x), attention(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])


def test_forward_matches_undecayed_reference_at_gamma_one():
    attention = LinearAttention(D, H)
    with torch.no_grad():
        attention.gamma_logit.fill_(100.0)
    x = torch.randn(B, T, D)
    q, k, v = (
        attention._split_heads(projection(x))
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    weights = torch.tril(feature_map(q) @ feature_map(k).transpose(-1, -2))
    weights = weights / (weights.sum(-1, keepdim=True) + EPS)
    expected = attention.out_proj(attention._merge_heads(weights @ v))
    torch.testing.assert_close(attention(x), expected, atol=1e-5, rtol=1e-4)


def test_step_shapes_and_state_is_fixed_size():
    attention = LinearAttention(D, H)
    state = attention.init_state(B)
    shapes = [tensor.shape for tensor in state]
    for _ in range(3):
        given = [tensor.clone() for tensor in state]
        out, new_state = attention.step(torch.randn(B, D), state)
        assert out.shape == (B, D)
        assert [tensor.shape for tensor in new_state] == shapes
        assert all(torch.equal(a, b) for a, b in zip(given, state, strict=True))
        state = new_state


# `-k equiv` picks these two by their marker.
@pytest.mark.equivalence
def test_parallel_matches_recurrent():
    attention = LinearAttention(D, H)
    x = torch.randn(B, T, D)
    torch.testing.assert_close(attention(x), run_recurrent(attention, x), atol=1e-4, rtol=1e-4)


@pytest.mark.equivalence
def test_parallel_matches_recurrent_with_strong_decay():
    attention = LinearAttention(D, H)
    with torch.no_grad():
        attention.gamma_logit.copy_(torch.tensor([-4.0, -1.0, 0.0, 2.0]))
    x = torch.randn(B, T, D)
    torch.testing.assert_close(attention(x), run_recurrent(attention, x), atol=1e-4, rtol=1e-4)


def test_hybrid_lm_forward_shape():
    model = HybridTransformerLM(50, D, ["linear", "linear", "linear", "full"], H, 16)
    ids = torch.randint(0, 50, (B, 16))
    logits = model(ids)
    assert logits.shape == (B, 16, 50)
    assert torch.isfinite(logits).all()
    assert model.num_layers == len(model.blocks) == 4
    assert model.layer_pattern == ["linear", "linear", "linear", "full"]
