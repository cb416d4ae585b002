import torch

from g2c.attention import MultiHeadAttention
from g2c.linear_attention import LinearAttention, RecurrentState
from tests.reference import relative_error, token_loop


def test_forms_agree_in_numbers_and_gradients():
    x = torch.randn(2, 100, 16)
    modules = [LinearAttention(16, 4, form=form) for form in ("parallel", "chunkwise", "recurrent", None)]
    for module in modules[1:]:
        module.load_state_dict(modules[0].state_dict())
    for module in modules:
        module(x).square().sum().backward()
    for module in modules[1:]:
        torch.testing.assert_close(module(x), modules[0](x))
        for a, b in zip(module.parameters(), modules[0].parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)


def test_forward_is_projections_around_the_loop():
    module = LinearAttention(16, 4)
    with torch.no_grad():
        module.gamma_logit.copy_(torch.tensor([-2.0, 0.0, 2.0, 100.0]))
    x = torch.randn(2, 30, 16)
    q, k, v = (p(x).double().unflatten(-1, (4, 4)) for p in (module.q_proj, module.k_proj, module.v_proj))
    read = token_loop(q, k, v, module.decay.double())[0].flatten(-2).float()
    assert relative_error(module(x), module.out_proj(read)) <= 1e-5


def test_step_takes_any_pair_and_starts_without_one():
    module = LinearAttention(16, 2)
    x = torch.randn(3, 16)
    out, state = module.step(x)
    assert isinstance(state, RecurrentState)
    again, _ = module.step(x, module.init_state(3))
    torch.testing.assert_close(out, again)
    S, z = state
    torch.testing.assert_close(module.step(x, (S, z))[0], module.step(x, state)[0])


def test_heads_split_and_merge():
    module = LinearAttention(16, 2)
    x = torch.randn(2, 5, 16)
    heads = module._split_heads(x)
    assert heads.shape == (2, 2, 5, 8)
    assert torch.equal(heads[:, 1], x[..., 8:])
    assert torch.equal(module._merge_heads(heads), x)


def test_softmax_attention_against_its_weights():
    for causal in (True, False):
        module = MultiHeadAttention(16, 4, causal=causal)
        x = torch.randn(2, 9, 16)
        weights = module.attention_weights(x)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 9))
        assert bool(weights.triu(1).any()) == (not causal)
        values = module.v_proj(x).unflatten(-1, (4, 4)).transpose(1, 2)
        expected = module.out_proj((weights @ values).transpose(1, 2).flatten(-2))
        torch.testing.assert_close(module(x), expected)
