"""A model and its optimiser as flat, named tensors, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from g2c.training.optimizer import parameter_names

Tensors = dict[str, torch.Tensor]


def model_tensors(model: nn.Module) -> Tensors:
    """The state dict on the CPU, with a tied parameter under the first of its names only."""
    unique: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        unique.setdefault(id(tensor), name)
    state = model.state_dict()
    return {name: _stored(state[name]) for name in unique.values()}


def load_model_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Put what `model_tensors` gave into ``model``.

    Raises:
        ValueError: names, shapes or dtypes differ from the model's; the model is then unchanged.
    """
    expected = {name: _kind(tensor) for name, tensor in model_tensors(model).items()}
    found = {name: _kind(tensor) for name, tensor in tensors.items()}
    if found != expected:
        wrong = sorted(name for name, _ in set(found.items()) ^ set(expected.items()))
        raise ValueError(
            f"checkpoint: {wrong[0]} is {found.get(wrong[0], 'missing')}, "
            f"the model's is {expected.get(wrong[0], 'missing')}"
        )
    model.load_state_dict(tensors, strict=False)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """The optimiser's state on the CPU, as "<parameter>.<state>"; empty before the first update."""
    names = parameter_names(model, optimizer)
    return {
        f"{names[index]}.{key}": _stored(torch.as_tensor(value))
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Put what `optimizer_tensors` gave into ``optimizer``, whose groups keep their settings.

    Raises:
        ValueError: a tensor for a parameter that the optimiser doesn't have.
    """
    index_of = {name: index for index, name in enumerate(parameter_names(model, optimizer))}
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        parameter, _, key = name.rpartition(".")
        if parameter not in index_of:
            raise ValueError(f"checkpoint: optimiser state of {parameter}, which isn't trained")
        state.setdefault(index_of[parameter], {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _stored(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
