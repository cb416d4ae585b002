"""Where generated things live: downloads, tokenizers, corpora, training runs."""

from __future__ import annotations

import os
from pathlib import Path


def checkout() -> Path | None:
    """Root of the source tree that this package runs from, or None when it is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "datasets.sh").is_file() and (root / "csrc").is_dir() else None


def home() -> Path:
    """Folder of generated things: ``$G2C_HOME``, else the checkout's root, else ``~/.cache/g2c``.

    Raises:
        ValueError: ``G2C_HOME`` names something that is not a folder.
    """
    chosen = os.environ.get("G2C_HOME")
    if chosen:
        path = Path(chosen).expanduser().resolve()
        if path.exists() and not path.is_dir():
            raise ValueError(f"G2C_HOME: {path} is not a folder; name a folder or unset it")
        return path
    return checkout() or Path.home() / ".cache" / "g2c"


def data_folder() -> Path:
    """Raw texts and downloads."""
    return home() / "data"


def tokenizers_folder() -> Path:
    """One folder to a tokenizer."""
    return home() / "artifacts" / "tokenizers"


def corpora_folder() -> Path:
    """One folder to a tokenized corpus."""
    return home() / "artifacts" / "corpora"


def datasets_command(arguments: str) -> str:
    """The command that a user types to make data, as it works where this package runs."""
    start = "./datasets.sh" if checkout() else "python -m g2c.artifacts.prepare"
    return f"{start} {arguments}".rstrip()
