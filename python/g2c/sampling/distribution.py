"""From logits to the next token: penalty, temperature, top-k, top-p, in that order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from g2c.pretraining.arguments import check_count, check_number


@dataclass(frozen=True)
class SamplingOptions:
    """How the next token is chosen; values are checked on construction.

    Attributes:
        temperature: the logits are divided by it; 0 always takes the most likely token.
        top_k: only so many of the most likely tokens stay; None keeps all.
        top_p: of those, only the fewest most likely ones whose probabilities, rescaled to sum to
            1 after top-k, reach this mass; None keeps all.
        repetition_penalty: see `apply_repetition_penalty`; 1 is none.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if check_number("temperature", self.temperature) < 0:
            raise ValueError(f"temperature: expected at least 0, got {self.temperature}")
        if self.top_k is not None:
            check_count("top_k", self.top_k)
        if self.top_p is not None and not 0 < check_number("top_p", self.top_p) <= 1:
            raise ValueError(f"top_p: expected more than 0 and at most 1, got {self.top_p}")
        if check_number("repetition_penalty", self.repetition_penalty) <= 0:
            raise ValueError(f"repetition_penalty: expected more than 0, got {self.repetition_penalty}")


def apply_repetition_penalty(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Make tokens that occurred less likely (penalty over 1): Keskar et al. 2019, arXiv:1909.05858.

    Args:
        logits: (..., V).
        seen: (..., V) bool, true for tokens that occurred; how often doesn't matter.
        penalty: positive logits of seen tokens are divided by it, negative ones multiplied.

    Returns:
        New logits (..., V).
    """
    if penalty == 1.0:
        return logits
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, penalised, logits)


def next_token_distribution(
    logits: torch.Tensor, options: SamplingOptions, seen: torch.Tensor | None = None
) -> torch.Tensor:
    """Probabilities of the next token, (..., V), at least float32.

    Where logits tie at the edge of top-k or top-p, or for temperature 0, lower ids come first.

    Args:
        logits: (..., V).
        options: temperature 0 puts all mass on the most likely token.
        seen: (..., V) bool, tokens that occurred; needed for a repetition penalty.

    Raises:
        ValueError: the logits hold NaN, or leave no token possible.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    peak = logits.amax(dim=-1)
    if not bool(torch.isfinite(peak).all()):
        raise ValueError(f"logits: the largest must be finite, got {peak.flatten().tolist()[:8]}")
    if options.repetition_penalty != 1.0:
        if seen is None:
            raise ValueError("seen: a repetition_penalty needs to know which tokens occurred")
        logits = apply_repetition_penalty(logits, seen, options.repetition_penalty)
    if options.temperature == 0:
        best = logits.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)
    # Shifted by the peak, which changes no probability, so that no temperature overflows.
    temperature = max(options.temperature, torch.finfo(logits.dtype).tiny)
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if options.top_k is None and options.top_p is None:
        return logits.softmax(dim=-1)
    ranked, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    if options.top_k is not None:
        ranked[..., options.top_k :] = -torch.inf
    probabilities = ranked.softmax(dim=-1)
    if options.top_p is not None and options.top_p < 1:
        before = probabilities.cumsum(dim=-1) - probabilities
        surplus = before >= options.top_p
        surplus[..., 0] = False
        probabilities = probabilities.masked_fill(surplus, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.empty_like(probabilities).scatter_(-1, order, probabilities)


def sample_token(probabilities: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draw one token from (V,) or from each row of (B, V): () or (B,) int64.

    The draw happens on the generator's device, so a CPU generator gives the same draws for a model
    anywhere. How much is drawn depends on the shape alone: probabilities that differ by rounding
    leave the generator in the same state.
    """
    device = probabilities.device
    if generator is not None:
        probabilities = probabilities.to(generator.device)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1).to(device)
