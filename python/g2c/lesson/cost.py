"""Exercise 2, beside the comparison: what training costs against T, form by form."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from g2c.attention import MultiHeadAttention
from g2c.lesson.results import Table
from g2c.lesson.timing import median_seconds
from g2c.linear_attention import LinearAttention

FORMS = ("parallel", "chunkwise", "full attention")


@dataclass(frozen=True)
class TrainingCost:
    """Forward and backward of one layer at length ``tokens``: seconds, and peak bytes of the
    tensors made on the way (None where the device can't tell)."""

    form: str
    tokens: int
    seconds: float
    peak_bytes: int | None


def peak_bytes(work: Callable[[], object], device: torch.device) -> int | None:
    """Most bytes that ``work()`` holds in tensors of its own at any moment; None on a device that
    keeps no such count."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    with (
        _without_native_log(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        work()
    assert recorded.profiler is not None and recorded.profiler.kineto_results is not None
    changes = [
        (event.start_ns(), event.nbytes())
        for event in recorded.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        peak = max(peak, held)
    return peak


@contextmanager
def _without_native_log() -> Iterator[None]:
    """Drop what native code writes to stderr: the profiler logs each start and stop there."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def measure(
    lengths: Sequence[int],
    *,
    embedding_dim: int = 128,
    num_heads: int = 4,
    device: torch.device | None = None,
    repeats: int = 3,
) -> list[TrainingCost]:
    """Time and memory of forward and backward, batch size 1, for each form and length."""
    device = device or torch.device("cpu")
    torch.manual_seed(0)
    layers: dict[str, nn.Module] = {
        "parallel": LinearAttention(embedding_dim, num_heads, form="parallel"),
        "chunkwise": LinearAttention(embedding_dim, num_heads, form="chunkwise"),
        "full attention": MultiHeadAttention(embedding_dim, num_heads),
    }
    found = []
    for form, layer in layers.items():
        layer.to(device)
        for tokens in lengths:
            x = torch.randn(1, tokens, embedding_dim, device=device)

            def work(layer: nn.Module = layer, x: torch.Tensor = x) -> None:
                layer.zero_grad()
                layer(x).square().mean().backward()

            seconds = median_seconds(work, device, repeats=repeats, warmups=1)
            layer.zero_grad()
            found.append(TrainingCost(form, tokens, seconds, peak_bytes(work, device)))
    return found


def growth(costs: Sequence[TrainingCost], form: str) -> tuple[float, float | None]:
    """Factors by which time and memory grew over the last doubling-like step, per factor of T.

    2.0 for a doubling of T means linear, 4.0 quadratic; the factors are scaled to a doubling.
    """
    mine = sorted((c for c in costs if c.form == form), key=lambda c: c.tokens)
    if len(mine) < 2:
        raise ValueError(f"growth: needs two lengths of {form!r}, got {len(mine)}")
    shorter, longer = mine[-2:]
    doublings = torch.log2(torch.tensor(longer.tokens / shorter.tokens)).item()
    time = float((longer.seconds / shorter.seconds) ** (1 / doublings))
    if not shorter.peak_bytes or longer.peak_bytes is None:
        return time, None
    return time, float((longer.peak_bytes / shorter.peak_bytes) ** (1 / doublings))


def table(costs: Sequence[TrainingCost]) -> Table:
    """Milliseconds and peak megabytes per form and length."""
    return Table(
        "Forward and backward of one layer, batch size 1",
        ("form", "T (tokens)", "time (ms)", "peak memory (MB)"),
        tuple(
            (
                c.form,
                c.tokens,
                round(c.seconds * 1e3, 2),
                None if c.peak_bytes is None else round(c.peak_bytes / 1e6, 2),
            )
            for c in costs
        ),
    )


def describe_growth(costs: Sequence[TrainingCost]) -> str:
    """What the last doubling of T cost, as a sentence per form."""
    lines = []
    for form in dict.fromkeys(c.form for c in costs):
        time, memory = growth(costs, form)
        held = "memory not measured" if memory is None else f"memory × {memory:.1f}"
        lines.append(f"{form}: at the longest T, doubling T costs time × {time:.1f}, {held}")
    return "\n".join(lines)
