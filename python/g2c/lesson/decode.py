"""Exercise 1, second part: one decode step with a KV cache against one recurrent step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from g2c.attention import MultiHeadAttention
from g2c.lesson.results import Table
from g2c.lesson.timing import median_seconds
from g2c.linear_attention import LinearAttention
from g2c.memory import bill
from g2c.transformer import LayerKVCache

REPEATS = 20
WARMUPS = 5


@dataclass(frozen=True)
class DecodeTime:
    """One step of each kind after ``history`` tokens: seconds, and bytes that the layer holds."""

    history: int
    full_seconds: float
    linear_seconds: float
    full_bytes: int
    linear_bytes: int


def tensor_bytes(*tensors: torch.Tensor) -> int:
    """Bytes of the entries of ``tensors``."""
    return sum(t.numel() * t.element_size() for t in tensors)


@torch.no_grad()
def benchmark(
    histories: Sequence[int],
    *,
    embedding_dim: int = 128,
    num_heads: int = 4,
    device: torch.device | None = None,
) -> list[DecodeTime]:
    """Time one step of a full and of a linear layer at each history length, batch size 1.

    The cache is filled so that the middle one of the timed steps has exactly ``history`` tokens
    before it; projections count on both sides.
    """
    device = device or torch.device("cpu")
    torch.manual_seed(0)
    full = MultiHeadAttention(embedding_dim, num_heads).to(device)
    linear = LinearAttention(embedding_dim, num_heads).to(device)
    return [_at(history, full, linear, device) for history in histories]


def _at(history: int, full: MultiHeadAttention, linear: LinearAttention, device: torch.device) -> DecodeTime:
    x = torch.randn(1, 1, full.embedding_dim, device=device)
    shape = (1, full.num_heads, history, full.head_dim)
    past = LayerKVCache(torch.randn(shape, device=device), torch.randn(shape, device=device))
    held = tensor_bytes(past.keys, past.values)
    before = max(history - WARMUPS - REPEATS // 2, 1)
    cache = LayerKVCache(past.keys[:, :, :before].contiguous(), past.values[:, :, :before].contiguous())

    def full_step() -> None:
        nonlocal cache
        _, cache = full.forward_cached(x, cache)

    state = linear.init_state(1, device)

    def linear_step() -> None:
        nonlocal state
        _, state = linear.step(x[:, 0], state)

    return DecodeTime(
        history,
        median_seconds(full_step, device, repeats=REPEATS, warmups=WARMUPS),
        median_seconds(linear_step, device, repeats=REPEATS, warmups=WARMUPS),
        held,
        tensor_bytes(*state),
    )


def crossover(times: Sequence[DecodeTime]) -> int | None:
    """The shortest measured history from which on the linear step stays faster; None if there is
    none in the measured range."""
    found = None
    for time in sorted(times, key=lambda t: t.history, reverse=True):
        if time.linear_seconds >= time.full_seconds:
            break
        found = time.history
    return found


def describe_crossover(times: Sequence[DecodeTime]) -> str:
    """The crossover as a sentence."""
    shortest, longest = (f(t.history for t in times) for f in (min, max))
    at = crossover(times)
    if at is None:
        return (
            f"Crossover: none in this range ({shortest:,} to {longest:,} tokens): at {longest:,} "
            "tokens the linear step isn't the faster one."
        )
    if at == shortest:
        return (
            f"Crossover: at or below the shortest history measured, {shortest:,} tokens: the "
            f"linear step is faster all the way to {longest:,}."
        )
    return f"Crossover: from {at:,} tokens on the linear step is the faster one, up to {longest:,}."


def time_table(times: Sequence[DecodeTime], device: torch.device) -> Table:
    """Microseconds of one step, and how many times longer the full one takes."""
    return Table(
        f"One decode step of one layer, median of {REPEATS} on {device.type}",
        ("history (tokens)", "full, cached (µs)", "linear (µs)", "full / linear"),
        tuple(
            (
                t.history,
                round(t.full_seconds * 1e6, 1),
                round(t.linear_seconds * 1e6, 1),
                round(t.full_seconds / t.linear_seconds, 2),
            )
            for t in times
        ),
    )


def memory_table(times: Sequence[DecodeTime], *, embedding_dim: int, num_heads: int) -> Table:
    """Bytes held at each history: counted in the layers, and by `g2c.memory.bill`."""
    sizes = {"embedding_dim": embedding_dim, "num_heads": num_heads}
    return Table(
        "What one layer holds while decoding, float32",
        (
            "history (tokens)",
            "KV cache (bytes)",
            "its bill (bytes)",
            "(S, z) (bytes)",
            "its bill (bytes) ",
        ),
        tuple(
            (
                t.history,
                t.full_bytes,
                bill("mha", tokens=t.history, bytes_per_value=4, **sizes),
                t.linear_bytes,
                bill("linear", tokens=t.history, state_bytes_per_value=4, **sizes),
            )
            for t in times
        ),
    )
