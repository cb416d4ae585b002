"""Checkpoint folders: written whole or not at all, and checked when they are read.

    checkpoints/step-000500/model.safetensors      weights
                            optimizer.safetensors  AdamW's moments, by parameter name
                            state.json             step, random states, config, model, digests

A folder is made under a temporary name and renamed when all of it is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from g2c.artifacts.files import replacing
from g2c.training.tensors import Tensors

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
_FORMAT = 1
_NAME = re.compile(r"step-(\d{6,})")
_PARTIAL = ".partial"


class DamagedCheckpointError(ValueError):
    """A checkpoint folder whose content isn't what was written."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of one checkpoint.

    Attributes:
        step: optimiser updates done.
        model, optimizer: tensors by name.
        state: what the caller keeps beside them, as JSON holds it.
    """

    step: int
    model: Tensors
    optimizer: Tensors
    state: dict[str, Any]


def checkpoint_name(step: int) -> str:
    return f"step-{step:06d}"


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``folder/step-NNNNNN`` and return it. One of the same step is replaced.

    Raises:
        OSError: the disk is full or can't be written; nothing is left of it then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / checkpoint_name(checkpoint.step)
    temp = _hidden(target)
    try:
        temp.mkdir()
        digests = {
            name: _write(temp / name, safetensors.torch.save(tensors, {"format": "pt"}))
            for name, tensors in (
                (MODEL_FILE, checkpoint.model),
                (OPTIMIZER_FILE, checkpoint.optimizer),
            )
        }
        content = {
            "format": _FORMAT,
            "step": checkpoint.step,
            "files": digests,
            "state": checkpoint.state,
        }
        text = json.dumps({**content, "sha256": _digest_of(content)}, indent=1)
        _write(temp / STATE_FILE, text.encode("utf-8"))
        if target.exists():
            # Never an intact one that a run still needs: those are not saved twice.
            os.rename(target, _hidden(target))
        os.rename(temp, target)
    except BaseException:
        shutil.rmtree(temp, ignore_errors=True)
        raise
    _sync(folder)
    remove_partial(folder)
    return target


def load_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint folder and check every byte of it.

    Raises:
        FileNotFoundError: no such folder.
        DamagedCheckpointError: a file is missing, cut off or changed.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        content = json.loads((path / STATE_FILE).read_bytes())
        digest = content.pop("sha256")
        if content["format"] != _FORMAT:
            raise ValueError(f"{STATE_FILE} is of format {content['format']!r}, not {_FORMAT}")
        if digest != _digest_of(content):
            raise ValueError(f"{STATE_FILE} has changed")
        tensors = {}
        for name in (MODEL_FILE, OPTIMIZER_FILE):
            data = (path / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != content["files"][name]:
                raise ValueError(f"{name} is cut off or has changed")
            tensors[name] = safetensors.torch.load(data)
        return Checkpoint(content["step"], tensors[MODEL_FILE], tensors[OPTIMIZER_FILE], content["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: {_reason(error)}") from error


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoint folders under ``folder``, the newest last; partial ones are not among them."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=step_of)


def step_of(path: Path) -> int:
    """Step of a checkpoint folder, by its name."""
    return int(path.name.removeprefix("step-"))


def load_newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """The newest intact checkpoint, or None where there is none at all.

    Damaged ones are passed over, and reported.

    Raises:
        DamagedCheckpointError: there are some, and all are damaged.
    """
    damaged: DamagedCheckpointError | None = None
    for path in reversed(list_checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
        except DamagedCheckpointError as error:
            report(f"{error}; trying the one before it")
            damaged = error
            continue
        return checkpoint
    if damaged is not None:
        raise DamagedCheckpointError(
            f"every checkpoint in {folder} is damaged; delete the run folder to start again"
        ) from damaged
    return None


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints."""
    for path in list_checkpoints(folder)[:-keep]:
        # First out of sight, so that a removal that is cut short leaves no damaged checkpoint.
        doomed = _hidden(path)
        os.rename(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def set_aside_newer(folder: Path, step: int) -> None:
    """Rename checkpoints past ``step``, which were found damaged, so that they count no more."""
    for path in list_checkpoints(folder):
        if step_of(path) > step:
            aside = path.with_name(f"damaged-{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half-written in ``folder``."""
    for path in folder.glob(f".*{_PARTIAL}"):
        shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, data: bytes) -> str:
    with replacing(path) as temp:
        temp.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PARTIAL}")


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(str(error.filename)).name} is missing"
    return str(error)


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot sync a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
