"""Exercise 4: what a fixed decay does to the state, and what models have learned about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from g2c.lesson.equivalence import with_gamma
from g2c.lesson.results import Table
from g2c.linear_attention import HybridTransformerLM, LinearAttention

GAMMAS = (1.0, 0.999, 0.99, 0.9, 0.5)


@dataclass(frozen=True)
class NormCurve:
    """Norms of the state after each token under one γ, means over the heads."""

    gamma: float
    matrix: tuple[float, ...]
    normaliser: tuple[float, ...]


@torch.no_grad()
def state_norms(
    gammas: Sequence[float] = GAMMAS,
    *,
    tokens: int = 512,
    embedding_dim: int = 128,
    num_heads: int = 4,
) -> list[NormCurve]:
    """Run one layer over the same random tokens under each γ and follow the norms of S and z."""
    torch.manual_seed(0)
    layer = LinearAttention(embedding_dim, num_heads)
    x = torch.randn(tokens, 1, embedding_dim)
    curves = []
    for gamma in gammas:
        decayed = with_gamma(layer, gamma)
        state = decayed.init_state(1)
        matrix, normaliser = [], []
        for token in x:
            _, state = decayed.step(token, state)
            matrix.append(torch.linalg.matrix_norm(state.S).mean().item())
            normaliser.append(torch.linalg.vector_norm(state.z, dim=-1).mean().item())
        curves.append(NormCurve(gamma, tuple(matrix), tuple(normaliser)))
    return curves


def norm_table(curves: Sequence[NormCurve]) -> Table:
    """Norms at a quarter of the sequence and at its end, and their ratio: 1 means settled."""
    tokens = len(curves[0].matrix)
    quarter = max(tokens // 4, 1)
    return Table(
        "Norm of the state, mean over heads",
        (
            "γ",
            f"‖S‖ after {quarter} tokens",
            f"‖S‖ after {tokens}",
            "ratio",
            f"‖z‖ after {tokens}",
            "limit 1/(1−γ) (tokens)",
        ),
        tuple(
            (
                f"{c.gamma:g}",
                round(c.matrix[quarter - 1], 2),
                round(c.matrix[-1], 2),
                round(c.matrix[-1] / c.matrix[quarter - 1], 2),
                round(c.normaliser[-1], 2),
                "none" if c.gamma == 1 else f"{1 / (1 - c.gamma):.0f}",
            )
            for c in curves
        ),
    )


def half_life(gamma: float) -> float:
    """Tokens after which a weight of γ per token has halved; infinite at γ = 1."""
    if not 0 < gamma <= 1:
        raise ValueError(f"half_life: gamma must be in (0, 1], got {gamma}")
    return math.inf if gamma == 1 else math.log(2) / -math.log(gamma)


@torch.no_grad()
def learned(model: HybridTransformerLM) -> dict[int, list[float]]:
    """γ per head of each linear layer of ``model``, by the layer's number from 1."""
    return {
        number: block.attn.decay.tolist()
        for number, block in enumerate(model.get_submodule("blocks").children(), start=1)
        if isinstance(block.attn, LinearAttention)
    }


def learned_table(models: dict[str, HybridTransformerLM]) -> Table:
    """One row per head: γ, and the half-life that follows from it."""
    rows = []
    for name, model in models.items():
        for layer, gammas in learned(model).items():
            for head, gamma in enumerate(gammas, start=1):
                rows.append((name, layer, head, round(gamma, 5), round(half_life(gamma), 1)))
    return Table(
        "Learned decay",
        ("model", "layer", "head", "γ", "half-life (tokens)"),
        tuple(rows),
    )


def describe_learned(models: dict[str, HybridTransformerLM]) -> str:
    """Range of the learned γ and how far it moved from where it started, per model."""
    start = torch.sigmoid(torch.tensor(4.6)).item()
    lines = []
    for name, model in models.items():
        gammas = [gamma for layer in learned(model).values() for gamma in layer]
        if not gammas:
            lines.append(f"{name}: no linear layer")
            continue
        moved = max(abs(gamma - start) for gamma in gammas)
        lines.append(
            f"{name}: γ from {min(gammas):.4f} to {max(gammas):.4f} (start {start:.4f}, moved by "
            f"at most {moved:.4f}); half-lives {half_life(min(gammas)):.0f} to "
            f"{half_life(max(gammas)):.0f} tokens"
        )
    return "\n".join(lines)
