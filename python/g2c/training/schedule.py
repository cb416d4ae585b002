"""Learning rates by step."""

from __future__ import annotations

import math

from g2c.pretraining.arguments import check_count, check_number


def cosine_with_warmup(
    step: int, *, warmup_steps: int, max_steps: int, max_lr: float, min_lr: float = 0.0
) -> float:
    """Learning rate of update number ``step``, counted from 0.

    It rises in a line, ``max_lr * (step + 1) / warmup_steps``, for ``warmup_steps`` updates, falls
    from ``max_lr`` along half a cosine to ``min_lr`` at ``max_steps``, and stays there.

    Raises:
        TypeError: steps that are not integers, rates that are not numbers.
        ValueError: unless 0 <= step, 0 <= warmup_steps <= max_steps, 1 <= max_steps and
            0 <= min_lr <= max_lr.
    """
    check_count("step", step, minimum=0)
    check_schedule(warmup_steps, max_steps, max_lr, min_lr)
    if step >= max_steps:
        return min_lr
    if step < warmup_steps:
        return max_lr * (step + 1) / warmup_steps
    progress = (step - warmup_steps) / (max_steps - warmup_steps)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * progress)) * (max_lr - min_lr)


def check_schedule(warmup_steps: int, max_steps: int, max_lr: float, min_lr: float) -> None:
    """Raise as `cosine_with_warmup` does for what doesn't depend on the step."""
    check_count("max_steps", max_steps)
    check_count("warmup_steps", warmup_steps, minimum=0)
    if warmup_steps > max_steps:
        raise ValueError(f"warmup_steps: expected at most max_steps ({max_steps}), got {warmup_steps}")
    check_number("max_lr", max_lr)
    check_number("min_lr", min_lr)
    if not 0.0 <= min_lr <= max_lr:
        raise ValueError(f"min_lr, max_lr: expected 0 <= min_lr <= max_lr, got {min_lr}, {max_lr}")
