"""What a tokenized corpus records about itself."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from g2c.artifacts.files import write_json

METADATA_FILE = "metadata.json"
TOKENS_FILE = "tokens.bin"
VALIDATION_FILE = "validation.bin"
TOKENIZER_FILE = "tokenizer.json"
_FORMAT = 1
_Record = TypeVar("_Record", "TextRecord", "CorpusMetadata")


@dataclass(frozen=True)
class TextRecord:
    """One tokenized text.

    Attributes:
        source: what the text is.
        source_bytes: bytes of the unpacked text that was read.
        source_sha256: digest of those bytes.
        dropped_bytes: bytes of a cut-off last story, not used.
        num_stories: stories, and so end tokens.
        num_bytes: bytes of the stories, each with its separator line: what nats per byte refers to.
        num_tokens: 16-bit ids in the token file.
        tokens_sha256: digest of the token file.
    """

    source: str
    source_bytes: int
    source_sha256: str
    dropped_bytes: int
    num_stories: int
    num_bytes: int
    num_tokens: int
    tokens_sha256: str


@dataclass(frozen=True)
class CorpusMetadata:
    """Contents of a corpus's ``metadata.json``.

    Attributes:
        remake: arguments of ``datasets.sh`` that make this corpus.
        stamp: size and time of a local source file, by which an unchanged one is known.
    """

    name: str
    tokenizer: str
    tokenizer_digest: str
    vocab_size: int
    remake: str
    text: TextRecord
    validation: TextRecord | None = None
    stamp: str = ""

    def write(self, folder: Path) -> None:
        """Write ``metadata.json``: written last, so it marks a whole corpus."""
        write_json(folder / METADATA_FILE, {"format": _FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> CorpusMetadata:
        """Read ``metadata.json``.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it is not JSON, or a field is missing or has another type.
        """
        raw = (folder / METADATA_FILE).read_bytes()
        try:
            fields = json.loads(raw)
            if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
                raise ValueError(f"not of format {_FORMAT}")
            validation = fields.pop("validation")
            text = _checked(TextRecord, fields.pop("text"))
            return _checked(
                cls,
                fields,
                text=text,
                validation=None if validation is None else _checked(TextRecord, validation),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{METADATA_FILE} is damaged ({error})") from error


def _checked(cls: type[_Record], fields: Any, **nested: Any) -> _Record:
    types = {"int": int, "str": str}
    for field in dataclasses.fields(cls):
        if field.name in nested:
            continue
        if field.name not in fields:
            raise ValueError(f"{field.name} is missing")
        if type(fields[field.name]) is not types[str(field.type)]:
            raise ValueError(f"{field.name} is {fields[field.name]!r}")
    if "num_tokens" in fields and fields["num_tokens"] < 1:
        raise ValueError(f"num_tokens is {fields['num_tokens']}")
    return cls(**fields, **nested)
