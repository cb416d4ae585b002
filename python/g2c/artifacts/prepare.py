"""Command that makes tokenizers and corpora: what ``datasets.sh`` runs."""

from __future__ import annotations

import argparse
import errno
import fcntl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from g2c.artifacts import embedded, tinystories
from g2c.artifacts.build import CorpusPlan, build_corpus, build_tokenizer
from g2c.artifacts.corpus import load_tokenized_corpus_artifact, load_tokenizer_artifact
from g2c.artifacts.download import Unreachable
from g2c.artifacts.files import remove_stale, replacing
from g2c.artifacts.home import data_folder, datasets_command, home
from g2c.artifacts.metadata import CorpusMetadata
from g2c.artifacts.names import EMBEDDED, FULL, TINY, free_name, name_from_file, tokenizer_name
from g2c.artifacts.text import TextSource
from g2c.tokenizer import StoryTokenizer

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0, 1 after an error, 130 after Ctrl-C."""
    options = _parser().parse_args(argv)
    if options.source is None and (options.validation or options.name):
        _parser().error("--validation and --name belong to --from")
    try:
        with _alone():
            remove_stale(home() / "artifacts")
            remove_stale(data_folder())
            if options.source is not None:
                prepare_file(options.source, options.validation, options.name)
            elif options.embedded:
                prepare_embedded()
            elif options.tiny:
                prepare_tiny()
            else:
                prepare_full()
    except KeyboardInterrupt:
        _say("interrupted: nothing half-written is left, the same command goes on from here")
        return _INTERRUPTED
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _say(f"error: {error}; free some space and run the same command again")
        else:
            _say(f"error: {error}")
        return 1
    except ValueError as error:
        _say(f"error: {error}")
        return 1
    return 0


def prepare_tiny() -> CorpusMetadata:
    """Make the 100 MB tier, or the embedded corpus where TinyStories cannot be reached."""
    present = _present(TINY.name)
    if present:
        return present
    try:
        text = tinystories.fetch_tiny()
    except Unreachable as error:
        _say(f"TinyStories could not be reached ({error}); the embedded corpus serves instead")
        return prepare_embedded()
    tokenizer = _story_tokenizer(text)
    return _make(CorpusPlan(TINY.name, TINY.tokenizer, TINY.arguments, text), tokenizer)


def prepare_full() -> CorpusMetadata:
    """Make the full TinyStories corpus with its validation text.

    Raises:
        ConnectionError: TinyStories cannot be reached.
    """
    present = _present(FULL.name)
    if present:
        return present
    try:
        validation = tinystories.fetch_validation()
        text = tinystories.fetch_full()
    except Unreachable as error:
        instead = datasets_command(EMBEDDED.arguments)
        raise ConnectionError(
            f"TinyStories could not be reached ({error}); run the same command again later, or use "
            f"the embedded corpus: {instead}"
        ) from error
    tokenizer = _story_tokenizer(tinystories.tiny_source())
    plan = CorpusPlan(FULL.name, FULL.tokenizer, FULL.arguments, text, validation)
    return _make(plan, tokenizer)


def prepare_embedded() -> CorpusMetadata:
    """Make the corpus whose text this package generates."""
    stamp = embedded.version()
    present = _present(EMBEDDED.name, stamp)
    if present:
        return present
    path = data_folder() / "embedded.txt"
    with replacing(path) as temp, temp.open("w", encoding="utf-8", newline="\n") as file:
        for story in embedded.stories():
            file.write(story + "\n<|endoftext|>\n")
    text = TextSource(path, f"embedded stories, seed {embedded.SEED}, version {stamp}")
    plan = CorpusPlan(EMBEDDED.name, EMBEDDED.tokenizer, EMBEDDED.arguments, text, None, stamp)
    return _make(plan, build_tokenizer(plan.tokenizer, text))


def prepare_file(path: Path, validation: Path | None, name: str | None) -> CorpusMetadata:
    """Make a corpus from a local text: plain, ``.gz`` or ``.xz``.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: the name is reserved or malformed, or the text is not usable.
    """
    for argument, file in (("--from", path), ("--validation", validation)):
        if file is not None and not file.is_file():
            raise FileNotFoundError(f"{argument}: there is no file {file}")
    chosen = free_name(name if name is not None else name_from_file(path.name))
    stamp = "; ".join(_stamp(file) for file in (path, validation) if file is not None)
    present = _present(chosen, stamp)
    if present:
        return present
    text = TextSource(path, path.name)
    held_out = TextSource(validation, validation.name) if validation else None
    remake = f"--from {path.resolve()}"
    if validation:
        remake += f" --validation {validation.resolve()}"
    plan = CorpusPlan(chosen, tokenizer_name(chosen), f"{remake} --name {chosen}", text, held_out, stamp)
    return _make(plan, build_tokenizer(plan.tokenizer, text))


def _story_tokenizer(text: TextSource) -> StoryTokenizer:
    # Both TinyStories tiers share this one, so it is kept where it is whole.
    try:
        return load_tokenizer_artifact(TINY.tokenizer, exact=True)
    except FileNotFoundError:
        pass
    except ValueError as error:
        _say(f"{error} (which is done now)")
    return build_tokenizer(TINY.tokenizer, text)


def _make(plan: CorpusPlan, tokenizer: StoryTokenizer) -> CorpusMetadata:
    metadata = build_corpus(plan, tokenizer)
    _report("made", metadata)
    return metadata


def _present(name: str, stamp: str = "") -> CorpusMetadata | None:
    """The record of a corpus that is whole and made from what ``stamp`` describes, else None."""
    try:
        metadata = load_tokenized_corpus_artifact(name).metadata
    except FileNotFoundError:
        return None
    except ValueError as error:
        _say(f"{error} (which is done now)")
        return None
    if metadata.stamp != stamp:
        _say(f"{name}: its source has changed, making it anew")
        return None
    _report("present", metadata)
    return metadata


def _report(state: str, metadata: CorpusMetadata) -> None:
    text = metadata.text
    line = (
        f"{metadata.name}: {state}, {text.num_tokens:,} tokens of {text.num_bytes:,} bytes "
        f"({text.num_bytes / text.num_tokens:.3f} bytes per token)"
    )
    if metadata.validation:
        line += f", validation {metadata.validation.num_tokens:,} tokens"
    print(line, flush=True)


def _stamp(path: Path) -> str:
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


@contextmanager
def _alone() -> Iterator[None]:
    """Let one such command at a time write under a home; a second one waits."""
    folder = home() / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is preparing data here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="datasets.sh",
        description="Make the tokenizer and the tokenized corpus that training needs. Without "
        "arguments: all of TinyStories (1.9 GB). A second run finds what is there.",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tiny", action="store_true", help="the first 100 MB of TinyStories (storylm-tiny)")
    which.add_argument("--embedded", action="store_true", help="the generated stories, without a network")
    which.add_argument("--from", dest="source", type=Path, metavar="FILE", help="a text: plain, .gz or .xz")
    parser.add_argument(
        "--validation", type=Path, metavar="FILE", help="with --from: a separate validation text"
    )
    parser.add_argument("--name", help="with --from: the corpus's name (default: from the file)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
