"""TinyStories: where its files are, and fetching them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from g2c.artifacts.download import RemoteFile, download
from g2c.artifacts.files import replacing
from g2c.artifacts.home import data_folder
from g2c.artifacts.text import TextSource

BASE_URL = "https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main"
TRAIN_FILE = "TinyStories-train.txt"
VALID_FILE = "TinyStories-valid.txt"
TINY_FILE = "TinyStories-train-100MB.txt"

TRAIN_BYTES = 1_924_281_556
VALID_BYTES = 19_447_282
TINY_BYTES = 100_000_000

# The first whole stories of the train file: another text must never be stored under its name.
PREFIX_BYTES = 2_096_346
PREFIX_SHA256 = "ba02237f5747a07d420cb7329f721fdc51b6f5c35a81788b9c4bb871e15ff30a"


def base_url() -> str:
    """Folder of the files: ``$G2C_TINYSTORIES_URL`` (a mirror), else Hugging Face."""
    return (os.environ.get("G2C_TINYSTORIES_URL") or BASE_URL).rstrip("/")


def fetch_tiny() -> TextSource:
    """The first 100,000,000 bytes of the train file; a full file that is present is used instead.

    Raises:
        Unreachable, ValueError, OSError: as :func:`download`.
    """
    source = tiny_source()
    whole = source.path.name == TRAIN_FILE
    download(_train(TRAIN_BYTES if whole else TINY_BYTES), source.path)
    return source


def tiny_source() -> TextSource:
    """The 100 MB tier as it lies on the disk."""
    full = _folder() / TRAIN_FILE
    path = full if _has_size(full, TRAIN_BYTES) else _folder() / TINY_FILE
    return TextSource(path, f"{TRAIN_FILE}, first {TINY_BYTES:,} bytes", TINY_BYTES)


def fetch_full() -> TextSource:
    """The whole train file; goes on from the 100 MB tier where that is present."""
    target = _folder() / TRAIN_FILE
    part = target.with_name(target.name + ".part")
    tiny = _folder() / TINY_FILE
    started = target.exists() or part.exists()
    if not started and _has_size(tiny, TINY_BYTES):
        with replacing(part) as temp:
            shutil.copyfile(tiny, temp)
    download(_train(TRAIN_BYTES), target)
    return TextSource(target, TRAIN_FILE)


def fetch_validation() -> TextSource:
    """The validation file."""
    target = _folder() / VALID_FILE
    download(RemoteFile(f"{base_url()}/{VALID_FILE}", VALID_BYTES, VALID_BYTES), target)
    return TextSource(target, VALID_FILE)


def _train(first_bytes: int) -> RemoteFile:
    url = f"{base_url()}/{TRAIN_FILE}"
    return RemoteFile(url, first_bytes, TRAIN_BYTES, PREFIX_BYTES, PREFIX_SHA256)


def _folder() -> Path:
    return data_folder() / "tinystories"


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
