"""Token by token gives what the whole sequence gives, and a kept state can be gone on from."""

import copy
import pickle

import pytest
import torch

from g2c.attention import MultiHeadAttention
from g2c.linear_attention import HybridTransformerLM
from g2c.transformer import KVCache, LayerKVCache, TransformerLM

PATTERNS = [["linear"] * 2, ["full"] * 2, ["linear", "full", "linear"]]


def make(pattern, max_seq_len=100):
    model = HybridTransformerLM(30, 16, pattern, 2, max_seq_len)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def decode(model, ids, state):
    logits = []
    for t in range(ids.shape[1]):
        step, state = model.forward_step(ids[:, t], state)
        logits.append(step)
    return torch.stack(logits, 1), state


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("grad", [True, False])
def test_forward_step_equals_forward(pattern, grad):
    model, ids = make(pattern), torch.randint(0, 30, (3, 90))
    with torch.set_grad_enabled(grad):
        logits, state = decode(model, ids, model.init_state(3))
        torch.testing.assert_close(logits, model(ids), atol=1e-4, rtol=1e-4)
    assert state.position == 90


def test_gradients_through_steps_equal_those_through_forward():
    model, ids = make(["linear", "full"]), torch.randint(0, 30, (2, 20))
    model(ids).square().mean().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    decode(model, ids, model.init_state(2))[0].square().mean().backward()
    for a, b in zip(model.parameters(), whole, strict=True):
        torch.testing.assert_close(a.grad, b, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "keep", [lambda s: s, copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_going_back_to_a_kept_state_gives_the_same_bits(pattern, keep):
    model = make(pattern)
    first, one, other = (torch.randint(0, 30, (2, n)) for n in (70, 9, 5))
    with torch.no_grad():
        _, state = decode(model, first, model.init_state(2))
        kept = keep(state)
        expected, _ = decode(model, one, state)
        for _ in range(2):
            decode(model, other, kept)
            again, end = decode(model, one, kept)
            assert torch.equal(again, expected)
        assert kept.position == 70 and end.position == 79


@torch.no_grad()
def test_cached_transformer_equals_forward():
    model = TransformerLM(30, 16, 2, 2, 100)
    ids, cache = torch.randint(0, 30, (2, 90)), None
    expected = model(ids)
    for t in range(90):
        logits, cache = model.forward_cached(ids[:, t : t + 1], cache)
        assert logits.shape == (2, 1, 30)
        torch.testing.assert_close(logits[:, 0], expected[:, t], atol=1e-4, rtol=1e-4)
    assert cache.length == 90


@torch.no_grad()
def test_a_failed_cached_call_changes_nothing():
    model = TransformerLM(30, 16, 2, 2, 3)
    cache = model.empty_kv_cache()
    assert cache.length == 0
    for _ in range(3):
        _, same = model.forward_cached(torch.zeros(1, 1, dtype=torch.long), cache)
        assert same is cache
    bad = {
        "full": torch.zeros(1, 1, dtype=torch.long),
        "one token": torch.zeros(1, 2, dtype=torch.long),
        "30": torch.full((1, 1), 30),
    }
    for message, ids in bad.items():
        with pytest.raises(ValueError, match=message):
            model.forward_cached(ids, cache)
    shorter = TransformerLM(30, 16, 2, 2, 9)
    with pytest.raises(ValueError, match="shape"):
        shorter.forward_cached(torch.zeros(2, 1, dtype=torch.long), cache)
    with pytest.raises(ValueError, match="layers"):
        TransformerLM(30, 16, 3, 2, 9).forward_cached(torch.zeros(1, 1, dtype=torch.long), cache)
    with pytest.raises(TypeError, match="keys"):
        shorter.double().forward_cached(torch.zeros(1, 1, dtype=torch.long), cache)
    assert cache.length == 3 and [layer.length for layer in cache.layers] == [3, 3]


def test_layer_cache_appends_and_keeps_copies_apart():
    k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    cache = LayerKVCache()
    assert cache.length == 0 and cache.keys is None
    assert cache.append(k, v) is cache
    snapshot = copy.copy(cache)
    more = torch.randn(1, 2, 1, 4)
    for _ in range(200):
        cache.append(more, more)
    assert cache.length == 203 and snapshot.length == 3
    other = torch.randn(1, 2, 1, 4)
    snapshot.append(other, other)
    twin = copy.copy(snapshot)
    snapshot.append(other, other)
    twin.append(more, more)
    assert torch.equal(snapshot.keys, torch.cat([k, other, other], 2))
    assert torch.equal(twin.keys, torch.cat([k, other, more], 2))
    assert torch.equal(cache.values, torch.cat([v, *[more] * 200], 2))
    assert torch.equal(LayerKVCache(k, v).append(more, more).keys, torch.cat([k, more], 2))


def test_layer_cache_refuses_what_does_not_fit():
    k = torch.randn(1, 2, 3, 4)
    for keys, values in ((k, None), (k[0], k[0]), (k, k[:, :, :2])):
        with pytest.raises(ValueError, match="keys and values"):
            LayerKVCache(keys, values)
    cache = LayerKVCache(k, k)
    with pytest.raises(ValueError, match="keys"):
        cache.append(torch.randn(2, 2, 1, 4), torch.randn(2, 2, 1, 4))
    with pytest.raises(TypeError, match="Double"):
        cache.append(k.double(), k.double())
    with pytest.raises(ValueError, match="num_layers"):
        KVCache.empty(0)
    assert cache.length == 3


def test_attention_forward_cached():
    module = MultiHeadAttention(16, 2)
    x, cache, outputs = torch.randn(2, 6, 16), LayerKVCache(), []
    for t in range(6):
        out, cache = module.forward_cached(x[:, t : t + 1], cache)
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, 1), module(x))
    with pytest.raises(ValueError, match="one token"):
        module.forward_cached(x, cache)
    with pytest.raises(ValueError, match="causal"):
        MultiHeadAttention(16, 2, causal=False).forward_cached(x[:, :1], LayerKVCache())


def test_states_that_do_not_fit_are_refused():
    model = make(["linear", "full"], max_seq_len=2)
    ids = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="batch size 3"):
        model.forward_step(ids, model.init_state(3))
    with pytest.raises(ValueError, match="1 layers"):
        model.forward_step(ids, make(["linear"]).init_state(2))
    with pytest.raises(ValueError, match="full layer"):
        model.forward_step(ids, make(["linear", "linear"]).init_state(2))
    with pytest.raises(ValueError, match="context is full"):
        decode(model, torch.zeros(2, 3, dtype=torch.long), model.init_state(2))
    with pytest.raises(ValueError, match="batch_size"):
        model.init_state(-1)
