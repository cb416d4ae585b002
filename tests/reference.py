"""The only oracle for the maths: linear attention as a float64 loop over tokens."""

import torch


def phi(x):
    return torch.where(x < 0, torch.exp(x.clamp(max=0)), x + 1)


def token_loop(q, k, v, decay, S=None, z=None, *, normalize=True, eps=1e-6):
    """q, k (B, T, H, dk), v (B, T, H, dv), decay (H,) -> out (B, T, H, dv), S, z; all float64."""
    B, T, H, dk = q.shape
    S = q.new_zeros(B, H, dk, v.shape[-1]) if S is None else S
    z = q.new_zeros(B, H, dk) if z is None else z
    outputs = []
    for t in range(T):
        phi_q, phi_k = phi(q[:, t]), phi(k[:, t])
        S = decay[:, None, None] * S + phi_k[..., :, None] * v[:, t, :, None, :]
        z = decay[:, None] * z + phi_k
        out = torch.einsum("bhk,bhkv->bhv", phi_q, S)
        if normalize:
            out = out / (torch.einsum("bhk,bhk->bh", phi_q, z)[..., None] + eps)
        outputs.append(out)
    return (torch.stack(outputs, 1) if outputs else v * q.sum() * k.sum()), S, z


def relative_error(actual, expected, floor=0.0):
    """max|a - b| / max(|b|, floor); 0 for empty tensors, infinite where anything is not finite."""
    if expected.numel() == 0:
        return 0.0
    if not torch.isfinite(actual).all():
        return float("inf")
    difference = (actual.double() - expected.double()).abs().max()
    return (difference / expected.double().abs().max().clamp_min(max(floor, 1e-300))).item()
