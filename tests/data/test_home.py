from __future__ import annotations

from pathlib import Path

import pytest

import g2c.artifacts.home as home_module
from g2c.artifacts.home import datasets_command, home
from g2c.artifacts.names import artifact_name, free_name, name_from_file, tokenizer_name


def test_home_is_the_variable_else_the_checkout_else_the_cache(tmp_path, monkeypatch):
    assert home() == tmp_path / "home"
    monkeypatch.delenv("G2C_HOME")
    assert home() == Path(home_module.__file__).resolve().parents[3]
    assert datasets_command("--tiny") == "./datasets.sh --tiny"
    monkeypatch.setattr(home_module, "checkout", lambda: None)
    assert home() == Path.home() / ".cache" / "g2c"
    assert datasets_command("--tiny") == "python -m g2c.artifacts.prepare --tiny"


def test_home_refuses_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("G2C_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match="G2C_HOME"):
        home()


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("storylm-tiny", "StoryLM-tinystories-100MB-v4096"),
        ("storylm-full", "StoryLM-tinystories-full-v4096"),
        ("embedded", "StoryLM-embedded-v4096"),
        ("Embedded", "StoryLM-embedded-v4096"),
        ("my.text_1", "my.text_1"),
    ],
)
def test_aliases(alias, name):
    assert artifact_name(alias) == name
    assert artifact_name(name) == name


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 81, "a b", "a\n"])
def test_malformed_names(name):
    with pytest.raises(ValueError, match="name"):
        artifact_name(name)


def test_name_must_be_a_string():
    with pytest.raises(TypeError, match="int"):
        artifact_name(3)


@pytest.mark.parametrize("name", ["storylm-tiny", "STORYLM-TINYSTORIES-100mb-V4096", "embedded"])
def test_fixed_names_are_reserved(name):
    with pytest.raises(ValueError, match="never holds another text"):
        free_name(name)


def test_names_from_files():
    assert name_from_file("my stories.txt.xz") == "my-stories"
    assert name_from_file("a.gz") == "a"
    assert name_from_file("notes.md") == "notes.md"


def test_both_tinystories_tiers_share_a_tokenizer():
    assert tokenizer_name(artifact_name("storylm-tiny")) == "StoryTokenizer"
    assert tokenizer_name(artifact_name("storylm-full")) == "StoryTokenizer"
    assert tokenizer_name("mine") == "StoryTokenizer-mine"
