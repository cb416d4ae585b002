"""Multi-head linear attention with a learned decay per head."""

from __future__ import annotations

from typing import Literal

import torch

from g2c import _C
from g2c._module import CppModule, facade
from g2c.linear_attention.state import RecurrentState

EPS: float = _C.EPS
"""Added to the normaliser φ(q)·z."""

Form = Literal["parallel", "chunkwise", "recurrent"]


def feature_map(x: torch.Tensor) -> torch.Tensor:
    """φ(x) = elu(x) + 1, any shape and floating dtype; positive everywhere, slope 1 at 0.

    Below 0 it is exp(x), accurate where elu(x) + 1 would cancel. Raises TypeError for integers.
    """
    return torch.ops.g2c.feature_map(x)


@facade(_C.LinearAttention)
class LinearAttention(CppModule):
    """Causal linear attention (Katharopoulos et al. 2020, arXiv:2006.16236) with a decay per head.

        S_t = γ S_{t-1} + φ(k_t) v_tᵀ    z_t = γ z_{t-1} + φ(k_t)
        out_t = φ(q_t)·S_t / (φ(q_t)·z_t + EPS)

    `q_proj`, `k_proj`, `v_proj`, `out_proj` map D -> D with bias and can be called on their own;
    `gamma_logit` (H,) starts at 4.6, γ = sigmoid(4.6) ≈ 0.99.

    `form` chooses how `forward` computes it: "chunkwise" (the default, linear in T), "parallel"
    (the T×T reference) or "recurrent" (token by token); all give the same numbers and gradients.

    Raises ValueError unless embedding_dim is a positive multiple of a positive num_heads, and for
    another form.
    """

    def __init__(self, embedding_dim: int, num_heads: int, *, form: Form | None = None) -> None:
        super().__init__(embedding_dim, num_heads, form)

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
    def form(self) -> Form | None:
        return self._arguments[2]

    @property
    def decay(self) -> torch.Tensor:
        """γ = sigmoid(gamma_logit), (H,), at least float32."""
        return self._cpp.decay()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self._cpp.forward(x)

    def step(
        self,
        x_t: torch.Tensor,
        state: RecurrentState | tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, RecurrentState]:
        """One token: x_t (B, D) and the state before it -> out (B, D) and the state after it.

        Without a state it is the first token. The given state is left as it is. Raises ValueError
        for a state of another shape or device.
        """
        return self._cpp.step(x_t, state)

    def init_state(self, batch_size: int, device: torch.device | str | None = None) -> RecurrentState:
        """Zeros: S (B, H, d, d), z (B, H, d), float32 (float64 in a float64 module)."""
        return self._cpp.init_state(batch_size, None if device is None else torch.device(device))

    def _split_heads(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, D) -> (B, H, T, d)."""
        return _C.split_heads(x, self.num_heads)

    def _merge_heads(self, x: torch.Tensor) -> torch.Tensor:
        """(B, H, T, d) -> (B, T, D)."""
        return _C.merge_heads(x)
