"""Softmax attention over an addressable past."""

from __future__ import annotations

import torch

from g2c import _C
from g2c._module import CppModule, facade

__all__ = ["MultiHeadAttention"]


@facade(_C.MultiHeadAttention)
class MultiHeadAttention(CppModule):
    """Multi-head attention, scores scaled by 1/√d (Vaswani et al. 2017, arXiv:1706.03762).

    `q_proj`, `k_proj`, `v_proj`, `out_proj` map D -> D with bias and can be called on their own.
    Raises ValueError unless embedding_dim is a positive multiple of a positive num_heads.
    """

    def __init__(self, embedding_dim: int, num_heads: int, *, causal: bool = True) -> None:
        super().__init__(embedding_dim, num_heads, causal)

    @property
    def embedding_dim(self) -> int:
        return self._arguments[0]

    @property
    def num_heads(self) -> int:
        return self._arguments[1]

    @property
    def head_dim(self) -> int:
        return self.embedding_dim // self.num_heads

    @property
    def causal(self) -> bool:
        return self._arguments[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self._cpp.forward(x)

    def attention_weights(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, H, T, T); row t is a distribution over the tokens it attends to."""
        return self._cpp.attention_weights(x)

    def forward_cached(self, x: torch.Tensor, cache: _C.LayerKVCache) -> tuple[torch.Tensor, _C.LayerKVCache]:
        """One new token that attends to the cache and itself.

        x (B, 1, D) -> out (B, 1, D) and a cache that holds the token too; the given one is left
        as it is. Raises ValueError for more than one token, a cache of another batch size or head
        count, or causal=False.
        """
        return self._cpp.forward_cached(x, cache)
