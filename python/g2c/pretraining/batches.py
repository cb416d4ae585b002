"""Random training windows out of a long sequence of token ids."""

from __future__ import annotations

import torch

from g2c.artifacts import ChunkedIds
from g2c.pretraining.arguments import check_count, check_integer_ids

Ids = torch.Tensor | ChunkedIds
"""Token ids (n,) of any integer dtype, or chunks that no window crosses."""

# Indexing of unsigned integers is not in every torch that g2c supports; of signed ones it is.
_SIGNED_VIEW = {
    torch.uint16: (torch.int16, 0xFFFF),
    torch.uint32: (torch.int32, 0xFFFFFFFF),
    torch.uint64: (torch.int64, None),
}


def get_lm_batch(
    ids: Ids, batch_size: int, context_length: int, *, generator: torch.Generator | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw inputs and next-token targets, uniformly among all windows and with replacement.

    Args:
        ids: (n,) tensor of any integer dtype (memory-mapped ones stay on disk), or ChunkedIds.
        batch_size: B, windows to draw.
        context_length: T; a window is T + 1 neighbouring tokens.
        generator: of the CPU; torch's global one unless given.

    Returns:
        x, y: (B, T) int64 on the device of ``ids``, with y one token ahead of x.

    Raises:
        TypeError: ids or sizes of another type.
        ValueError: a size below 1, or no window of T + 1 tokens in ``ids``.
    """
    starts = sample_starts(ids, batch_size, context_length, generator=generator)
    return windows_at(ids, starts, context_length)


def sample_starts(
    ids: Ids, count: int, context_length: int, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """The random half of `get_lm_batch`: where ``count`` windows begin, (count,) int64."""
    check_count("batch_size", count)
    check_count("context_length", context_length)
    if generator is not None and generator.device.type != "cpu":
        raise ValueError(f"generator: expected one of the CPU, got one of {generator.device}")
    if isinstance(ids, ChunkedIds):
        return ids.sample_starts(count, context_length, generator=generator)
    windows = check_integer_ids("ids", ids, dims=1).numel() - context_length
    if windows < 1:
        raise ValueError(
            f"ids: {ids.numel()} tokens are too few for context_length {context_length}, "
            f"whose windows take {context_length + 1}"
        )
    return torch.randint(windows, (count,), generator=generator)


def windows_at(ids: Ids, starts: torch.Tensor, context_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The windows that begin at ``starts`` (B,), as x and y of (B, T) int64; see `get_lm_batch`.

    Every window must lie within ``ids``.
    """
    tokens = ids.ids if isinstance(ids, ChunkedIds) else ids
    index = starts[:, None] + torch.arange(context_length + 1)
    windows = gather_int64(tokens, index.to(tokens.device))
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def gather_int64(tokens: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """``tokens[index]`` as int64, whatever integer dtype ``tokens`` (n,) has."""
    signed, mask = _SIGNED_VIEW.get(tokens.dtype, (tokens.dtype, None))
    gathered = tokens.view(signed)[index].to(torch.int64)
    return gathered if mask is None else gathered & mask
