"""Token ids in chunks that no training window may cross."""

from __future__ import annotations

from collections.abc import Iterator

import torch


class ChunkedIds:
    """Some of the fixed-size chunks of a token sequence, in a given order.

    Attributes:
        ids: the whole sequence, (N,), never copied (a corpus is memory-mapped).
        chunk_tokens: C, tokens in a chunk; only the last chunk of the sequence may be shorter.
        starts: (n,) int64, where in ``ids`` each chunk of this selection begins.

    A window of context length T is T + 1 neighbouring tokens that lie in one chunk: inputs are its
    first T tokens and targets its last T. A chunk of L tokens has ``max(0, L - T)`` windows. Draw
    uniformly among all of them, which is what :meth:`sample_starts` does.
    """

    def __init__(self, ids: torch.Tensor, chunk_tokens: int, starts: torch.Tensor) -> None:
        if ids.dim() != 1:
            raise ValueError(f"ids: expected one dimension, got shape {tuple(ids.shape)}")
        if chunk_tokens < 1:
            raise ValueError(f"chunk_tokens: got {chunk_tokens}, expected at least 1")
        if starts.dim() != 1 or starts.dtype != torch.int64:
            raise ValueError(
                f"starts: expected int64 of shape (n,), got {starts.dtype} {tuple(starts.shape)}"
            )
        wrong = (starts < 0) | (starts >= ids.numel()) | (starts % chunk_tokens != 0)
        if bool(wrong.any()):
            raise ValueError(
                f"starts: {int(starts[wrong][0])} is not the start of a chunk of {chunk_tokens} "
                f"in {ids.numel()} tokens"
            )
        self.ids = ids
        self.chunk_tokens = chunk_tokens
        self.starts = starts

    def chunk_lengths(self) -> torch.Tensor:
        """(n,) int64, tokens in each chunk of this selection."""
        return (self.ids.numel() - self.starts).clamp(max=self.chunk_tokens)

    def num_windows(self, context_length: int) -> int:
        """How many different windows of this context length there are."""
        return int((self.chunk_lengths() - context_length).clamp(min=0).sum())

    def sample_starts(
        self, count: int, context_length: int, *, generator: torch.Generator | None = None
    ) -> torch.Tensor:
        """Draw ``count`` windows uniformly, with replacement.

        Returns:
            (count,) int64 positions s in :attr:`ids`; the window is ``ids[s : s + T + 1]``.

        Raises:
            ValueError: ``context_length`` is below 1 or no chunk is longer than it.
        """
        if context_length < 1:
            raise ValueError(f"context_length: got {context_length}, expected at least 1")
        windows = (self.chunk_lengths() - context_length).clamp(min=0)
        ends = windows.cumsum(0)
        total = int(ends[-1]) if ends.numel() else 0
        if total == 0:
            raise ValueError(
                f"context_length: {context_length} needs chunks of at least {context_length + 1} "
                f"tokens, these have {self.chunk_tokens} or fewer"
            )
        draw = torch.randint(total, (count,), generator=generator)
        chunk = torch.searchsorted(ends, draw, right=True)
        return self.starts[chunk] + draw - (ends[chunk] - windows[chunk])

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The chunks in order, each a view of :attr:`ids`."""
        for start in self.starts.tolist():
            yield self.ids[start : start + self.chunk_tokens]

    def __len__(self) -> int:
        """Tokens in the selection."""
        return int(self.chunk_lengths().sum())

    def __repr__(self) -> str:
        return f"ChunkedIds({self.starts.numel()} chunks of {self.chunk_tokens}, {len(self)} tokens)"
