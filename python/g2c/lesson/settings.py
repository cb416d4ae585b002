"""Settings of one pass through the notebook, read from the environment.

G2C_RUN_DIR   folder for the results; default: runs/linear-attention under g2c's home
G2C_QUICK     1: a trial run with fewer steps, sizes and seeds
G2C_RUN_ALL   1: exercise 6 (StoryLM-5M) too
G2C_CORPUS    name of the corpus to train on; default: the best one present
G2C_DEVICE    torch device of the models; default: cpu
G2C_STEPS     steps of every training run, for tests of the notebook itself
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from g2c.artifacts.home import home

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """Sizes of the exercises, and where their results go.

    Steps count optimiser updates; histories and lengths count tokens.
    """

    run_dir: Path
    quick: bool
    run_all: bool
    corpus: str | None
    device: torch.device
    story_steps: int
    story_5m_steps: int
    recall_steps: int
    recall_seeds: tuple[int, ...]
    decode_histories: tuple[int, ...] = (64, 256, 1024, 4096, 16384)
    cost_lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)
    norm_tokens: int = 512

    @property
    def note(self) -> str:
        """Mark for titles of results that come from training: empty, or "trial run"."""
        return "trial run" if self.quick else ""

    def describe(self) -> str:
        """What this pass will do, for the notebook's first cell."""
        lines = [
            f"results: {self.run_dir}",
            f"device: {self.device.type}, {torch.get_num_threads()} threads, torch {torch.__version__}",
            f"StoryLM-1M: {self.story_steps:,} steps; recall probe: {self.recall_steps:,} steps, "
            f"seeds {', '.join(map(str, self.recall_seeds))}",
        ]
        if self.quick:
            lines.append("This is a TRIAL RUN with few steps: its losses and rates are no results.")
        return "\n".join(lines)

    @staticmethod
    def from_env(environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from ``environment``, by default the process's own.

        Raises ValueError when a variable holds what it can't.
        """
        env = os.environ if environment is None else environment
        run_dir = env.get("G2C_RUN_DIR")
        quick = _flag(env, "G2C_QUICK")
        steps = _steps(env)
        return Settings(
            run_dir=Path(run_dir).expanduser().resolve() if run_dir else home() / "runs" / "linear-attention",
            quick=quick or steps is not None,
            run_all=_flag(env, "G2C_RUN_ALL"),
            corpus=env.get("G2C_CORPUS") or None,
            device=_device(env.get("G2C_DEVICE") or "cpu"),
            story_steps=steps or (100 if quick else 1000),
            story_5m_steps=steps or (50 if quick else 2000),
            recall_steps=steps or (120 if quick else 600),
            recall_seeds=(0,) if quick or steps else (0, 1, 2),
            cost_lengths=(128, 256, 512, 1024) if quick or steps else (128, 256, 512, 1024, 2048, 4096),
        )


def _flag(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"{name}: expected 1 or 0, got {env[name]!r}")


def _steps(env: Mapping[str, str]) -> int | None:
    text = env.get("G2C_STEPS", "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"G2C_STEPS: expected a positive number of steps, got {text!r}")
    return int(text)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"G2C_DEVICE: {name!r} can't be used here: {reason}") from error
    return device
