"""How a C++ module becomes a `torch.nn.Module`: the only place that knows.

Each public class stands in front of a C++ module and mirrors its tree. Parameters are one tensor
on both sides: the tensor that C++ made becomes a `torch.nn.Parameter` in place. What replaces a
parameter later (`load_state_dict(assign=True)`, `.to(device)`, `torch.func.functional_call`,
parametrizations) is handed to C++ at the next call, so Python always has the last word and keeps
no record of what C++ holds.

Children that C++ calls itself can be called from Python too, but their Python hooks fire only
then; hooks on the module that you call always fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import nn

from g2c import _C

_FACADES: dict[type, type[CppModule]] = {}
_Facade = TypeVar("_Facade", bound="type[CppModule]")


def facade(cpp_type: type) -> Callable[[_Facade], _Facade]:
    """Names the C++ class that the decorated Python class stands in front of."""

    def register(cls: _Facade) -> _Facade:
        cls._cpp_type = cpp_type
        # The last one registered represents the C++ class where it appears as a child.
        _FACADES[cpp_type] = cls
        return cls

    return register


class CppModule(nn.Module):
    """A `torch.nn.Module` whose parameters and computation live in a C++ module."""

    _cpp_type: Any
    _implementation: Any  # the C++ module; None after unpickling or a deep copy, until it is needed
    _arguments: tuple[Any, ...]  # what its constructor takes
    _slots: Any
    _owners: list[tuple[nn.Module, dict[str, nn.Parameter | None]]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self._mirror(self._cpp_type(*arguments))
        device = torch.get_default_device()
        if device.type != "cpu":
            self.to(device)

    @classmethod
    def _wrap(cls, implementation: Any) -> CppModule:
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self._mirror(implementation)
        return self

    def _mirror(self, implementation: Any) -> None:
        """Builds the Python children and parameters for a C++ module."""
        for name, child in _C.children(implementation):
            self.add_module(name, _mirror_child(child))
        self._connect(implementation)
        for path, name, tensor in self._slots.items():
            if not path:
                tensor.__class__ = nn.Parameter
                self.register_parameter(name, cast(nn.Parameter, tensor))

    def _connect(self, implementation: Any) -> None:
        """Makes `implementation` the C++ side of this module, and its children those of ours."""
        self._implementation = implementation
        self._arguments = implementation.arguments
        self._slots = _C.Slots(implementation)
        owners = [self.get_submodule(path) for path, _, _ in self._slots.items()]
        self._owners = [(owner, owner._parameters) for owner in owners]
        _connect_children(self, implementation)

    @property
    def _cpp(self) -> Any:
        """The C++ module, with this module's present parameters in it."""
        if self._implementation is None:
            # Making a module draws random numbers, which a copy must not take from the stream.
            with torch.random.fork_rng(devices=[]):
                self._connect(self._cpp_type(*self._arguments))
        self._slots.bind(self._owners)
        return self._implementation

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_implementation"] = None
        del state["_slots"], state["_owners"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._slots = None
        self._owners = []

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules")
        if modules and name in modules and modules[name] is not value and isinstance(value, nn.Module):
            raise TypeError(
                f"{type(self).__name__}.{name} is computed in C++ and can't be replaced by a "
                f"{type(value).__name__}; replace its parameters, or compose a module of your own"
            )
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        return ", ".join(repr(argument) for argument in self._arguments if argument is not None)


def _mirror_child(implementation: Any) -> nn.Module:
    if isinstance(implementation, _C.ModuleList):
        return nn.ModuleList(_mirror_child(child) for _, child in _C.children(implementation))
    return _FACADES[type(implementation)]._wrap(implementation)


def _connect_children(module: nn.Module, implementation: Any) -> None:
    for name, child in _C.children(implementation):
        mirrored = module._modules[name]
        if isinstance(mirrored, CppModule):
            if mirrored.__dict__.get("_implementation") is not child:
                mirrored._connect(child)
        elif mirrored is not None:
            _connect_children(mirrored, child)


@facade(_C.Linear)
class Linear(CppModule):
    """`torch.nn.Linear` as C++ has it: (..., in_features) -> (..., out_features)."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._cpp.forward(x)
