"""Stacks that mix linear and full attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from g2c import _C
from g2c._C import HybridState
from g2c._module import CppModule, facade
from g2c.transformer import Block

Kind = Literal["full", "linear"]


@facade(_C.Block)
class HybridBlock(Block):
    """Pre-norm residual block whose `attn` is a MultiHeadAttention ("full") or a LinearAttention
    ("linear").

    Raises ValueError for another kind, or unless embedding_dim is a positive multiple of a
    positive num_heads.
    """

    def __init__(
        self, embedding_dim: int, num_heads: int, kind: Kind, *, hidden_dim: int | None = None
    ) -> None:
        CppModule.__init__(self, embedding_dim, num_heads, kind, hidden_dim)


@facade(_C.HybridTransformerLM)
class HybridTransformerLM(CppModule):
    """A language model over a pattern of layers like ["linear", "linear", "linear", "full"].

    Token and learned positional embeddings, pre-norm blocks, a final layer norm; the head is tied
    to the token embedding and adds `head_bias`. Raises ValueError for an empty pattern, an unknown
    kind, sizes that are not positive, or heads that don't divide embedding_dim.
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        layer_pattern: Sequence[str],
        num_heads: int,
        max_seq_len: int,
        *,
        hidden_dim: int | None = None,
    ) -> None:
        super().__init__(vocab_size, embedding_dim, list(layer_pattern), num_heads, max_seq_len, hidden_dim)

    @property
    def vocab_size(self) -> int:
        return self._arguments[0]

    @property
    def embedding_dim(self) -> int:
        return self._arguments[1]

    @property
    def layer_pattern(self) -> list[Kind]:
        return list(self._arguments[2])

    @property
    def num_layers(self) -> int:
        return len(self.layer_pattern)

    @property
    def num_heads(self) -> int:
        return self._arguments[3]

    @property
    def max_seq_len(self) -> int:
        return self._arguments[4]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """(B, T) int64 -> logits (B, T, V).

        Raises ValueError where T passes max_seq_len or an id lies outside the vocabulary.
        """
        return self._cpp.forward(ids)

    def init_state(self, batch_size: int, device: torch.device | str | None = None) -> HybridState:
        """The state before the first token: (S, z) per linear layer, a KV cache per full one."""
        return self._cpp.init_state(batch_size, None if device is None else torch.device(device))

    def forward_step(self, ids: torch.Tensor, state: HybridState) -> tuple[torch.Tensor, HybridState]:
        """One token per row: ids (B,) -> logits (B, V) and the state after it.

        The given state is left as it is and can be gone on from again. Raises ValueError for a
        state of another batch size or layer count, or where the context is full.
        """
        return self._cpp.forward_step(ids, state)
