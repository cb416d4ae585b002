from __future__ import annotations

import copy
import hashlib
import pickle

import numpy as np
import pytest
import torch

from g2c.tokenizer import END_OF_TEXT, StoryTokenizer


def test_vocabulary_has_the_asked_size(tokenizer):
    assert tokenizer.vocab_size == len(tokenizer) == 1024
    assert 0 <= tokenizer.eos_id < 1024
    assert tokenizer.decode([tokenizer.eos_id]) == END_OF_TEXT


def test_special_token_is_one_id_anywhere(tokenizer):
    ids = tokenizer.encode(f"One day{END_OF_TEXT}Once")
    assert ids.count(tokenizer.eos_id) == 1
    assert ids[0] != tokenizer.eos_id != ids[-1]
    assert tokenizer.encode(END_OF_TEXT) == [tokenizer.eos_id]
    assert tokenizer.encode("<|endoftext") != [tokenizer.eos_id]


def test_nothing_is_added(tokenizer):
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode("a") + tokenizer.encode(" b") == tokenizer.encode("a b")


@pytest.mark.parametrize("seed", range(20))
def test_any_unicode_comes_back(tokenizer, random_text, seed):
    text = random_text(seed)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert int(tokenizer.byte_lengths()[ids].sum()) == len(text.encode("utf-8"))


def test_every_single_byte_has_an_id(tokenizer):
    text = "".join(map(chr, range(256))) + "\r\n\t  \n\n \u200b\U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_decode_takes_tensors_and_arrays(tokenizer):
    ids = tokenizer.encode("a little girl")
    assert tokenizer.decode(torch.tensor(ids)) == "a little girl"
    assert tokenizer.decode(torch.tensor(ids).to(torch.uint16)) == "a little girl"
    assert tokenizer.decode(np.array(ids, dtype=np.uint16)) == "a little girl"


def test_encode_batch_equals_encode(tokenizer, story_texts):
    assert tokenizer.encode_batch(story_texts[:5]) == [tokenizer.encode(text) for text in story_texts[:5]]


def test_bad_input_is_named(tokenizer):
    with pytest.raises(TypeError, match="text: expected a string, got int"):
        tokenizer.encode(3)
    with pytest.raises(ValueError, match="surrogate pair at position 1"):
        tokenizer.encode("a\ud800")
    with pytest.raises(ValueError, match=r"1024 at position 1 is outside 0\.\.1023"):
        tokenizer.decode([0, 1024])
    with pytest.raises(ValueError, match="-1 at position 0"):
        tokenizer.decode([-1])
    with pytest.raises(TypeError, match="float at position 0"):
        tokenizer.decode([1.0])


def test_training_is_the_same_each_time(story_texts, tokenizer):
    assert StoryTokenizer.train(iter(story_texts), 1024).digest == tokenizer.digest
    assert StoryTokenizer.train(story_texts[:100], 1024).digest != tokenizer.digest


def test_training_refuses_what_cannot_work(story_texts):
    with pytest.raises(ValueError, match="too short for 4096"):
        StoryTokenizer.train(["one short text"])
    with pytest.raises(ValueError, match="too short for 4096"):
        StoryTokenizer.train([])
    with pytest.raises(TypeError, match="one string"):
        StoryTokenizer.train("a text")
    for size in (0, 256, 65537):
        with pytest.raises(ValueError, match="vocab_size"):
            StoryTokenizer.train(story_texts, size)
    with pytest.raises(TypeError, match="vocab_size"):
        StoryTokenizer.train(story_texts, 1024.0)


def test_smallest_vocabulary_is_the_bytes():
    smallest = StoryTokenizer.train(["abc"], 257)
    assert len(smallest.encode("abc")) == 3
    assert smallest.decode(smallest.encode("é")) == "é"


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "deep" / "tokenizer.json"
    tokenizer.save(path)
    loaded = StoryTokenizer.load(path)
    assert loaded.digest == tokenizer.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.encode("Once upon a time") == tokenizer.encode("Once upon a time")
    assert [entry.name for entry in path.parent.iterdir()] == ["tokenizer.json"]


def test_copies(tokenizer):
    for copied in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert copied.digest == tokenizer.digest
        assert copied.encode("a dog") == tokenizer.encode("a dog")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{}", b"[1]"])
def test_damaged_file(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.json: damaged"):
        StoryTokenizer.load(path)


def test_file_without_the_special_token(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    path.write_text(path.read_text().replace(END_OF_TEXT, "<|other|>"))
    with pytest.raises(ValueError, match=r"has no <.endoftext.> token"):
        StoryTokenizer.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        StoryTokenizer.load(tmp_path / "none.json")
