"""What the tests of the data part share."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from g2c.artifacts import embedded
from g2c.artifacts.build import CorpusPlan, build_corpus
from g2c.artifacts.corpus import load_tokenized_corpus_artifact
from g2c.artifacts.files import write_json
from g2c.artifacts.home import tokenizers_folder
from g2c.artifacts.text import TextSource
from g2c.tokenizer import StoryTokenizer

TINYSTORIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinystories"
SEPARATOR = "\n<|endoftext|>\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for each test, so that no test sees or harms real artifacts."""
    folder = tmp_path / "home"
    monkeypatch.setenv("G2C_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def story_texts() -> list[str]:
    return list(embedded.stories(220))


@pytest.fixture(scope="session")
def story_file(tmp_path_factory: pytest.TempPathFactory, story_texts: list[str]) -> Path:
    path = tmp_path_factory.mktemp("text") / "stories.txt"
    path.write_text("".join(story + SEPARATOR for story in story_texts), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(story_texts: list[str]) -> StoryTokenizer:
    return StoryTokenizer.train(story_texts, 1024)


@pytest.fixture
def make_corpus(story_file: Path, tokenizer: StoryTokenizer):
    """Make a corpus without training a tokenizer for each test; returns the loaded corpus."""

    def make(name: str = "stories", path: Path = story_file, validation: Path | None = None):
        folder = tokenizers_folder() / f"StoryTokenizer-{name}"
        tokenizer.save(folder / "tokenizer.json")
        write_json(folder / "metadata.json", {"digest": tokenizer.digest})
        held_out = TextSource(validation, validation.name) if validation else None
        plan = CorpusPlan(name, folder.name, f"--from {path}", TextSource(path, path.name), held_out)
        build_corpus(plan, tokenizer)
        return load_tokenized_corpus_artifact(name)

    return make


@pytest.fixture
def random_text():
    """Unicode from every plane, without surrogates."""

    def make(seed: int, length: int = 200) -> str:
        source = random.Random(seed)
        points = (source.choice((0x7F, 0x7FF, 0xFFFF, 0x10FFFF)) for _ in range(length))
        chosen = (source.randint(0, top) for top in points)
        return "".join(chr(c) for c in chosen if not 0xD800 <= c <= 0xDFFF)

    return make
