"""Clocks that wait for the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has finished what it was given; at once on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def median_seconds(
    work: Callable[[], object], device: torch.device, *, repeats: int = 20, warmups: int = 5
) -> float:
    """Median wall-clock seconds of ``work()``.

    The device is synchronised before and after each timed call: kernels run after the call that
    starts them has returned, and a clock that doesn't wait measures only the start.
    """
    seconds = []
    for repeat in range(warmups + repeats):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        if repeat >= warmups:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
