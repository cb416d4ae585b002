"""The pre-norm transformer with full attention, and its KV cache."""

from __future__ import annotations

import torch

from g2c import _C
from g2c._C import KVCache, LayerKVCache
from g2c._module import CppModule, facade

__all__ = ["Block", "FeedForward", "KVCache", "LayerKVCache", "LayerNorm", "TransformerLM"]


@facade(_C.LayerNorm)
class LayerNorm(CppModule):
    """Layer normalisation of the last dimension, with `weight` and `bias` (D,).

    Raises ValueError for a non-positive size.
    """

    def __init__(self, embedding_dim: int, *, eps: float = 1e-5) -> None:
        super().__init__(embedding_dim, eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self._cpp.forward(x)


@facade(_C.FeedForward)
class FeedForward(CppModule):
    """`fc1` D -> hidden (4 D unless given), exact GELU, `fc2` hidden -> D.

    Raises ValueError for a non-positive size.
    """

    def __init__(self, embedding_dim: int, hidden_dim: int | None = None) -> None:
        super().__init__(embedding_dim, hidden_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., D) -> (..., D)."""
        return self._cpp.forward(x)


@facade(_C.Block)
class Block(CppModule):
    """Pre-norm residual block with full attention: x + attn(ln1(x)), then x + ffn(ln2(x)).

    Raises ValueError unless embedding_dim is a positive multiple of a positive num_heads.
    """

    def __init__(self, embedding_dim: int, num_heads: int, *, hidden_dim: int | None = None) -> None:
        super().__init__(embedding_dim, num_heads, "full", hidden_dim)

    @property
    def kind(self) -> str:
        """ "full" or "linear": what `attn` is."""
        return self._arguments[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self._cpp.forward(x)


@facade(_C.TransformerLM)
class TransformerLM(CppModule):
    """A language model with full attention in every layer; the head is tied to the embedding.

    Raises ValueError for sizes that are not positive or heads that don't divide embedding_dim.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        num_layers: int,
        num_heads: int,
        max_seq_len: int,
        *,
        hidden_dim: int | None = None,
    ) -> None:
        super().__init__(vocab_size, embedding_dim, num_layers, num_heads, max_seq_len, hidden_dim)

    @property
    def vocab_size(self) -> int:
        return self._arguments[0]

    @property
    def embedding_dim(self) -> int:
        return self._arguments[1]

    @property
    def num_layers(self) -> int:
        return self._arguments[2]

    @property
    def num_heads(self) -> int:
        return self._arguments[3]

    @property
    def max_seq_len(self) -> int:
        return self._arguments[4]

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """(B, T) int64 -> logits (B, T, V).

        Raises ValueError where T passes max_seq_len or an id lies outside the vocabulary.
        """
        return self._cpp.forward(token_ids)

    def empty_kv_cache(self) -> KVCache:
        return KVCache.empty(self.num_layers)

    def forward_cached(
        self, token_ids: torch.Tensor, cache: KVCache | None = None
    ) -> tuple[torch.Tensor, KVCache]:
        """One new token per row: token_ids (B, 1) -> logits (B, 1, V) and the cache.

        Without a cache these are the first tokens. A given cache grows by them and is returned;
        `copy.copy` of it keeps the past at no cost. Raises ValueError, with the cache untouched,
        for another shape, batch size, device, dtype or layer count, or where the context is full.
        """
        if cache is None:
            cache = self.empty_kv_cache()
        return self._cpp.forward_cached(token_ids, cache), cache
