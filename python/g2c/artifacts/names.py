"""Names of corpora and of their tokenizers."""

from __future__ import annotations

import re
from dataclasses import dataclass

VOCAB_SIZE = 4096
STORY_TOKENIZER = "StoryTokenizer"


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus whose text is fixed, so that its name says what it holds."""

    name: str
    alias: str
    arguments: str
    tokenizer: str


FULL = KnownCorpus("StoryLM-tinystories-full-v4096", "storylm-full", "", STORY_TOKENIZER)
TINY = KnownCorpus("StoryLM-tinystories-100MB-v4096", "storylm-tiny", "--tiny", STORY_TOKENIZER)
EMBEDDED = KnownCorpus("StoryLM-embedded-v4096", "embedded", "--embedded", f"{STORY_TOKENIZER}-embedded")
BEST_FIRST = (FULL, TINY, EMBEDDED)

_FREE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def known_corpus(name: str) -> KnownCorpus | None:
    """The fixed corpus with this name or alias; capital letters make no difference."""
    for corpus in BEST_FIRST:
        if name.lower() in (corpus.name.lower(), corpus.alias):
            return corpus
    return None


def artifact_name(name: str) -> str:
    """Full name for a name or an alias.

    Raises:
        TypeError: not a string.
        ValueError: not usable as the name of a folder.
    """
    if not isinstance(name, str):
        raise TypeError(f"name: expected a string, got {type(name).__name__}")
    known = known_corpus(name)
    if known:
        return known.name
    if not _FREE_NAME.fullmatch(name):
        raise ValueError(
            f"name: {name!r} is not a corpus name; allowed are letters, digits and . _ - , at most "
            "80 of them, the first one a letter or a digit"
        )
    return name


def free_name(name: str) -> str:
    """Check a name for a text of the user's own.

    Raises:
        ValueError: not usable as a folder's name, or reserved for a fixed corpus.
    """
    known = known_corpus(name)
    if known:
        raise ValueError(f"name: {name!r} is reserved: {known.name} never holds another text")
    return artifact_name(name)


def name_from_file(file_name: str) -> str:
    """``stories.txt.xz`` becomes ``stories``; what a name cannot hold becomes ``-``."""
    stem = re.sub(r"(\.txt)?(\.(gz|xz))?$", "", file_name)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-_")[:80]


def tokenizer_name(corpus: str) -> str:
    """Name of the tokenizer that belongs to the corpus with this full name."""
    known = known_corpus(corpus)
    return known.tokenizer if known else f"{STORY_TOKENIZER}-{corpus}"
