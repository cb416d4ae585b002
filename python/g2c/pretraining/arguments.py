"""Checks of plain arguments, shared by pretraining, training and sampling."""

from __future__ import annotations

import math

import torch


def check_count(name: str, value: object, *, minimum: int = 1) -> int:
    """``value`` as a whole number of at least ``minimum``.

    Raises:
        TypeError: it is not an integer (bool counts as none).
        ValueError: it is too small.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name}: expected at least {minimum}, got {value}")
    return value


def check_number(name: str, value: object) -> float:
    """``value`` as a finite float; TypeError for what is no number, ValueError for NaN and inf."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value}")
    return float(value)


def check_integer_ids(name: str, ids: object, *, dims: int) -> torch.Tensor:
    """``ids`` as a tensor of integers with ``dims`` dimensions.

    Raises:
        TypeError: it is no tensor, or one of another dtype.
        ValueError: it has another number of dimensions.
    """
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"{name}: expected a tensor of token ids, got {type(ids).__name__}")
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise TypeError(f"{name}: expected integer token ids, got {ids.dtype}")
    if ids.dim() != dims:
        raise ValueError(
            f"{name}: expected {dims} dimension{'s' if dims > 1 else ''}, got shape {tuple(ids.shape)}"
        )
    return ids
