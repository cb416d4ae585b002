"""The optimiser of a run: torch's AdamW, set up from the config."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW

from g2c.pretraining.modules import device_of
from g2c.training.config import TrainingConfig

# Where torch has AdamW as one kernel: over four times as fast as its loop on small models.
_FUSED_DEVICES = ("cpu", "cuda", "mps")


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters for an optimiser: those that decay, then those that don't.

    Parameters of two or more dimensions decay. Biases, norms and the logits of attention decays
    do not: pulling them to zero would change what they mean, not how large the model is.

    Raises:
        ValueError: there is no trainable parameter.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("model: no parameter requires a gradient")
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(model: nn.Module, config: TrainingConfig) -> AdamW:
    """AdamW over `parameter_groups`."""
    return AdamW(
        parameter_groups(model, config.weight_decay),
        lr=config.lr(0),
        betas=config.betas,
        eps=config.eps,
        fused=device_of(model).type in _FUSED_DEVICES,
    )


def parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimiser's parameters, in its own order."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
