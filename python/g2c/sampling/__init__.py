"""Generating tokens from a language model."""

from g2c.sampling.distribution import (
    apply_repetition_penalty,
    next_token_distribution,
    sample_token,
)
from g2c.sampling.generate import generate, generate_tokens

__all__ = [
    "apply_repetition_penalty",
    "generate",
    "generate_tokens",
    "next_token_distribution",
    "sample_token",
]
