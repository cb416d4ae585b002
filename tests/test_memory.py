from __future__ import annotations

from typing import Any

import pytest
import torch

from g2c.linear_attention import HybridTransformerLM
from g2c.memory import StackBill, bill, format_bytes, stack_bill
from g2c.transformer import TransformerLM

LESSON: dict[str, Any] = {"tokens": 1_000_000, "embedding_dim": 4096, "num_heads": 32}
SMALL: dict[str, Any] = {"tokens": 10, "embedding_dim": 8, "num_heads": 2}


@pytest.mark.parametrize(
    ("kind", "extra", "expected"),
    [
        ("mha", {}, 16_384_000_000),
        ("gqa", {"kv_heads": 8}, 4_096_000_000),
        ("window", {"window": 4096}, 67_108_864),
        ("linear", {}, 1_056_768),
    ],
)
def test_bill_of_the_lesson(kind: str, extra: dict[str, int], expected: int) -> None:
    assert bill(kind, **LESSON, **extra) == expected


def test_only_linear_and_a_full_window_ignore_further_tokens() -> None:
    twice = LESSON | {"tokens": 2_000_000}
    assert bill("mha", **twice) == 2 * bill("mha", **LESSON)
    assert bill("gqa", kv_heads=8, **twice) == 2 * bill("gqa", kv_heads=8, **LESSON)
    assert bill("window", window=4096, **twice) == bill("window", window=4096, **LESSON)
    assert bill("linear", **twice) == bill("linear", **LESSON)


def test_window_keeps_no_more_than_there_is() -> None:
    assert bill("window", window=4096, **SMALL) == bill("mha", **SMALL)


def test_gqa_with_all_heads_is_mha() -> None:
    assert bill("gqa", kv_heads=2, **SMALL) == bill("mha", **SMALL)


def test_cache_and_state_have_their_own_value_sizes() -> None:
    assert bill("mha", bytes_per_value=4, **SMALL) == 2 * bill("mha", **SMALL)
    assert bill("mha", state_bytes_per_value=4, **SMALL) == bill("mha", **SMALL)
    assert bill("linear", state_bytes_per_value=4, **SMALL) == 2 * bill("linear", **SMALL)
    assert bill("linear", bytes_per_value=4, **SMALL) == bill("linear", **SMALL)


def test_no_tokens_cost_nothing_but_the_fixed_state() -> None:
    none = SMALL | {"tokens": 0}
    assert bill("mha", **none) == 0
    assert bill("linear", **none) == 2 * (2 * 4 * 4 + 2 * 4)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("mqa", {}, "mha, gqa, window, linear.*'mqa'"),
        ("mha", {"tokens": -1}, "tokens must be at least 0, got -1"),
        ("mha", {"embedding_dim": 0}, "embedding_dim must be at least 1, got 0"),
        ("mha", {"num_heads": -2}, "num_heads must be at least 1, got -2"),
        ("mha", {"num_heads": 3}, "got 8 and 3"),
        ("mha", {"bytes_per_value": 0}, "bytes_per_value"),
        ("linear", {"state_bytes_per_value": 0}, "state_bytes_per_value"),
        ("gqa", {}, "needs kv_heads"),
        ("gqa", {"kv_heads": 0}, "kv_heads must be at least 1"),
        ("gqa", {"num_heads": 4, "kv_heads": 3}, "kv_heads must divide num_heads, got 3"),
        ("mha", {"kv_heads": 2}, "kv_heads belongs to 'gqa' only"),
        ("window", {}, "needs window"),
        ("window", {"window": 0}, "window must be at least 1"),
        ("linear", {"window": 4}, "window belongs to 'window' only"),
    ],
)
def test_bad_bills_are_refused(kind: str, change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bill(kind, **(SMALL | change))


@pytest.mark.parametrize("value", [1e6, "10", True, None])
def test_sizes_must_be_ints(value: Any) -> None:
    with pytest.raises(TypeError, match="tokens must be an int"):
        bill("mha", **(SMALL | {"tokens": value}))


def test_stack_names_the_layers_that_grow() -> None:
    hybrid = stack_bill("LLLF", **LESSON)
    assert hybrid == StackBill(
        tokens=1_000_000,
        kinds=("linear", "linear", "linear", "mha"),
        layer_bytes=(1_056_768, 1_056_768, 1_056_768, 16_384_000_000),
        growing=(3,),
    )
    assert hybrid.total == 16_387_170_304
    assert hybrid.growing_bytes == 16_384_000_000
    assert hybrid.fixed_bytes == 3 * 1_056_768

    full = stack_bill(["full"] * 4, **LESSON)
    assert full.total == 65_536_000_000
    assert full.growing == (0, 1, 2, 3)


def test_full_layers_follow_kv_heads() -> None:
    stack = stack_bill(("linear", "full"), kv_heads=8, **LESSON)
    assert stack.kinds == ("linear", "gqa")
    assert stack.layer_bytes == (1_056_768, 4_096_000_000)


def test_a_window_grows_until_it_is_full() -> None:
    assert stack_bill(["window"], window=11, **SMALL).growing == (0,)
    assert stack_bill(["window"], window=10, **SMALL).growing == ()


def test_stack_mixes_every_kind() -> None:
    stack = stack_bill(["mha", "gqa", "window", "linear"], kv_heads=1, window=4, **SMALL)
    assert stack.layer_bytes == (320, 160, 128, 80)
    assert stack.growing == (0, 1)


@pytest.mark.parametrize(
    ("pattern", "extra", "message"),
    [
        ("", {}, "at least one layer"),
        ([], {}, "at least one layer"),
        (["linear", "sparse"], {}, "'sparse'"),
        ("LLX", {}, "'X'"),
        ("LL", {"kv_heads": 2}, "no layer is 'gqa'"),
        ("LF", {"window": 4}, "no layer is 'window'"),
        ("LF", {"num_heads": 3}, "got 8 and 3"),
    ],
)
def test_bad_stacks_are_refused(pattern: str | list[str], extra: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stack_bill(pattern, **(SMALL | extra))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_056_768, "1.06 MB"),
        (67_108_864, "67.1 MB"),
        (4_096_000_000, "4.10 GB"),
        (16_384_000_000, "16.4 GB"),
        (999_600, "1.00 MB"),
        (999_000_000_000, "999 GB"),
        (1_234_000_000_000_000, "1234 TB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text


def _tensor_bytes(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@torch.no_grad()
def test_kv_cache_holds_what_the_bill_says(dtype: torch.dtype) -> None:
    model = TransformerLM(11, 16, 3, 4, 32).to(dtype)
    cache = model.empty_kv_cache()
    for token in range(7):
        _, cache = model.forward_cached(torch.tensor([[token]]), cache)
    expected = stack_bill("FFF", tokens=7, embedding_dim=16, num_heads=4, bytes_per_value=dtype.itemsize)
    held = [_tensor_bytes(layer.keys, layer.values) for layer in cache.layers]
    assert tuple(held) == expected.layer_bytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@torch.no_grad()
def test_hybrid_state_holds_what_the_bill_says(dtype: torch.dtype) -> None:
    model = HybridTransformerLM(11, 16, ["linear", "full", "linear"], 4, 32).to(dtype)
    state = model.init_state(1)
    for token in range(5):
        _, state = model.forward_step(torch.tensor([token]), state)
    held = []
    for layer in state.layers:
        recurrent = isinstance(layer, tuple)
        held.append(_tensor_bytes(*layer) if recurrent else _tensor_bytes(layer.keys, layer.values))
    # (S, z) is kept in at least float32 whatever the model's dtype is.
    expected = stack_bill(
        model.layer_pattern,
        tokens=5,
        embedding_dim=16,
        num_heads=4,
        bytes_per_value=dtype.itemsize,
        state_bytes_per_value=max(dtype.itemsize, 4),
    )
    assert tuple(held) == expected.layer_bytes
    assert expected.growing == (1,)
