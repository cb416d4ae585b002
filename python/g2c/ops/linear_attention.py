"""Causal linear attention with one decay per head, as functions of tensors."""

from __future__ import annotations

import torch

from g2c.linear_attention.state import RecurrentState

_FORMS = ("auto", "parallel", "chunkwise", "recurrent")


def linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    decay: torch.Tensor | None = None,
    *,
    normalize: bool = True,
    eps: float = 1e-6,
    initial_state: RecurrentState | tuple[torch.Tensor, torch.Tensor] | None = None,
    output_final_state: bool = False,
    form: str = "auto",
) -> tuple[torch.Tensor, RecurrentState | None]:
    """Linear attention over whole sequences (Katharopoulos et al. 2020, arXiv:2006.16236).

        S_t = γ S_{t-1} + φ(k_t) v_tᵀ    z_t = γ z_{t-1} + φ(k_t)
        out_t = φ(q_t)·S_t / (φ(q_t)·z_t + eps)

    Args:
        q, k: (B, T, H, d_k), any strides; float64, float32, bfloat16 or float16.
        v: (B, T, H, d_v), of q's dtype.
        decay: (H,) in [0, 1], any floating dtype; None means 1, never forget.
        normalize: False gives φ(q_t)·S_t alone.
        eps: added to the normaliser.
        initial_state: (S, z) to go on from, S (B, H, d_k, d_v) and z (B, H, d_k), float32 (float64
            for float64 inputs); None means zeros.
        output_final_state: whether to return the state after the last token.
        form: "auto" (chunkwise), "parallel" (T×T), "chunkwise" (linear in T) or "recurrent".

    Returns:
        out (B, T, H, d_v) in q's dtype, and the final state or None. Gradients reach q, k, v,
        decay and the initial state, through both. Second derivatives: form="parallel" only; the
        others raise NotImplementedError.

    Raises:
        ValueError: a wrong shape, device or form, or a decay outside [0, 1] (read on CPU only).
        TypeError: a wrong dtype.
    """
    if form not in _FORMS:
        raise ValueError(f"linear_attention: form must be one of {', '.join(_FORMS)}, got {form!r}")
    S, z = (None, None) if initial_state is None else initial_state
    gamma = _ones_like_heads(q) if decay is None else decay
    op = getattr(torch.ops.g2c, f"linear_attention_{'chunkwise' if form == 'auto' else form}")
    out, S_final, z_final, *_ = op(q, k, v, gamma, S, z, normalize, eps)
    return out, RecurrentState(S_final, z_final) if output_final_state else None


def linear_attention_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: RecurrentState | tuple[torch.Tensor, torch.Tensor],
    decay: torch.Tensor | None = None,
    *,
    normalize: bool = True,
    eps: float = 1e-6,
) -> tuple[torch.Tensor, RecurrentState]:
    """One token of `linear_attention`: constant time and memory, whatever the past.

    Args:
        q, k: (B, H, d_k). v: (B, H, d_v).
        state: (S, z) before the token; it is left as it is.
        decay, normalize, eps: as in `linear_attention`.

    Returns:
        out (B, H, d_v) and the state after the token. Raises as `linear_attention` does.
    """
    gamma = _ones_like_heads(q) if decay is None else decay
    out, S, z = torch.ops.g2c.linear_attention_step(q, k, v, gamma, *state, normalize, eps)
    return out, RecurrentState(S, z)


def _ones_like_heads(q: torch.Tensor) -> torch.Tensor:
    if q.dim() < 2:
        raise ValueError(f"linear_attention: q must have shape (B, T, H, d), got {tuple(q.shape)}")
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.ones(q.shape[-2], dtype=dtype, device=q.device)
