"""The loss of a language model, in nats per token."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from g2c.pretraining.arguments import check_integer_ids


def lm_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of the targets, in nats per token.

    Args:
        logits: (B, T, V), floating; half-precision ones are widened to float32 first.
        targets: (B, T), integers in [0, V).

    Returns:
        A scalar, at least float32.

    Raises:
        TypeError: targets that are no integers, or logits that are no floats.
        ValueError: shapes or devices that do not match, no token at all, or (checked on the CPU) a
            target outside the vocabulary.
    """
    check_integer_ids("targets", targets, dims=2)
    if not logits.is_floating_point():
        raise TypeError(f"logits: expected a floating dtype, got {logits.dtype}")
    if logits.dim() != 3 or logits.shape[:2] != targets.shape:
        raise ValueError(
            f"logits: expected (B, T, V) for targets of {tuple(targets.shape)}, got {tuple(logits.shape)}"
        )
    if logits.device != targets.device:
        raise ValueError(f"targets: on {targets.device}, but the logits are on {logits.device}")
    if targets.numel() == 0:
        raise ValueError(f"targets: no token to average over, got shape {tuple(targets.shape)}")
    targets = targets.to(torch.int64)
    # Elsewhere the check would wait for the device at every step.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_range(targets, logits.shape[-1])
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def language_model_loss(model: nn.Module, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean nats per token of ``model`` on ids and targets of (B, T): what training minimises.

    ``model`` is any module that maps ids (B, T) to logits (B, T, V). Raises as the model and
    `lm_cross_entropy` do.
    """
    return lm_cross_entropy(model(ids), targets)


def _check_range(targets: torch.Tensor, vocab_size: int) -> None:
    low, high = (int(bound) for bound in targets.aminmax())
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise ValueError(f"targets: id {wrong} is outside the vocabulary of {vocab_size}")
