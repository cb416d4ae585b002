"""Making tokenizers and tokenized corpora from story files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from g2c.artifacts.corpus import text_lengths
from g2c.artifacts.files import replacing, write_json
from g2c.artifacts.home import corpora_folder, tokenizers_folder
from g2c.artifacts.metadata import (
    METADATA_FILE,
    TOKENIZER_FILE,
    TOKENS_FILE,
    VALIDATION_FILE,
    CorpusMetadata,
    TextRecord,
)
from g2c.artifacts.names import VOCAB_SIZE
from g2c.artifacts.text import SEPARATOR, StoryReader, TextSource
from g2c.tokenizer import StoryTokenizer

TRAINING_BYTES = 100_000_000
"""A tokenizer learns from at most this much of a text, so both TinyStories tiers share theirs."""

_BATCH_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class CorpusPlan:
    """What to make a corpus from; fields as in :class:`CorpusMetadata`."""

    name: str
    tokenizer: str
    remake: str
    text: TextSource
    validation: TextSource | None = None
    stamp: str = ""


def build_tokenizer(name: str, source: TextSource) -> StoryTokenizer:
    """Train a tokenizer on ``source`` (at most its first 100 MB) and keep it as ``name``.

    Raises:
        ValueError: the text is too short for 4096 entries, or not UTF-8.
    """
    with _progress(source, f"learning {name}") as progress:
        reader = StoryReader(source, progress.update)
        # Separator lines are part of the text whose bytes are counted, so they are learned from
        # too: token counts then agree with those of a tokenizer trained on the bare file.
        tokenizer = StoryTokenizer.train(_training_texts(reader), VOCAB_SIZE)
    folder = tokenizers_folder() / name
    (folder / METADATA_FILE).unlink(missing_ok=True)
    tokenizer.save(folder / TOKENIZER_FILE)
    record = {
        "name": name,
        "digest": tokenizer.digest,
        "vocab_size": tokenizer.vocab_size,
        "trained_on": source.description,
    }
    write_json(folder / METADATA_FILE, record)
    return tokenizer


def build_corpus(plan: CorpusPlan, tokenizer: StoryTokenizer) -> CorpusMetadata:
    """Tokenize the texts of ``plan``; the record is written last, so a broken run leaves no corpus.

    Raises:
        ValueError: a text is not UTF-8 or holds no story.
        OSError: the disk is full.
    """
    folder = corpora_folder() / plan.name
    (folder / METADATA_FILE).unlink(missing_ok=True)
    text = _tokenize(plan.text, tokenizer, folder / TOKENS_FILE)
    validation = None
    if plan.validation:
        validation = _tokenize(plan.validation, tokenizer, folder / VALIDATION_FILE)
    else:
        (folder / VALIDATION_FILE).unlink(missing_ok=True)
    metadata = CorpusMetadata(
        name=plan.name,
        tokenizer=plan.tokenizer,
        tokenizer_digest=tokenizer.digest,
        vocab_size=tokenizer.vocab_size,
        remake=plan.remake,
        text=text,
        validation=validation,
        stamp=plan.stamp,
    )
    metadata.write(folder)
    return metadata


def _training_texts(reader: StoryReader) -> Iterator[str]:
    taken = 0
    for piece in reader:
        text = piece.text + (SEPARATOR if piece.ends_story else "")
        taken += len(text.encode("utf-8"))
        if taken > TRAINING_BYTES:
            return
        yield text


def _tokenize(source: TextSource, tokenizer: StoryTokenizer, target: Path) -> TextRecord:
    digest = hashlib.sha256()
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    with (
        _progress(source, f"tokenizing {source.path.name}") as progress,
        replacing(target) as temp,
        temp.open("wb") as file,
    ):
        reader = StoryReader(source, progress.update)
        for ids in _batches(reader, tokenizer):
            counts += np.bincount(ids, minlength=len(counts))
            raw = ids.tobytes()
            digest.update(raw)
            file.write(raw)
        if not counts.any():
            raise ValueError(f"{source.path}: holds no story")
    return TextRecord(
        source=source.description,
        source_bytes=reader.source_bytes,
        source_sha256=reader.source_sha256,
        dropped_bytes=reader.dropped_bytes,
        num_stories=int(counts[tokenizer.eos_id]),
        num_bytes=int(counts @ text_lengths(tokenizer)),
        num_tokens=int(counts.sum()),
        tokens_sha256=digest.hexdigest(),
    )


def _batches(reader: StoryReader, tokenizer: StoryTokenizer) -> Iterator[NDArray[np.uint16]]:
    texts: list[str] = []
    ends: list[bool] = []
    characters = 0
    for piece in reader:
        texts.append(piece.text)
        ends.append(piece.ends_story)
        characters += len(piece.text)
        if characters >= _BATCH_CHARACTERS:
            yield _encode(texts, ends, tokenizer)
            texts, ends, characters = [], [], 0
    if texts:
        yield _encode(texts, ends, tokenizer)


def _encode(texts: list[str], ends: list[bool], tokenizer: StoryTokenizer) -> NDArray[np.uint16]:
    flat: list[int] = []
    for ids, ends_story in zip(tokenizer.encode_batch(texts), ends, strict=True):
        flat.extend(ids)
        if ends_story:
            flat.append(tokenizer.eos_id)
    return np.array(flat, dtype="<u2")


def _progress(source: TextSource, label: str) -> tqdm[Any]:
    size = source.path.stat().st_size
    packed = source.path.suffix in (".gz", ".xz")
    if source.first_bytes is not None and not packed:
        size = min(size, source.first_bytes)
    # disable=None: no bar where the output is not a terminal
    return tqdm(total=size, unit="B", unit_scale=True, desc=label, disable=None)
