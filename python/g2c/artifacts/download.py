"""Downloads that go on where they stopped."""

from __future__ import annotations

import errno
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from g2c.artifacts.files import sha256_of

_BLOCK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Unreachable(ConnectionError):
    """The server cannot be reached, refuses the file, or keeps breaking off."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on a server whose size is known beforehand.

    Attributes:
        first_bytes: how much of it is wanted, from its beginning.
        total_bytes: its whole size on the server.
        prefix_bytes, prefix_sha256: digest of its beginning, checked where the digest is given.
    """

    url: str
    first_bytes: int
    total_bytes: int
    prefix_bytes: int = 0
    prefix_sha256: str = ""


def download(remote: RemoteFile, target: Path, *, attempts: int = 4, retry_seconds: float = 1.0) -> None:
    """Fetch ``remote`` to ``target``. What has come is kept in ``target`` + ``.part`` until whole.

    A later call goes on from the part file; a server that ignores ranges is read from the beginning
    again. A target of the right size and beginning is taken as it is.

    Raises:
        Unreachable: no connection, an HTTP error, or ``attempts`` failures without new bytes.
        ValueError: the server's file has another size or another beginning.
        OSError: the disk is full; the part file stays.
    """
    if target.is_file() and _size(target) == remote.first_bytes:
        if not _begins_right(remote, target):
            raise ValueError(f"{target}: does not begin with the expected text; remove it")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if part.is_file() and part.stat().st_size > remote.first_bytes:
        part.unlink()
    missing = remote.first_bytes - _size(part)
    if (free := _free_bytes(target.parent)) < missing:
        message = f"{target.name} needs {missing:,} bytes, {free:,} are free"
        raise OSError(errno.ENOSPC, message, str(target.parent))
    failures = 0
    label = target.name
    with tqdm(total=remote.first_bytes, unit="B", unit_scale=True, desc=label, disable=None) as progress:
        while (have := _size(part)) < remote.first_bytes:
            progress.n = have
            try:
                _receive(remote, part, progress)
            except urllib.error.HTTPError as error:
                raise Unreachable(f"HTTP {error.code} {error.reason}") from error
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                message = str(reason) or type(error).__name__
            except TimeoutError:
                message = f"no answer in {_TIMEOUT_SECONDS:.0f} s"
            else:
                message = "the connection was closed early"
            if _size(part) >= remote.first_bytes:
                break
            failures = 0 if _size(part) > have else failures + 1
            # Without a single byte there is most likely no network: do not keep a learner waiting.
            if failures >= attempts or (failures and not _size(part)):
                kept = f"; {_size(part):,} bytes are kept for the next run" if _size(part) else ""
                raise Unreachable(message + kept)
            time.sleep(retry_seconds * failures)
    if not _begins_right(remote, part):
        part.unlink()
        raise ValueError(f"{remote.url}: the server's file does not begin with the expected text")
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(part, target)


def _receive(remote: RemoteFile, part: Path, progress: tqdm[Any]) -> None:
    """One connection: append to ``part`` until it is whole or the connection ends."""
    have = _size(part)
    request = urllib.request.Request(
        remote.url,
        headers={
            "Range": f"bytes={have}-{remote.first_bytes - 1}",
            "Accept-Encoding": "identity",
            "User-Agent": "g2c",
        },
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        if response.status == 206:
            _check_range(remote, have, response.headers.get("Content-Range", ""))
        else:
            length = response.headers.get("Content-Length")
            if length is not None and int(length) != remote.total_bytes:
                raise _wrong_size(remote, int(length))
            have = 0
        with part.open("r+b" if have else "wb", buffering=0) as file:
            file.seek(have)
            progress.n = have
            while have < remote.first_bytes:
                block = response.read(min(_BLOCK_BYTES, remote.first_bytes - have))
                if not block:
                    return
                view = memoryview(block)
                while view:  # an unbuffered write may take only a part
                    view = view[file.write(view) :]
                have += len(block)
                progress.update(len(block))


def _check_range(remote: RemoteFile, have: int, header: str) -> None:
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if not match or int(match[1]) != have:
        raise ValueError(f"{remote.url}: asked for bytes from {have}, got Content-Range {header!r}")
    if match[3] != "*" and int(match[3]) != remote.total_bytes:
        raise _wrong_size(remote, int(match[3]))


def _wrong_size(remote: RemoteFile, size: int) -> ValueError:
    return ValueError(f"{remote.url}: the server's file has {size:,} bytes instead of {remote.total_bytes:,}")


def _begins_right(remote: RemoteFile, path: Path) -> bool:
    expected = remote.prefix_sha256
    return not expected or sha256_of(path, remote.prefix_bytes) == expected


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
