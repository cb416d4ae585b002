from __future__ import annotations

import gzip
import hashlib
import lzma

import pytest

from g2c.artifacts import text as text_module
from g2c.artifacts.text import StoryReader, TextSource


def read(path, first_bytes=None):
    reader = StoryReader(TextSource(path, "test", first_bytes))
    return reader, [(piece.text, piece.ends_story) for piece in reader]


def whole(*stories):
    return [(story, True) for story in stories]


@pytest.fixture
def file(tmp_path):
    def write(content: bytes, name: str = "t.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    ("content", "stories"),
    [
        (b"", []),
        (b"\n \n", []),
        (b"one", ["one"]),
        (b"one\n", ["one"]),
        (b"one\n<|endoftext|>\ntwo\n<|endoftext|>\n", ["one", "two"]),
        (b"one\n<|endoftext|>\n\n\n<|endoftext|>\ntwo", ["one", "two"]),
        (b"one<|endoftext|>two<|endoftext|>", ["one", "two"]),
        (b"a\r\n<|endoftext|>\r\nb\r\n", ["a", "b"]),
        (b"\n\n one \n\n<|endoftext|>\n\ntwo", ["\n\n one \n", "\ntwo"]),
        ("é\n<|endoftext|>\n😀".encode(), ["é", "😀"]),
    ],
)
def test_stories(file, content, stories):
    reader, pieces = read(file(content))
    assert pieces == whole(*stories)
    assert reader.source_bytes == len(content)
    assert reader.source_sha256 == hashlib.sha256(content).hexdigest()
    assert reader.dropped_bytes == 0


@pytest.mark.parametrize("block", [1, 2, 3, 7, 13, 14, 64])
def test_block_size_makes_no_difference(file, monkeypatch, block):
    content = "one é\n<|endoftext|>\ntwo <|endo\n<|endoftext|>\n😀\n".encode()
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    assert read(file(content))[1] == whole("one é", "two <|endo", "😀")


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz", "t.txt.xz"])
def test_packed_files(file, name):
    content = b"one\n<|endoftext|>\ntwo\n<|endoftext|>\n"
    packed = {"gz": gzip.compress, "xz": lzma.compress}.get(name[-2:], bytes)(content)
    reader, pieces = read(file(packed, name))
    assert pieces == whole("one", "two")
    assert reader.source_bytes == len(content)


@pytest.mark.parametrize("name", ["t.gz", "t.xz"])
@pytest.mark.parametrize("damage", ["cut", "not packed"])
def test_damaged_packed_files(file, name, damage):
    content = b"".join(b"story %d\n<|endoftext|>\n" % i for i in range(1000))
    packed = gzip.compress(content) if name == "t.gz" else lzma.compress(content)
    with pytest.raises(ValueError, match=rf"{name}: damaged packed file"):
        read(file(packed[: len(packed) // 2] if damage == "cut" else content, name))


def test_wrong_byte_is_named_by_its_offset(file):
    before = "ééé\n<|endoftext|>\nabc".encode()
    with pytest.raises(ValueError, match=f"byte {len(before)} is 0xff"):
        read(file(before + b"\xff and so on\n<|endoftext|>\n"))


def test_text_cut_inside_a_character_is_an_error_unless_the_end_is_dropped(file):
    content = "one\n<|endoftext|>\ntwo é".encode()[:-1]
    with pytest.raises(ValueError, match="not UTF-8"):
        read(file(content))
    reader, pieces = read(file(content), first_bytes=len(content))
    assert pieces == whole("one")
    assert reader.dropped_bytes == len(b"two \xc3")


def test_first_bytes_drop_the_cut_story_only(file):
    content = b"one\n<|endoftext|>\ntwo\n<|endoftext|>\nthree"
    reader, pieces = read(file(content), first_bytes=content.index(b"two") + 1)
    assert pieces == whole("one")
    assert reader.dropped_bytes == 1
    assert reader.source_bytes == content.index(b"two") + 1
    reader, pieces = read(file(content), first_bytes=content.index(b"three"))
    assert pieces == whole("one", "two")
    assert reader.dropped_bytes == 0


@pytest.mark.parametrize("words", ["word and word ", "é" * 40, "x" * 50])
def test_long_stories_come_in_parts(file, monkeypatch, words):
    monkeypatch.setattr(text_module, "_LONGEST_PIECE", 1000)
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", 300)
    story = (words * 400).strip()
    _, pieces = read(file(f"short\n<|endoftext|>\n{story}\n<|endoftext|>\nlast".encode()))
    assert len(pieces) > 5
    assert [ends for _, ends in pieces].count(True) == 3
    assert "".join(text for text, _ in pieces[1:-1]) == story
    assert pieces[-2][1] and pieces[-1] == ("last", True)


def test_cuts_in_long_stories_do_not_change_the_tokens(file, monkeypatch, tokenizer, story_texts):
    monkeypatch.setattr(text_module, "_LONGEST_PIECE", 2000)
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", 777)
    story = "\n".join(story_texts[:30])
    _, pieces = read(file(story.encode()))
    assert len(pieces) > 10
    parts = [token for text, _ in pieces for token in tokenizer.encode(text)]
    assert parts == tokenizer.encode(story)
