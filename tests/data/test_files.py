from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from g2c.artifacts import files
from g2c.artifacts.files import remove_stale, replacing, sha256_of


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_replacing_makes_folders_and_renames(tmp_path):
    target = tmp_path / "a" / "b" / "file.txt"
    with replacing(target) as temp:
        assert temp.parent == target.parent
        temp.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert entries(target.parent) == ["file.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_replacing_keeps_the_old_file_on_error(tmp_path, error):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with pytest.raises(error), replacing(target) as temp:
        temp.write_text("half")
        raise error
    assert target.read_text() == "old"
    assert entries(tmp_path) == ["file.txt"]


def test_replacing_keeps_the_old_file_when_the_disk_is_full(tmp_path, monkeypatch):
    target = tmp_path / "file.txt"
    target.write_text("old")

    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(files, "_sync", full)
    with pytest.raises(OSError, match="No space left"), replacing(target) as temp:
        temp.write_text("new")
    assert target.read_text() == "old"
    assert entries(tmp_path) == ["file.txt"]


def test_replacing_names_a_file_that_was_not_written(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing was written"), replacing(tmp_path / "f"):
        pass
    assert entries(tmp_path) == []


def test_remove_stale_takes_only_files_of_dead_processes(tmp_path):
    folder = tmp_path / "deep"
    folder.mkdir()
    dead = folder / ".tokens.bin.999999999-0a0b0c0d.g2c-tmp"
    dead.write_text("half")
    mine = folder / f".tokens.bin.{os.getpid()}-0a0b0c0d.g2c-tmp"
    mine.write_text("being written")
    other = folder / "notes.tmp"
    other.write_text("not ours")
    assert remove_stale(tmp_path) == [dead]
    assert not dead.exists() and mine.exists() and other.exists()
    assert remove_stale(tmp_path / "missing") == []


def test_sha256_of_a_beginning(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abcdef")
    (tmp_path / "ab").write_bytes(b"abc")
    assert sha256_of(path, 3) == sha256_of(tmp_path / "ab")
    assert sha256_of(path) != sha256_of(path, 3)
