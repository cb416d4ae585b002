"""Reading story files: plain, .gz or .xz, checked UTF-8, a few megabytes at a time."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from g2c.tokenizer import END_OF_TEXT

SEPARATOR = f"\n{END_OF_TEXT}\n"
"""What stands between stories in a file, and what one end token counts for in bytes of text."""

_MARK = END_OF_TEXT.encode()
_BLOCK_BYTES = 1 << 20
_LONGEST_PIECE = 8 << 20
_WORD_BORDER = re.compile(rb"[!-~](?=[ \n][!-~])")


@dataclass(frozen=True)
class TextSource:
    """A text to tokenize.

    Attributes:
        path: file; its suffix ``.gz`` or ``.xz`` says how it is packed.
        description: what it is, for the corpus's record.
        first_bytes: use only so many bytes of the unpacked text; what follows the last whole story
            in them is dropped. None takes all.
    """

    path: Path
    description: str
    first_bytes: int | None = None


@dataclass(frozen=True)
class Piece:
    """A story, or a part of one that is longer than 8 MiB; the last part ends the story."""

    text: str
    ends_story: bool


class StoryReader:
    """Iterate over the stories of a text; memory stays bounded whatever the size of the file.

    Stories are separated by a line ``<|endoftext|>``; one line break on each side belongs to it and
    everything else to the story. Stories of nothing but white space are left out.

    After a complete iteration ``source_bytes`` and ``source_sha256`` describe the unpacked text
    that was read, and ``dropped_bytes`` the cut-off story at its end (only with ``first_bytes``).

    Iterating raises ValueError when the text is not UTF-8, which names the byte, or when a packed
    file is damaged. ``on_progress`` is called with bytes of the file on disk.
    """

    def __init__(self, source: TextSource, on_progress: Callable[[int], object] | None = None) -> None:
        self._source = source
        self._on_progress = on_progress
        self.source_bytes = 0
        self.source_sha256 = ""
        self.dropped_bytes = 0

    def __iter__(self) -> Iterator[Piece]:
        buffer = b""
        offset = 0
        after_mark = False
        inside = False
        for block in self._blocks():
            searched = max(0, len(buffer) - len(_MARK))
            buffer += block
            if buffer.find(_MARK, searched) >= 0:
                *stories, rest = buffer.split(_MARK)
                for story in stories:
                    yield from self._piece(story, offset, after_mark, inside)
                    offset += len(story) + len(_MARK)
                    after_mark, inside = True, False
                buffer = rest
            while len(buffer) > _LONGEST_PIECE:
                cut = _border(buffer)
                text = self._decode(buffer[:cut], offset)
                yield Piece(_without_first_break(text) if after_mark else text, False)
                buffer, offset, after_mark, inside = buffer[cut:], offset + cut, False, True
        if self._source.first_bytes is None:
            yield from self._piece(buffer, offset, after_mark, inside)
        else:
            self.dropped_bytes = len(buffer.removeprefix(b"\n")) if after_mark else len(buffer)

    def _piece(self, raw: bytes, offset: int, after_mark: bool, inside: bool) -> Iterator[Piece]:
        text = self._decode(raw, offset)
        if after_mark:
            text = _without_first_break(text)
        text = text.removesuffix("\n").removesuffix("\r")
        if inside or text.strip():
            yield Piece(text, True)

    def _decode(self, raw: bytes, offset: int) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self._source.path}: not UTF-8 text, byte {offset + error.start} is "
                f"0x{raw[error.start]:02x} ({error.reason})"
            ) from error

    def _blocks(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        self.source_bytes = 0
        left = self._source.first_bytes
        position = 0
        try:
            with self._source.path.open("rb") as file, _unpacked(file, self._source.path) as stream:
                while left is None or left > 0:
                    block = stream.read(_BLOCK_BYTES if left is None else min(_BLOCK_BYTES, left))
                    if not block:
                        break
                    digest.update(block)
                    self.source_bytes += len(block)
                    left = None if left is None else left - len(block)
                    if self._on_progress:
                        self._on_progress(file.tell() - position)
                        position = file.tell()
                    yield block
        except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self._source.path}: damaged packed file ({error})") from error
        self.source_sha256 = digest.hexdigest()


def _without_first_break(text: str) -> str:
    return text.removeprefix("\r").removeprefix("\n")


def _unpacked(file: BinaryIO, path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.LZMAFile(file))
    return file


def _border(buffer: bytes) -> int:
    """Where to cut a long piece: before the last lone space or line break, a word border anyway."""
    begin = _LONGEST_PIECE - (1 << 16)
    borders = [match.end() for match in _WORD_BORDER.finditer(buffer, begin, _LONGEST_PIECE)]
    if borders:
        return borders[-1]
    cut = _LONGEST_PIECE
    while cut > begin and buffer[cut] & 0xC0 == 0x80:  # never inside a UTF-8 character
        cut -= 1
    return cut
