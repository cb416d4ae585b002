"""What linear attention remembers."""

from __future__ import annotations

from typing import NamedTuple

import torch


class RecurrentState(NamedTuple):
    """The state of linear attention after some tokens; its size doesn't depend on how many.

    S: (B, H, d_k, d_v), the decayed sum of φ(k) vᵀ. z: (B, H, d_k), the decayed sum of φ(k).
    """

    S: torch.Tensor
    z: torch.Tensor
