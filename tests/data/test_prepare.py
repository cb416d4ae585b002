from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import pytest

from g2c.artifacts import (
    best_available_corpus,
    build,
    embedded,
    load_tokenized_corpus_artifact,
    load_tokenizer_artifact,
    prepare,
    tinystories,
)
from g2c.artifacts.home import corpora_folder, data_folder, home, tokenizers_folder
from g2c.artifacts.text import StoryReader
from tests.data.test_download import Server

VOCAB = 400


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch):
    monkeypatch.setattr(build, "VOCAB_SIZE", VOCAB)


@pytest.fixture
def few_embedded_stories(monkeypatch):
    few = list(embedded.stories(150))
    monkeypatch.setattr(embedded, "stories", lambda: iter(few))


@pytest.fixture
def hub(story_file, monkeypatch):
    """A server of a small TinyStories, with the sizes that g2c expects of it."""
    content = story_file.read_bytes()
    server = Server(content)
    monkeypatch.setenv("G2C_TINYSTORIES_URL", server.url + "/")
    monkeypatch.setattr(tinystories, "TRAIN_BYTES", len(content))
    monkeypatch.setattr(tinystories, "VALID_BYTES", len(content))
    monkeypatch.setattr(tinystories, "TINY_BYTES", 200_000)
    monkeypatch.setattr(tinystories, "PREFIX_BYTES", 1000)
    monkeypatch.setattr(tinystories, "PREFIX_SHA256", hashlib.sha256(content[:1000]).hexdigest())
    yield server
    server.close()


@pytest.fixture
def no_network(monkeypatch):
    closed = Server(b"")
    closed.close()
    monkeypatch.setenv("G2C_TINYSTORIES_URL", closed.url)


def tree(folder):
    """Each file below a folder with its time of change."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def fails_after(stories, error):
    """A StoryReader that raises ``error`` after some stories."""

    class Failing(StoryReader):
        def __iter__(self):
            for number, piece in enumerate(super().__iter__()):
                if number == stories:
                    raise error
                yield piece

    return Failing


@pytest.mark.parametrize("name", ["own.txt", "own.txt.gz", "own.txt.xz"])
def test_from_plain_and_packed(tmp_path, story_file, name, capsys):
    pack = {"gz": gzip.compress, "xz": lzma.compress}.get(name[-2:], bytes)
    path = tmp_path / name
    path.write_bytes(pack(story_file.read_bytes()))
    assert prepare.main(["--from", str(path)]) == 0
    assert "own: made" in capsys.readouterr().out
    corpus = load_tokenized_corpus_artifact("own")
    assert corpus.num_bytes == story_file.stat().st_size
    assert corpus.tokenizer.vocab_size == VOCAB
    record = corpus.metadata.text
    assert record.source == name
    assert record.source_sha256 == hashlib.sha256(story_file.read_bytes()).hexdigest()


def test_second_run_changes_nothing(story_file, capsys):
    arguments = ["--from", str(story_file), "--name", "own"]
    assert prepare.main(arguments) == 0
    before = tree(home())
    assert prepare.main(arguments) == 0
    assert "own: present" in capsys.readouterr().out
    assert tree(home()) == before


def test_changed_source_is_tokenized_anew(tmp_path, story_file, capsys):
    path = tmp_path / "own.txt"
    shutil.copy(story_file, path)
    assert prepare.main(["--from", str(path)]) == 0
    first = load_tokenized_corpus_artifact("own")
    with path.open("a") as file:
        file.write("One more story.\n<|endoftext|>\n")
    assert prepare.main(["--from", str(path)]) == 0
    assert "its source has changed" in capsys.readouterr().err
    second = load_tokenized_corpus_artifact("own")
    assert second.num_bytes == first.num_bytes + len("One more story.\n<|endoftext|>\n")
    assert second.digest != first.digest


def test_validation_file(tmp_path, story_file):
    held_out = tmp_path / "held-out.txt.gz"
    held_out.write_bytes(gzip.compress(b"A dog sat.\n<|endoftext|>\n"))
    arguments = ["--from", str(story_file), "--name", "own", "--validation", str(held_out)]
    assert prepare.main(arguments) == 0
    corpus = load_tokenized_corpus_artifact("own")
    assert corpus.validation_num_bytes == 25
    assert corpus.metadata.validation.source == "held-out.txt.gz"
    assert prepare.main(arguments[:4]) == 0
    assert load_tokenized_corpus_artifact("own").validation is None


@pytest.mark.parametrize("name", ["storylm-tiny", "StoryLM-tinystories-100MB-v4096", "embedded"])
def test_another_text_never_gets_a_fixed_name(story_file, name, capsys):
    assert prepare.main(["--from", str(story_file), "--name", name]) == 1
    assert "never holds another text" in capsys.readouterr().err
    assert tree(home()) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too short for 400"),
        (b"A short text.", "too short for 400"),
        (b"good\n<|endoftext|>\nb\xffd", "byte 20 is 0xff"),
    ],
)
def test_unusable_texts(tmp_path, content, message, capsys):
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    assert prepare.main(["--from", str(path)]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert tree(home()) == {}


def test_missing_files(tmp_path, story_file, capsys):
    assert prepare.main(["--from", str(tmp_path / "none.txt")]) == 1
    assert "--from: there is no file" in capsys.readouterr().err
    assert prepare.main(["--from", str(story_file), "--validation", str(tmp_path)]) == 1
    assert "--validation: there is no file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--tiny", "--embedded"], ["--name", "x"], ["--validation", "x"], ["surplus"], ["--size"]],
)
def test_wrong_command_lines(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        prepare.main(arguments)
    assert "usage: datasets.sh" in capsys.readouterr().err


def test_tiny_takes_the_beginning_and_drops_the_cut_story(hub, story_file, capsys):
    assert prepare.main(["--tiny"]) == 0
    corpus = load_tokenized_corpus_artifact("storylm-tiny")
    record = corpus.metadata.text
    assert record.source_bytes == 200_000
    assert record.num_bytes + record.dropped_bytes == 200_000
    whole = story_file.read_bytes()[: record.num_bytes].decode()
    assert whole.endswith("\n<|endoftext|>\n")
    assert corpus.tokenizer.decode(corpus.ids) == whole.replace("\n<|endoftext|>\n", "<|endoftext|>")
    assert load_tokenizer_artifact().digest == corpus.tokenizer.digest
    assert hub.requests == ["bytes=0-199999"]
    before = tree(home())
    assert prepare.main(["--tiny"]) == 0
    assert len(hub.requests) == 1 and tree(home()) == before


def test_full_goes_on_from_tiny_and_shares_its_tokenizer(hub, monkeypatch):
    monkeypatch.setattr(build, "TRAINING_BYTES", 150_000)
    assert prepare.main(["--tiny"]) == 0
    tiny = load_tokenized_corpus_artifact("storylm-tiny")
    hub.requests.clear()
    assert prepare.main([]) == 0
    full = load_tokenized_corpus_artifact("storylm-full")
    assert hub.requests == [f"bytes=0-{hub.total - 1}", f"bytes=200000-{hub.total - 1}"]
    assert full.tokenizer.digest == tiny.tokenizer.digest
    assert full.ids[: len(tiny.ids)].tolist() == tiny.ids.tolist()
    assert full.num_bytes == full.validation_num_bytes == hub.total
    assert best_available_corpus() == "StoryLM-tinystories-full-v4096"


def test_tiny_after_full_downloads_nothing_and_gets_the_same_tokenizer(hub):
    assert prepare.main([]) == 0
    digest = load_tokenizer_artifact().digest
    hub.requests.clear()
    assert prepare.main(["--tiny"]) == 0
    assert hub.requests == []
    shutil.rmtree(tokenizers_folder())
    shutil.rmtree(data_folder())
    shutil.rmtree(corpora_folder())
    assert prepare.main(["--tiny"]) == 0
    assert load_tokenizer_artifact().digest == digest


def test_tiny_without_a_network_serves_the_embedded_corpus(no_network, few_embedded_stories, capsys):
    assert prepare.main(["--tiny"]) == 0
    output = capsys.readouterr()
    assert output.err.count("\n") == 1
    assert "TinyStories could not be reached" in output.err
    assert "the embedded corpus serves instead" in output.err
    assert best_available_corpus() == "StoryLM-embedded-v4096"
    assert load_tokenizer_artifact("StoryTokenizer").vocab_size == VOCAB
    with pytest.raises(FileNotFoundError):
        load_tokenized_corpus_artifact("storylm-tiny")
    assert not list((data_folder() / "tinystories").glob("*"))


def test_tiny_where_the_file_is_gone_serves_the_embedded_corpus(hub, few_embedded_stories, capsys):
    hub.status = 404
    assert prepare.main(["--tiny"]) == 0
    assert "HTTP 404" in capsys.readouterr().err
    assert best_available_corpus() == "StoryLM-embedded-v4096"


def test_tiny_refuses_another_text(hub, capsys):
    hub.content = b"#" + hub.content[1:]
    assert prepare.main(["--tiny"]) == 1
    assert "does not begin with the expected text" in capsys.readouterr().err
    assert tree(home()) == {}


def test_full_without_a_network_is_an_error(no_network, capsys):
    assert prepare.main([]) == 1
    error = capsys.readouterr().err
    assert "could not be reached" in error and "--embedded" in error and error.count("\n") == 1


def test_embedded_is_made_once(few_embedded_stories, capsys, monkeypatch):
    assert prepare.main(["--embedded"]) == 0
    corpus = load_tokenized_corpus_artifact("embedded")
    assert corpus.metadata.text.num_stories == 150
    before = tree(home())
    assert prepare.main(["--embedded"]) == 0
    assert tree(home()) == before
    monkeypatch.setattr(embedded, "version", lambda: "another version")
    assert prepare.main(["--embedded"]) == 0
    assert "its source has changed" in capsys.readouterr().err
    assert load_tokenized_corpus_artifact("embedded").metadata.stamp == "another version"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "No space left.*free some space"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), 1, "error: "),
    ],
)
@pytest.mark.parametrize("when", ["first", "second"])
def test_a_broken_run_leaves_nothing_half_written(
    story_file, tmp_path, monkeypatch, capsys, error, status, message, when
):
    arguments = ["--from", str(story_file), "--name", "own"]
    if when == "second":  # a whole corpus of an older text is there
        older = tmp_path / "older.txt"
        older.write_bytes(story_file.read_bytes()[:200_000].rpartition(b"\n")[0])
        assert prepare.main(["--from", str(older), "--name", "own"]) == 0
        capsys.readouterr()
    monkeypatch.setattr(build, "_BATCH_CHARACTERS", 10_000)
    real = build.build_tokenizer

    def then_break(*given):
        tokenizer = real(*given)
        monkeypatch.setattr(build, "StoryReader", fails_after(100, error))
        return tokenizer

    with monkeypatch.context() as patched:
        patched.setattr(prepare, "build_tokenizer", then_break)
        assert prepare.main(arguments) == status
    lines = [x for x in capsys.readouterr().err.splitlines() if "has changed" not in x]
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert not list(home().rglob(".*g2c-tmp"))
    with pytest.raises(FileNotFoundError):
        load_tokenized_corpus_artifact("own")
    monkeypatch.setattr(build, "StoryReader", StoryReader)
    assert prepare.main(arguments) == 0
    corpus = load_tokenized_corpus_artifact("own", verify=True)
    assert corpus.num_bytes == story_file.stat().st_size


@pytest.mark.parametrize("damage", ["tokens", "metadata", "tokenizer", "tokenizer record"])
def test_the_same_command_mends_damage(hub, damage, capsys):
    assert prepare.main(["--tiny"]) == 0
    digest = load_tokenized_corpus_artifact("storylm-tiny").digest
    corpus = corpora_folder() / "StoryLM-tinystories-100MB-v4096"
    tokenizer = tokenizers_folder() / "StoryTokenizer"
    if damage == "tokens":
        (corpus / "tokens.bin").write_bytes(b"\0\0")
    elif damage == "metadata":
        (corpus / "metadata.json").write_text("{")
    elif damage == "tokenizer":
        (tokenizer / "tokenizer.json").write_text("{}")
    else:
        (tokenizer / "metadata.json").write_text("{}")
        (corpus / "tokens.bin").unlink()
    with pytest.raises(ValueError, match=r"mend it with \./datasets\.sh --tiny"):
        load_tokenized_corpus_artifact("storylm-tiny")
    capsys.readouterr()
    assert prepare.main(["--tiny"]) == 0
    assert "which is done now" in capsys.readouterr().err
    assert load_tokenized_corpus_artifact("storylm-tiny", verify=True).digest == digest
    assert json.loads((tokenizer / "metadata.json").read_text())["vocab_size"] == VOCAB


def test_stale_files_of_a_killed_run_are_removed(story_file):
    folder = corpora_folder() / "own"
    folder.mkdir(parents=True)
    stale = folder / ".tokens.bin.999999999-00000000.g2c-tmp"
    stale.write_bytes(b"half")
    assert prepare.main(["--from", str(story_file), "--name", "own"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["metadata.json", "tokens.bin"]


def test_a_second_command_waits_for_the_first(story_file, capsys):
    (home() / "artifacts").mkdir(parents=True)
    with (home() / "artifacts" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = threading.Thread(target=prepare.main, args=(["--from", str(story_file), "--name", "own"],))
        run.start()
        time.sleep(0.3)
        assert run.is_alive() and not corpora_folder().exists()
        fcntl.flock(lock, fcntl.LOCK_UN)
        run.join(timeout=60)
    assert "waiting for it" in capsys.readouterr().err
    assert load_tokenized_corpus_artifact("own").num_bytes == story_file.stat().st_size


def test_the_module_is_a_command():
    shown = subprocess.run(
        [sys.executable, "-m", "g2c.artifacts.prepare", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for option in ("--tiny", "--embedded", "--from FILE", "--validation FILE", "--name"):
        assert option in shown.stdout
