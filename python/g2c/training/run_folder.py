"""The folder of a run, which only one process at a time may train in.

run.json       identity, corpus, and a record of every session
metrics.csv    a row for each step
checkpoints/   see `g2c.training.checkpoint`
result.json    written last, when the run is finished
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from g2c.artifacts.files import remove_stale, write_json
from g2c.artifacts.home import checkout
from g2c.training.checkpoint import remove_partial
from g2c.training.identity import device_facts, differences

_FORMAT = 1
_SHOWN_DIFFERENCES = 3


class RunFolder:
    """A run folder, made or found again; use it as a context manager, which locks it.

    Raises, before anything is written:
        ValueError: it holds another run or no run at all, its run.json is damaged, or another
            process trains in it.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.csv"
        self._identity = identity
        self._descriptor: int | None = None
        self._check()

    def begin_session(
        self,
        *,
        from_step: int,
        config: dict[str, Any],
        corpus: dict[str, str | None],
        parameters: int,
        device: torch.device,
    ) -> None:
        """Record in run.json that training starts or goes on."""
        earlier = self._read() or {"sessions": []}
        session = {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "from_step": from_step,
            "command": shlex.join(sys.argv),
            "git_revision": git_revision(),
            "versions": versions(),
            **device_facts(device),
        }
        write_json(
            self.path / "run.json",
            {
                "format": _FORMAT,
                "identity": self._identity,
                "config": config,
                "corpus": corpus,
                "parameters": parameters,
                "sessions": [*earlier["sessions"], session],
            },
        )

    def write_result(self, result: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_json(self.path / "result.json", {"format": _FORMAT, **result})

    def read_result(self) -> dict[str, Any] | None:
        """What `write_result` wrote; None if the run isn't finished or the file is damaged."""
        try:
            result = json.loads((self.path / "result.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return result if isinstance(result, dict) and result.get("format") == _FORMAT else None

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise ValueError(f"run_dir: another process trains in {self.path}") from None
        try:
            # Once more: another process may have come between the first look and the lock.
            self._check()
            remove_stale(self.path)
            remove_partial(self.checkpoints)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _check(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"run_dir: {self.path} is not a folder")
        found = self._read()
        if found is None:
            others = [p.name for p in self.path.glob("*") if not p.name.startswith(".")]
            if others:
                raise ValueError(
                    f"run_dir: {self.path} is not a run, but holds {sorted(others)[0]}; "
                    "choose a new or empty folder"
                )
            return
        lines = differences(found["identity"], self._identity)
        if lines:
            shown = lines[:_SHOWN_DIFFERENCES]
            if len(lines) > len(shown):
                shown.append(f"and {len(lines) - len(shown)} more")
            raise ValueError(
                f"run_dir: {self.path} holds another run: {'; '.join(shown)}. "
                "Choose another folder, or delete that one"
            )

    def _read(self) -> dict[str, Any] | None:
        path = self.path / "run.json"
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise ValueError(f"run_dir: {path} is damaged ({error})") from error
        if (
            not isinstance(content, dict)
            or content.get("format") != _FORMAT
            or not isinstance(content.get("sessions"), list)
            or "identity" not in content
        ):
            raise ValueError(f"run_dir: {path} is not the record of a run")
        return content


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("g2c", "safetensors"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def git_revision() -> str | None:
    """Commit of the checkout that g2c runs from, marked "-dirty" with changes; None without."""
    root = checkout()
    if root is None:
        return None
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--match="],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
