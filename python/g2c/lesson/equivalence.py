"""Exercise 1, first part: the forms of linear attention against one slow oracle."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from g2c.lesson.results import Cell, Table
from g2c.linear_attention import EPS, LinearAttention

Form = Literal["parallel", "chunkwise", "recurrent"]
FORMS: tuple[Form, ...] = ("parallel", "chunkwise", "recurrent")
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Deviation:
    """Largest absolute deviation of one form from the oracle, at one γ."""

    gamma: float
    form: str
    error: float


def oracle(layer: LinearAttention, x: torch.Tensor) -> torch.Tensor:
    """What ``layer`` should answer for x (B, T, D): a token loop in float64, nothing shared.

    Written with plain tensor operations, so that a mistake in the library's own forms can't hide
    in it. γ is the layer's float32 value.
    """
    exact = copy.deepcopy(layer).double()
    batch, tokens, _ = x.shape
    heads, width = layer.num_heads, layer.head_dim

    def project(name: str, y: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = exact.get_submodule(name)(y)
        return projected

    q, k, v = (
        project(name, x.double()).view(batch, tokens, heads, width) for name in ("q_proj", "k_proj", "v_proj")
    )
    q, k = (torch.where(a < 0, torch.exp(a.clamp(max=0)), a + 1) for a in (q, k))
    gamma = layer.decay.double()[None, :, None]
    matrix = torch.zeros(batch, heads, width, width, dtype=torch.float64)
    normaliser = torch.zeros(batch, heads, width, dtype=torch.float64)
    outputs = []
    for t in range(tokens):
        matrix = gamma[..., None] * matrix + k[:, t, :, :, None] * v[:, t, :, None, :]
        normaliser = gamma * normaliser + k[:, t]
        above = torch.einsum("bhd,bhde->bhe", q[:, t], matrix)
        below = (q[:, t] * normaliser).sum(-1, keepdim=True) + EPS
        outputs.append((above / below).flatten(1))
    return project("out_proj", torch.stack(outputs, dim=1)).detach()


def by_steps(layer: LinearAttention, x: torch.Tensor) -> torch.Tensor:
    """`layer.step` over every token of x (B, T, D), the outputs side by side."""
    state = layer.init_state(x.shape[0])
    outputs = []
    for token in x.unbind(1):
        out, state = layer.step(token, state)
        outputs.append(out)
    return torch.stack(outputs, dim=1)


def with_gamma(layer: LinearAttention, gamma: float) -> LinearAttention:
    """A copy of ``layer`` whose heads all decay by ``gamma``, 0 < gamma <= 1."""
    if not 0 < gamma <= 1:
        raise ValueError(f"with_gamma: gamma must be in (0, 1], got {gamma}")
    changed = copy.deepcopy(layer)
    with torch.no_grad():
        # γ = 1 is the logit's limit, +inf.
        logit = torch.logit(torch.tensor(gamma, dtype=torch.float64)).item()
        changed.get_parameter("gamma_logit").fill_(logit)
    return changed


def in_form(layer: LinearAttention, form: Form) -> LinearAttention:
    """A layer with the same parameters that computes `forward` in ``form``."""
    named = LinearAttention(layer.embedding_dim, layer.num_heads, form=form)
    named.load_state_dict(layer.state_dict())
    return named


def deviations(
    gammas: Sequence[float] = (1.0, 0.99, 0.9, 0.5, 0.01),
    *,
    tokens: int = 200,
    embedding_dim: int = 128,
    num_heads: int = 4,
    seed: int = 0,
) -> list[Deviation]:
    """Every form at float32 against the oracle, for each γ; "forward" and "step" are the layer's
    own two methods as a model calls them."""
    torch.manual_seed(seed)
    layer = LinearAttention(embedding_dim, num_heads)
    x = torch.randn(2, tokens, embedding_dim)
    found = []
    with torch.no_grad():
        for gamma in gammas:
            decayed = with_gamma(layer, gamma)
            expected = oracle(decayed, x)
            ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
                "forward": decayed,
                "step": partial(by_steps, decayed),
            }
            ways.update({form: in_form(decayed, form) for form in FORMS})
            for name, way in ways.items():
                error = (way(x).double() - expected).abs().max().item()
                found.append(Deviation(gamma, name, error))
    return found


def table(found: Sequence[Deviation]) -> Table:
    """One row per γ, one column per form; the last column says whether all keep the tolerance."""
    forms = tuple(dict.fromkeys(d.form for d in found))
    errors = {(d.gamma, d.form): d.error for d in found}
    rows: list[tuple[Cell, ...]] = []
    for gamma in dict.fromkeys(d.gamma for d in found):
        row = [errors[gamma, form] for form in forms]
        # A NaN error must count as a failure, hence the comparison this way round.
        rows.append((f"{gamma:g}", *(f"{e:.1e}" for e in row), all(e <= TOLERANCE for e in row)))
    return Table(
        "Largest absolute error against a float64 token loop",
        ("γ", *forms, f"all within {TOLERANCE:g}"),
        tuple(rows),
    )
