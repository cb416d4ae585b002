"""Small facts about a module that evaluation, training and sampling need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def device_of(model: nn.Module) -> torch.device:
    """Device of the first parameter or buffer; the CPU for a module without any."""
    for tensor in itertools.chain[torch.Tensor](model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """``model.eval()`` for the body; then every submodule gets back the mode that it had."""
    in_training = [module for module in model.modules() if module.training]
    if in_training:
        model.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True
