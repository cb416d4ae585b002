"""Token and position embeddings."""

from __future__ import annotations

import torch

from g2c import _C
from g2c._module import CppModule, facade

__all__ = ["LearnedPositionalEmbedding", "TokenEmbedding"]


@facade(_C.TokenEmbedding)
class TokenEmbedding(CppModule):
    """A vector per token: `weight` (V, D), uniform in ±1/√D at the start.

    Raises ValueError for a non-positive size.
    """

    def __init__(self, vocab_size: int, embedding_dim: int) -> None:
        super().__init__(vocab_size, embedding_dim)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) or (B,) int64 -> (B, T, D) or (B, D).

        Raises ValueError for ids outside [0, V) (read on CPU only), TypeError for another dtype.
        """
        return self._cpp.forward(ids)


@facade(_C.LearnedPositionalEmbedding)
class LearnedPositionalEmbedding(CppModule):
    """A vector per position: `weight` (max_seq_len, D), uniform in ±1/√D at the start.

    Raises ValueError for a non-positive size.
    """

    def __init__(self, max_seq_len: int, embedding_dim: int) -> None:
        super().__init__(max_seq_len, embedding_dim)

    def forward(self, length: int, start: int = 0) -> torch.Tensor:
        """The vectors of positions start .. start + length - 1, (length, D).

        Raises ValueError where they pass max_seq_len.
        """
        return self._cpp.forward(length, start)
