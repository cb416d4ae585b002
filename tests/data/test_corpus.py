from __future__ import annotations

import json
import random

import pytest
import torch

from g2c.artifacts import (
    ChunkedIds,
    available_corpora,
    best_available_corpus,
    load_tokenized_corpus_artifact,
    load_tokenizer_artifact,
)
from g2c.artifacts.home import corpora_folder, tokenizers_folder
from g2c.artifacts.names import EMBEDDED, FULL, TINY
from g2c.tokenizer import StoryTokenizer


def spoil(path, change):
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def test_ids_are_the_text(make_corpus, story_file, story_texts, tokenizer):
    corpus = make_corpus()
    text = story_file.read_text(encoding="utf-8")
    assert corpus.ids.dtype == torch.uint16 and corpus.ids.dim() == 1
    expected = [i for story in story_texts for i in [*tokenizer.encode(story), tokenizer.eos_id]]
    assert corpus.ids.tolist() == expected
    assert corpus.tokenizer.digest == tokenizer.digest
    assert corpus.num_bytes == len(text.encode("utf-8")) == corpus.count_bytes(corpus.ids)
    assert corpus.validation is None and corpus.validation_num_bytes is None
    assert corpus.metadata.text.num_stories == len(story_texts)


def test_validation_text(make_corpus, tmp_path):
    path = tmp_path / "held-out.txt"
    path.write_text("A dog sat.\n<|endoftext|>\nA cat ran.", encoding="utf-8")
    corpus = make_corpus(validation=path)
    assert corpus.tokenizer.decode(corpus.validation) == ("A dog sat.<|endoftext|>A cat ran.<|endoftext|>")
    assert corpus.validation_num_bytes == 20 + 2 * 15 == corpus.count_bytes(corpus.validation)


def test_changing_the_tensor_leaves_the_file_alone(make_corpus):
    corpus = make_corpus()
    before = corpus.ids.clone()
    corpus.ids.zero_()
    again = load_tokenized_corpus_artifact("stories", verify=True)
    assert torch.equal(again.ids, before)


def test_plain_split_is_the_beginning_and_the_end(make_corpus):
    corpus = make_corpus()
    total = corpus.ids.numel()
    pair = corpus.split()
    assert pair.train.numel() == int(total * 0.9)
    assert torch.equal(torch.cat([pair.train, pair.val]), corpus.ids)
    assert pair.train.data_ptr() == corpus.ids.data_ptr()
    assert corpus.count_bytes(pair.train) + corpus.count_bytes(pair.val) == corpus.num_bytes


@pytest.mark.parametrize(("fraction", "chunk"), [(0.9, 100), (0.5, 1000), (0.75, 4096)])
@pytest.mark.parametrize("seed", [0, 7])
def test_chunked_split_follows_the_interface(make_corpus, fraction, chunk, seed):
    corpus = make_corpus()
    pair = corpus.split(fraction, chunk_tokens=chunk, seed=seed)
    starts = list(range(0, corpus.ids.numel(), chunk))
    random.Random(seed).shuffle(starts)
    held_out = round(len(starts) * (1 - fraction))
    assert isinstance(pair.train, ChunkedIds) and isinstance(pair.val, ChunkedIds)
    assert pair.val.starts.tolist() == starts[:held_out]
    assert pair.train.starts.tolist() == starts[held_out:]
    assert len(pair.train) + len(pair.val) == corpus.ids.numel()
    assert pair.train.ids.data_ptr() == corpus.ids.data_ptr()
    assert corpus.count_bytes(pair.train) + corpus.count_bytes(pair.val) == corpus.num_bytes


def test_seeds_make_different_chunked_splits(make_corpus):
    corpus = make_corpus()
    first, same, other = (corpus.split(chunk_tokens=64, seed=s).val.starts for s in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train_fraction": 0.0}, ValueError, "train_fraction: got 0.0"),
        ({"train_fraction": 1.0}, ValueError, "train_fraction: got 1.0"),
        ({"train_fraction": float("nan")}, ValueError, "train_fraction: got nan"),
        ({"train_fraction": 1e-9}, ValueError, "one side empty"),
        ({"chunk_tokens": 1}, ValueError, "chunk_tokens: got 1"),
        ({"chunk_tokens": 10**9}, ValueError, "1 chunks"),
        ({"chunk_tokens": 64.0}, TypeError, "chunk_tokens: expected an integer"),
        ({"chunk_tokens": 64, "seed": None}, TypeError, "seed: expected an integer"),
    ],
)
def test_impossible_splits(make_corpus, arguments, error, message):
    with pytest.raises(error, match=message):
        make_corpus().split(**arguments)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("storylm-tiny", r"\./datasets\.sh --tiny"),
        ("storylm-full", r"\./datasets\.sh \(present"),
        ("embedded", r"\./datasets\.sh --embedded"),
        ("mine", r"\./datasets\.sh --from FILE --name mine"),
    ],
)
def test_missing_corpus_names_the_command(name, command):
    with pytest.raises(FileNotFoundError, match=command):
        load_tokenized_corpus_artifact(name)


def test_missing_corpus_lists_what_is_there(make_corpus):
    make_corpus()
    assert available_corpora() == ["stories"]
    with pytest.raises(FileNotFoundError, match=r"present: stories"):
        load_tokenized_corpus_artifact("storeys")


def test_missing_tokenizer_names_the_command():
    with pytest.raises(FileNotFoundError, match=r"\./datasets\.sh --tiny"):
        load_tokenizer_artifact("StoryTokenizer")


def test_best_corpus(make_corpus):
    make_corpus()
    with pytest.raises(FileNotFoundError, match=r"--tiny .*--embedded"):
        best_available_corpus()
    for corpus in (EMBEDDED, TINY, FULL):
        make_corpus(corpus.name)
        assert best_available_corpus() == corpus.name


def test_the_embedded_tokenizer_serves_only_where_nothing_better_is(make_corpus, tokenizer):
    make_corpus(EMBEDDED.name)
    folder = tokenizers_folder()
    (folder / f"StoryTokenizer-{EMBEDDED.name}").rename(folder / EMBEDDED.tokenizer)
    assert load_tokenizer_artifact("StoryTokenizer").digest == tokenizer.digest
    with pytest.raises(FileNotFoundError):
        load_tokenizer_artifact("StoryTokenizer", exact=True)


def damages(corpus, tokenizer_folder):
    def set_field(name, value):
        return lambda: spoil(corpus / "metadata.json", lambda fields: fields.update({name: value}))

    def of_text(name, value):
        return lambda: spoil(corpus / "metadata.json", lambda fields: fields["text"].update({name: value}))

    def truncated():
        path = corpus / "tokens.bin"
        path.write_bytes(path.read_bytes()[:-2])

    def id_outside():
        path = corpus / "tokens.bin"
        path.write_bytes(b"\x00\x04" + path.read_bytes()[2:])

    def other_tokenizer():
        StoryTokenizer.train(["abc " * 10], 258).save(tokenizer_folder / "tokenizer.json")

    def half_json():
        path = corpus / "metadata.json"
        path.write_text(path.read_text()[:100])

    return {
        "tokens.bin has .* bytes instead of": truncated,
        "tokens.bin holds id 1024, the vocabulary ends at 1024": id_outside,
        "tokens.bin is missing": (corpus / "tokens.bin").unlink,
        "its tokenizer StoryTokenizer-stories has changed": other_tokenizer,
        "its tokenizer StoryTokenizer-stories is missing": (tokenizer_folder / "tokenizer.json").unlink,
        "tokenizer.json: damaged": lambda: (tokenizer_folder / "tokenizer.json").write_text("{"),
        "metadata.json is damaged .*char 1": half_json,
        "metadata.json is damaged .*not of format 1": set_field("format", 2),
        "metadata.json is that of other": set_field("name", "other"),
        "vocab_size is '1024'": set_field("vocab_size", "1024"),
        "vocab_size is 1023, the tokenizer has 1024": set_field("vocab_size", 1023),
        "num_tokens is 0": of_text("num_tokens", 0),
        "num_bytes is None": of_text("num_bytes", None),
    }


DAMAGES = [
    "tokens.bin has .* bytes instead of",
    "tokens.bin holds id 1024, the vocabulary ends at 1024",
    "tokens.bin is missing",
    "its tokenizer StoryTokenizer-stories has changed",
    "its tokenizer StoryTokenizer-stories is missing",
    "tokenizer.json: damaged",
    "metadata.json is damaged .*char 1",
    "metadata.json is damaged .*not of format 1",
    "metadata.json is that of other",
    "vocab_size is '1024'",
    "vocab_size is 1023, the tokenizer has 1024",
    "num_tokens is 0",
    "num_bytes is None",
]


@pytest.mark.parametrize("message", DAMAGES)
def test_damage_is_named_with_the_command_that_mends_it(make_corpus, message):
    make_corpus()
    table = damages(corpora_folder() / "stories", tokenizers_folder() / "StoryTokenizer-stories")
    assert set(table) == set(DAMAGES)
    table[message]()
    with pytest.raises(ValueError, match=message) as caught:
        load_tokenized_corpus_artifact("stories")
    assert "corpus stories is damaged" in str(caught.value)
    assert "mend it with ./datasets.sh --from" in str(caught.value)


def test_verify_sees_a_changed_token(make_corpus):
    make_corpus()
    path = corpora_folder() / "stories" / "tokens.bin"
    raw = bytearray(path.read_bytes())
    raw[100:102] = b"\x01\x00" if raw[100:102] != b"\x01\x00" else b"\x02\x00"
    path.write_bytes(bytes(raw))
    load_tokenized_corpus_artifact("stories")
    with pytest.raises(ValueError, match=r"tokens\.bin has changed"):
        load_tokenized_corpus_artifact("stories", verify=True)


@pytest.mark.parametrize("damage", ["digest", "no record"])
def test_damaged_tokenizer_artifact(make_corpus, damage):
    make_corpus()
    record = tokenizers_folder() / "StoryTokenizer-stories" / "metadata.json"
    if damage == "digest":
        spoil(record, lambda fields: fields.update(digest="0" * 64))
    else:
        record.unlink()
    with pytest.raises(ValueError, match=r"tokenizer StoryTokenizer-stories is damaged.*mend it"):
        load_tokenizer_artifact("StoryTokenizer-stories")
