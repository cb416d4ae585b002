"""Simple children's stories of our own, generated: a corpus that needs no network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from random import Random

from g2c.artifacts.embedded.grammar import Story, plots

SEED = 16
NUM_STORIES = 3400

__all__ = ["NUM_STORIES", "SEED", "stories", "version"]


def stories(count: int = NUM_STORIES, seed: int = SEED) -> Iterator[str]:
    """Tell ``count`` stories, each a few paragraphs of plain text without a separator.

    The same seed gives the same stories. Plots come in shuffled rounds, so all are used alike.

    Raises:
        ValueError: ``count`` is negative.
    """
    if count < 0:
        raise ValueError(f"count: got {count}, expected 0 or more")
    random = Random(seed)
    told: set[str] = set()
    while len(told) < count:
        order = list(plots())
        order.sort(key=lambda _: random.random())
        for plot in order:
            text = Story(plot, random).text
            if len(told) < count and text not in told:
                told.add(text)
                yield text


def version() -> str:
    """Digest of the generator's sources: it changes whenever the stories may change."""
    digest = hashlib.sha256(f"{SEED} {NUM_STORIES}".encode())
    root = files(__package__)
    entries = [*root.iterdir(), *root.joinpath("plots").iterdir()]
    for entry in sorted(entries, key=lambda item: item.name):
        if entry.name.endswith((".py", ".txt")):
            digest.update(entry.read_bytes())
    return digest.hexdigest()[:16]
