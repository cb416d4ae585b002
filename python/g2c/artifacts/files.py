"""Writing files so that a reader sees the old file or the whole new one, never half of it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_TEMP_SUFFIX = ".g2c-tmp"
_READ_BYTES = 1 << 20


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``path``; on success it is synced and renamed to ``path``.

    The folder is made when missing. If the body raises anything, ``KeyboardInterrupt`` included,
    the temporary file is removed and ``path`` stays as it was.

    Raises:
        FileNotFoundError: the body ended without writing the temporary file.
        OSError: the disk is full or the folder cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temp = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}{_TEMP_SUFFIX}")
    try:
        yield temp
        if not temp.is_file():
            raise FileNotFoundError(f"replacing({target.name!r}): nothing was written to {temp}")
        _sync(temp)
        os.replace(temp, target)
    except BaseException:
        with suppress(FileNotFoundError):
            temp.unlink()
        raise
    with suppress(OSError):  # some file systems cannot sync a folder; the file itself is safe
        _sync(target.parent)


def remove_stale(folder: Path) -> list[Path]:
    """Remove temporary files that a killed process left in ``folder`` or below; return them.

    Files of a process that still runs are left alone.
    """
    removed = []
    for temp in sorted(folder.rglob(f".*{_TEMP_SUFFIX}")) if folder.is_dir() else []:
        pid = temp.name.removesuffix(_TEMP_SUFFIX).rsplit(".", 1)[-1].split("-")[0]
        if pid.isdigit() and _is_running(int(pid)):
            continue
        temp.unlink(missing_ok=True)
        removed.append(temp)
    return removed


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with replacing(path) as temp:
        temp.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sha256_of(path: Path, first_bytes: int | None = None) -> str:
    """Hexadecimal SHA-256 of a file, or of its first ``first_bytes`` bytes."""
    digest = hashlib.sha256()
    left = path.stat().st_size if first_bytes is None else first_bytes
    with path.open("rb") as stream:
        while left > 0 and (block := stream.read(min(_READ_BYTES, left))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_running(pid: int) -> bool:
    if pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
