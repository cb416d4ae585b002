"""Loading tokenizers and tokenized corpora."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from g2c.artifacts.chunks import ChunkedIds
from g2c.artifacts.files import sha256_of
from g2c.artifacts.home import corpora_folder, datasets_command, tokenizers_folder
from g2c.artifacts.metadata import (
    METADATA_FILE,
    TOKENIZER_FILE,
    TOKENS_FILE,
    VALIDATION_FILE,
    CorpusMetadata,
    TextRecord,
)
from g2c.artifacts.names import BEST_FIRST, EMBEDDED, STORY_TOKENIZER, artifact_name, known_corpus
from g2c.artifacts.text import SEPARATOR
from g2c.tokenizer import StoryTokenizer

Ids = torch.Tensor | ChunkedIds
_SCAN_TOKENS = 1 << 22


class CorpusSplit(NamedTuple):
    """Training and validation tokens that share no token of the corpus.

    Both are (n,) uint16 tensors, or both :class:`ChunkedIds`.
    """

    train: Ids
    val: Ids


@dataclass(frozen=True, eq=False)
class TokenizedCorpus:
    """A text as token ids.

    Attributes:
        name: full name, which says what text it holds.
        tokenizer: made the ids.
        ids: (N,) torch.uint16, memory-mapped; slices are views, ``.long()`` makes int64 copies.
        validation: (M,) torch.uint16 of a separate validation text, or None.
        metadata: digests, counts and source.
    """

    name: str
    tokenizer: StoryTokenizer
    ids: torch.Tensor
    validation: torch.Tensor | None
    metadata: CorpusMetadata

    @property
    def num_bytes(self) -> int:
        """Bytes of text that :attr:`ids` stand for; equals ``count_bytes(ids)``."""
        return self.metadata.text.num_bytes

    @property
    def validation_num_bytes(self) -> int | None:
        """Bytes of text that :attr:`validation` stands for, or None."""
        record = self.metadata.validation
        return record.num_bytes if record else None

    @property
    def digest(self) -> str:
        """SHA-256 of the token file: equal only for the same text and tokenizer."""
        return self.metadata.text.tokens_sha256

    def split(
        self, train_fraction: float = 0.9, chunk_tokens: int | None = None, seed: int = 0
    ) -> CorpusSplit:
        """Divide :attr:`ids` into training and validation tokens.

        Without ``chunk_tokens`` the first ``int(N * train_fraction)`` tokens are for training and
        the rest for validation. With it, the text is cut into fixed chunks (the last may be
        shorter), the n chunks are shuffled by ``random.Random(seed)``, and the first
        ``round(n * (1 - train_fraction))`` become validation.

        Raises:
            TypeError: ``chunk_tokens`` or ``seed`` is not an integer.
            ValueError: a fraction outside (0, 1), chunks of fewer than 2 tokens, or one side empty.
        """
        if not 0.0 < train_fraction < 1.0:
            raise ValueError(f"train_fraction: got {train_fraction}, expected between 0 and 1")
        total = self.ids.numel()
        if chunk_tokens is None:
            cut = int(total * train_fraction)
            if not 0 < cut < total:
                raise ValueError(f"train_fraction: {train_fraction} of {total} tokens leaves one side empty")
            return CorpusSplit(self.ids[:cut], self.ids[cut:])
        for argument, value in (("chunk_tokens", chunk_tokens), ("seed", seed)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{argument}: expected an integer, got {type(value).__name__}")
        if chunk_tokens < 2:
            raise ValueError(f"chunk_tokens: got {chunk_tokens}, a window needs at least 2 tokens")
        starts = list(range(0, total, chunk_tokens))
        held_out = round(len(starts) * (1 - train_fraction))
        if not 0 < held_out < len(starts):
            raise ValueError(
                f"chunk_tokens: {total} tokens make {len(starts)} chunks of {chunk_tokens}, and "
                f"train_fraction {train_fraction} leaves one side empty; use smaller chunks"
            )
        random.Random(seed).shuffle(starts)
        chosen = torch.tensor(starts, dtype=torch.int64)
        return CorpusSplit(
            ChunkedIds(self.ids, chunk_tokens, chosen[held_out:]),
            ChunkedIds(self.ids, chunk_tokens, chosen[:held_out]),
        )

    def count_bytes(self, ids: Ids) -> int:
        """Bytes of text that ``ids`` of this corpus stand for, to turn nats into nats per byte.

        An end token counts as the separator line that it replaced (15 bytes).
        """
        counts: NDArray[np.int64] = np.zeros(self.tokenizer.vocab_size, dtype=np.int64)
        parts = ids if isinstance(ids, ChunkedIds) else _parts(ids)
        for part in parts:
            counts += np.bincount(part.numpy(), minlength=len(counts))
        return int(counts @ text_lengths(self.tokenizer))


def text_lengths(tokenizer: StoryTokenizer) -> NDArray[np.int64]:
    """Bytes of corpus text for each id, (vocab_size,): an end token is a whole separator line."""
    lengths = tokenizer.byte_lengths()
    lengths[tokenizer.eos_id] = len(SEPARATOR.encode("utf-8"))
    return lengths


def load_tokenizer_artifact(name: str = STORY_TOKENIZER, *, exact: bool = False) -> StoryTokenizer:
    """Load a tokenizer by name.

    ``"StoryTokenizer"`` is the one of the TinyStories corpora; where only the embedded corpus has
    been made it is the embedded corpus's, unless ``exact`` forbids that.

    Raises:
        FileNotFoundError: not made yet; the message says which command makes it.
        ValueError: damaged; the message says what is wrong and which command mends it.
    """
    if (tokenizers_folder() / artifact_name(name) / TOKENIZER_FILE).is_file():
        return _read_tokenizer(name)
    if name == STORY_TOKENIZER and not exact and EMBEDDED.name in available_corpora():
        return load_tokenizer_artifact(EMBEDDED.tokenizer)
    raise FileNotFoundError(
        f"tokenizer {name} is not there; make it with {datasets_command('--tiny')} "
        f"(without a network: {datasets_command('--embedded')})"
    )


def load_tokenized_corpus_artifact(name: str, *, verify: bool = False) -> TokenizedCorpus:
    """Load a corpus by its name or alias (``storylm-tiny``, ``storylm-full``, ``embedded``).

    ``verify`` also recomputes the digest of the token files, which reads them whole.

    Raises:
        FileNotFoundError: not made yet; the message says which command makes it.
        ValueError: damaged, or its tokenizer has changed; the message says which command mends it.
    """
    full_name = artifact_name(name)
    metadata = read_metadata(full_name)
    folder = corpora_folder() / full_name
    try:
        tokenizer = _tokenizer_of(metadata)
        ids = _map_tokens(folder / TOKENS_FILE, metadata.text, metadata.vocab_size, verify)
        validation = None
        if metadata.validation:
            validation = _map_tokens(
                folder / VALIDATION_FILE, metadata.validation, metadata.vocab_size, verify
            )
    except ValueError as error:
        raise _damaged(full_name, str(error), metadata.remake) from error
    return TokenizedCorpus(full_name, tokenizer, ids, validation, metadata)


def read_metadata(full_name: str) -> CorpusMetadata:
    """Read the record of a corpus without opening its tokens; errors as for loading it."""
    folder = corpora_folder() / full_name
    known = known_corpus(full_name)
    arguments = known.arguments if known else f"--from FILE --name {full_name}"
    try:
        metadata = CorpusMetadata.read(folder)
        if metadata.name != full_name:
            raise ValueError(f"{METADATA_FILE} is that of {metadata.name}")
        return metadata
    except FileNotFoundError:
        present = ", ".join(available_corpora()) or "none"
        raise FileNotFoundError(
            f"corpus {full_name} is not there; make it with {datasets_command(arguments)} "
            f"(present: {present})"
        ) from None
    except ValueError as error:
        raise _damaged(full_name, str(error), arguments) from error


def available_corpora() -> list[str]:
    """Full names of the corpora that have been made, sorted."""
    return sorted(path.parent.name for path in corpora_folder().glob(f"*/{METADATA_FILE}"))


def best_available_corpus() -> str:
    """Full name of the best corpus present: full TinyStories, the 100 MB tier, the embedded one.

    Raises:
        FileNotFoundError: none of them has been made.
    """
    present = available_corpora()
    for corpus in BEST_FIRST:
        if corpus.name in present:
            return corpus.name
    raise FileNotFoundError(
        f"no corpus is there; make one with {datasets_command('--tiny')} "
        f"(without a network: {datasets_command('--embedded')})"
    )


def _tokenizer_of(metadata: CorpusMetadata) -> StoryTokenizer:
    path = tokenizers_folder() / metadata.tokenizer / TOKENIZER_FILE
    if not path.is_file():
        raise ValueError(f"its tokenizer {metadata.tokenizer} is missing")
    tokenizer = StoryTokenizer.load(path)
    if tokenizer.digest != metadata.tokenizer_digest:
        raise ValueError(
            f"its tokenizer {metadata.tokenizer} has changed: digest {tokenizer.digest[:12]}, the "
            f"corpus was made with {metadata.tokenizer_digest[:12]}"
        )
    if tokenizer.vocab_size != metadata.vocab_size:
        raise ValueError(
            f"vocab_size is {metadata.vocab_size}, the tokenizer has {tokenizer.vocab_size} entries"
        )
    return tokenizer


def _map_tokens(path: Path, record: TextRecord, vocab_size: int, verify: bool) -> torch.Tensor:
    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    size = path.stat().st_size
    if size != 2 * record.num_tokens:
        raise ValueError(f"{path.name} has {size} bytes instead of {2 * record.num_tokens}")
    if verify and sha256_of(path) != record.tokens_sha256:
        raise ValueError(f"{path.name} has changed: its digest is not the recorded one")
    # A private mapping: nothing that is done to the tensor reaches the file.
    ids = torch.from_file(str(path), shared=False, size=record.num_tokens, dtype=torch.uint16)
    for part in _parts(ids):
        largest = int(part.numpy().max())
        if largest >= vocab_size:
            raise ValueError(f"{path.name} holds id {largest}, the vocabulary ends at {vocab_size}")
    return ids


def _parts(ids: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, ids.numel(), _SCAN_TOKENS):
        yield ids[start : start + _SCAN_TOKENS]


def _read_tokenizer(name: str) -> StoryTokenizer:
    folder = tokenizers_folder() / name
    known = [corpus for corpus in BEST_FIRST if corpus.tokenizer == name]
    arguments = known[-1].arguments if known else "--from FILE"
    try:
        tokenizer = StoryTokenizer.load(folder / TOKENIZER_FILE)
        record = json.loads((folder / METADATA_FILE).read_bytes())
        if not isinstance(record, dict) or record.get("digest") != tokenizer.digest:
            raise ValueError(f"its digest is not the one that {METADATA_FILE} records")
        return tokenizer
    except (ValueError, FileNotFoundError) as error:
        raise ValueError(
            f"tokenizer {name} is damaged: {error}; mend it with {datasets_command(arguments)}"
        ) from error


def _damaged(name: str, what: str, arguments: str) -> ValueError:
    return ValueError(f"corpus {name} is damaged: {what}; mend it with {datasets_command(arguments)}")
