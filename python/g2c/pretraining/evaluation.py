"""The loss of a model over a whole sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import nn

from g2c.artifacts import ChunkedIds
from g2c.pretraining.arguments import check_count, check_integer_ids
from g2c.pretraining.batches import Ids, windows_at
from g2c.pretraining.loss import language_model_loss
from g2c.pretraining.modules import device_of, evaluation_mode


class LossReport(NamedTuple):
    """Mean loss over ``num_tokens`` predicted tokens."""

    nats_per_token: float
    num_tokens: int


@torch.no_grad()
def evaluate(
    model: nn.Module,
    ids: Ids,
    context_length: int,
    batch_size: int,
    *,
    max_batches: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LossReport:
    """Mean loss over ``ids`` cut into windows that do not overlap. Deterministic.

    Windows follow one another, so every token but the first (of each chunk) is predicted exactly
    once, from at most ``context_length`` tokens before it in its window; the last window of a
    sequence or chunk may be shorter. The model is in evaluation mode meanwhile.

    Args:
        model: maps ids (B, T) to logits (B, T, V).
        ids: (n,) integers, or ChunkedIds.
        context_length: T, tokens in a window.
        batch_size: windows to a forward pass.
        max_batches: use only ``max_batches * batch_size`` windows, spread evenly over ``ids``.
        progress: called after each pass with the tokens done and the tokens in all.

    Raises:
        TypeError, ValueError: arguments of another type, a size below 1, or no token to predict.
    """
    check_count("batch_size", batch_size)
    starts, lengths = _windows(ids, context_length)
    if max_batches is not None:
        check_count("max_batches", max_batches)
        starts, lengths = _spread(starts, lengths, max_batches * batch_size)
    device = device_of(model)
    total = int(lengths.sum())
    nats = 0.0
    done = 0
    with evaluation_mode(model):
        for batch, length in _batches(starts, lengths, batch_size):
            x, y = windows_at(ids, batch, length)
            loss = language_model_loss(model, x.to(device), y.to(device))
            nats += float(loss) * x.numel()
            done += x.numel()
            if progress is not None:
                progress(done, total)
    return LossReport(nats / total, total)


def nats_per_byte(nats_per_token: float, num_tokens: int, num_bytes: int) -> float:
    """A loss that can be compared across tokenizers.

    ``num_tokens`` and ``num_bytes`` count the same text: as tokens, and as UTF-8 bytes.

    Raises:
        ValueError: a count below 1.
    """
    check_count("num_tokens", num_tokens)
    check_count("num_bytes", num_bytes)
    return nats_per_token * num_tokens / num_bytes


def _windows(ids: Ids, context_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Starts and input lengths of all windows, (n,) int64 each, in the order of ``ids``."""
    check_count("context_length", context_length)
    if isinstance(ids, ChunkedIds):
        begins, sizes = ids.starts, ids.chunk_lengths()
    else:
        begins = torch.tensor([0])
        sizes = torch.tensor([check_integer_ids("ids", ids, dims=1).numel()])
    predicted = (sizes - 1).clamp(min=0)
    counts = (predicted + context_length - 1) // context_length
    total = int(counts.sum())
    if total == 0:
        raise ValueError(f"ids: {len(ids)} tokens leave none to predict")
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    offsets = (torch.arange(total) - first) * context_length
    left = predicted.repeat_interleave(counts) - offsets
    return begins.repeat_interleave(counts) + offsets, left.clamp(max=context_length)


def _spread(starts: torch.Tensor, lengths: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    total = starts.numel()
    if count >= total:
        return starts, lengths
    chosen = torch.arange(count) * total // count
    return starts[chosen], lengths[chosen]


def _batches(
    starts: torch.Tensor, lengths: torch.Tensor, batch_size: int
) -> Iterator[tuple[torch.Tensor, int]]:
    """Starts of windows of one length at a time, the longest first."""
    for length in sorted(set(lengths.tolist()), reverse=True):
        for batch in torch.split(starts[lengths == length], batch_size):
            yield batch, length
