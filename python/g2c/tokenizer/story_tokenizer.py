"""StoryTokenizer: byte-level byte-pair encoding, trained with Hugging Face tokenizers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
_SMALLEST_VOCAB = 257
_LARGEST_VOCAB = 65536


class StoryTokenizer:
    """Byte-level BPE: every Unicode text becomes ids below ``vocab_size`` and comes back unchanged.

    Words are split the way GPT-2 does (a space belongs to the word after it), all 256 bytes are in
    the vocabulary, and ``<|endoftext|>`` is one token wherever it stands in a text.

    Make one with :meth:`train` or :meth:`load`.
    """

    def __init__(self, definition: str) -> None:
        """Take the JSON text of a Hugging Face tokenizer.

        Raises:
            ValueError: not such a tokenizer, or one without ``<|endoftext|>``.
        """
        try:
            self._tokenizer = Tokenizer.from_str(definition)
        except Exception as error:  # the library raises bare Exception on malformed input
            raise ValueError(f"tokenizer: not a tokenizer definition ({error})") from error
        eos_id = self._tokenizer.token_to_id(END_OF_TEXT)
        if eos_id is None:
            raise ValueError(f"tokenizer: has no {END_OF_TEXT} token")
        self._definition = definition
        self._eos_id = int(eos_id)
        self._vocab_size = int(self._tokenizer.get_vocab_size())

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int = 4096) -> StoryTokenizer:
        """Learn a vocabulary of exactly ``vocab_size`` entries from ``texts``, taken one by one.

        Raises:
            TypeError: ``texts`` is one string, or ``vocab_size`` is not an integer.
            ValueError: ``vocab_size`` is outside 257..65536, or the texts are too short for it.
        """
        if isinstance(texts, str):
            raise TypeError("texts: expected an iterable of strings, got one string")
        if isinstance(vocab_size, bool) or not isinstance(vocab_size, int):
            raise TypeError(f"vocab_size: expected an integer, got {type(vocab_size).__name__}")
        if not _SMALLEST_VOCAB <= vocab_size <= _LARGEST_VOCAB:
            raise ValueError(
                f"vocab_size: got {vocab_size}, allowed are {_SMALLEST_VOCAB} (the bytes and "
                f"{END_OF_TEXT}) to {_LARGEST_VOCAB} (16-bit ids)"
            )
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        reached = tokenizer.get_vocab_size()
        if reached < vocab_size:
            raise ValueError(
                f"texts: too short for {vocab_size} vocabulary entries, they yield only {reached}; "
                "give a longer text (stories need about 200 kB for 4096) or a smaller vocab_size"
            )
        return cls(tokenizer.to_str())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StoryTokenizer:
        """Read the file that :meth:`save` wrote.

        Raises:
            FileNotFoundError: no such file.
            ValueError: the file is damaged.
        """
        file = Path(path)
        try:
            return cls(file.read_bytes().decode("utf-8"))
        except ValueError as error:
            raise ValueError(f"{file}: damaged ({error})") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer to one JSON file, atomically."""
        from g2c.artifacts.files import replacing  # g2c.artifacts imports this module

        with replacing(path) as temp:
            temp.write_bytes(self._definition.encode("utf-8"))

    @property
    def vocab_size(self) -> int:
        """Number of entries; ids are 0 … vocab_size - 1."""
        return self._vocab_size

    @property
    def eos_id(self) -> int:
        """Id of ``<|endoftext|>``."""
        return self._eos_id

    @property
    def digest(self) -> str:
        """SHA-256 of the file that :meth:`save` writes, in hexadecimal."""
        return hashlib.sha256(self._definition.encode("utf-8")).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``. Nothing is added; ``<|endoftext|>`` in the text becomes :attr:`eos_id`.

        Raises:
            TypeError: not a string.
            ValueError: the text holds half a surrogate pair, which is no Unicode text.
        """
        _check_text(text)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """:meth:`encode` for many texts at once, on all cores."""
        for text in texts:
            _check_text(text)
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(encoding.ids) for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids``: a list, a one-dimensional tensor or an array.

        Ids that end inside a character give U+FFFD for it.

        Raises:
            TypeError: an id is not an integer.
            ValueError: an id is outside 0 … vocab_size - 1.
        """
        values: list[Any] = list(ids.tolist() if hasattr(ids, "tolist") else ids)
        for position, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"ids: expected integers, got {type(value).__name__} at position {position}")
            if not 0 <= value < self._vocab_size:
                raise ValueError(f"ids: {value} at position {position} is outside 0..{self._vocab_size - 1}")
        return str(self._tokenizer.decode([int(v) for v in values], skip_special_tokens=False))

    def byte_lengths(self) -> NDArray[np.int64]:
        """Bytes of UTF-8 text that each id stands for, (vocab_size,) int64."""
        # A byte-level entry has one character for each byte; a special token is plain text.
        special = {int(i) for i in self._tokenizer.get_added_tokens_decoder()}
        lengths = np.zeros(self._vocab_size, dtype=np.int64)
        for token, index in self._tokenizer.get_vocab().items():
            lengths[index] = len(token.encode("utf-8")) if index in special else len(token)
        return lengths

    def __len__(self) -> int:
        return self._vocab_size

    def __repr__(self) -> str:
        return f"StoryTokenizer(vocab_size={self._vocab_size}, digest={self.digest[:12]})"

    def __reduce__(self) -> tuple[type[StoryTokenizer], tuple[str]]:
        return (StoryTokenizer, (self._definition,))


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text: expected a string, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text: half a surrogate pair at position {error.start} is no Unicode text"
        ) from error
