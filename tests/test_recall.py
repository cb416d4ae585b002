from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from g2c import recall
from g2c.recall import Accuracy, RecallConfig, RecallResult, make_rows, wilson


def rows(count: int = 200, seed: int = 0, questions: int = 1) -> recall.Rows:
    generator = torch.Generator().manual_seed(seed)
    return make_rows(count, generator=generator, questions=questions)


class Lookup(torch.nn.Module):
    """Answers a question perfectly, except about pairs further back than ``reach``."""

    def __init__(self, reach: int = recall.PAIRS) -> None:
        super().__init__()
        self.reach = reach
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*ids.shape, recall.VOCAB_SIZE)
        for row, line in enumerate(ids):
            text = recall.decode(line)
            start = 4 * (recall.PAIRS - self.reach)
            known = dict(pair.split("=") for pair in text[start:48].split(";") if pair)
            for place in range(49, len(text), 3):
                if text[place] in known:
                    logits[row, place, recall.ALPHABET.index(known[text[place]])] = 30.0
        return logits


def test_there_are_39_tokens() -> None:
    assert recall.VOCAB_SIZE == 39
    assert len(set(recall.ALPHABET)) == 39


@pytest.mark.parametrize("questions", [1, 5])
def test_rows_read_as_documented(questions: int) -> None:
    drawn = rows(questions=questions)
    assert drawn.ids.shape == (200, 48 + 3 * questions)
    assert drawn.ids.shape[1] <= recall.MAX_SEQ_LEN
    for i in range(200):
        text = recall.decode(drawn.ids[i])
        pairs = [text[4 * k : 4 * k + 4] for k in range(12)]
        assert all(p[0].isalpha() and p[1] == "=" and p[2].isdigit() and p[3] == ";" for p in pairs)
        known = {p[0]: (p[2], 12 - k) for k, p in enumerate(pairs)}
        assert len(known) == 12
        asked = [text[48 + 3 * k :][:3] for k in range(questions)]
        assert len({a[1] for a in asked}) == questions
        for k, (sign, letter, digit) in enumerate(asked):
            assert sign == "?"
            assert known[letter] == (digit, drawn.distance[i, k].item())
            assert recall.ALPHABET[drawn.answers[i, k]] == digit
            assert text[drawn.asked_at[k]] == letter


def test_rows_follow_the_seed() -> None:
    assert torch.equal(rows(seed=3).ids, rows(seed=3).ids)
    assert not torch.equal(rows(seed=3).ids, rows(seed=4).ids)


def test_every_letter_digit_and_distance_occurs() -> None:
    drawn = recall.evaluation_rows()
    assert drawn.ids.unique().tolist() == list(range(39))
    counts = drawn.distance.flatten().bincount(minlength=13)[1:]
    assert counts.sum() == 2560
    assert counts.min() > 130


def test_text_round_trip() -> None:
    assert recall.decode(recall.encode("f=3;?f3")) == "f=3;?f3"
    with pytest.raises(ValueError, match="'F'"):
        recall.encode("F=3")


@pytest.mark.parametrize(("count", "questions"), [(-1, 1), (4, 0), (4, 6)])
def test_rows_that_do_not_fit_are_refused(count: int, questions: int) -> None:
    with pytest.raises(ValueError, match="make_rows"):
        rows(count, questions=questions)


def test_no_rows() -> None:
    assert rows(0).ids.shape == (0, 51)


def test_evaluation_of_a_perfect_and_of_a_short_memory() -> None:
    drawn = rows(300)
    overall, by_distance = recall.evaluate(Lookup(), drawn)
    assert overall == Accuracy(None, 300, 300)
    assert [a.distance for a in by_distance] == list(range(1, 13))
    assert sum(a.asked for a in by_distance) == 300

    _, short = recall.evaluate(Lookup(reach=4), drawn, batch_size=7)
    assert [a.rate for a in short] == [1.0] * 4 + [0.0] * 8


def test_answer_loss_counts_the_answers_only() -> None:
    drawn = rows(questions=5)
    assert recall.answer_loss(Lookup(), drawn).item() == pytest.approx(0.0, abs=1e-9)
    # A model that knows nothing pays the same for each of the 39 tokens.
    assert recall.answer_loss(Lookup(reach=0), drawn).item() == pytest.approx(math.log(39))


def test_frequent_digit_rate() -> None:
    row = "a=1;b=1;c=1;d=2;e=2;f=3;g=4;h=5;i=6;j=7;k=8;l=9;?"
    drawn = recall.Rows(
        torch.stack([recall.encode(row + "a1"), recall.encode(row + "d2")]),
        torch.stack([recall.encode("1"), recall.encode("2")]),
        torch.tensor([[12], [9]]),
    )
    assert recall.frequent_digit_rate(drawn) == 0.5
    assert 0.2 < recall.frequent_digit_rate(recall.evaluation_rows()) < 0.3


def test_wilson_interval() -> None:
    low, high = wilson(50, 100)
    assert (low, high) == (pytest.approx(0.40383, abs=1e-4), pytest.approx(0.59617, abs=1e-4))
    assert wilson(0, 10) == (0.0, pytest.approx(0.27753, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.72247, abs=1e-4), 1.0)
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="11 of 10"):
        wilson(11, 10)


def test_accuracy_without_questions_is_unknown() -> None:
    assert math.isnan(Accuracy(3, 0, 0).rate)
    assert Accuracy(3, 1, 4).rate == 0.25


@pytest.mark.parametrize("name", ["steps", "batch_size", "embedding_dim"])
def test_config_is_checked(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(RecallConfig(), **{name: 0})


SMALL = RecallConfig(steps=12, batch_size=4, embedding_dim=16, num_heads=2, hidden_dim=32)


def test_learning_rate_rises_and_falls() -> None:
    config = RecallConfig()
    assert config.lr(0) < config.lr(49) == pytest.approx(3e-3)
    assert config.lr(599) == pytest.approx(3e-4, rel=1e-2)


@pytest.mark.parametrize("pattern", ["LF", ("linear", "full")])
def test_training_is_reproducible(pattern: str | tuple[str, ...]) -> None:
    model, first = recall.train_probe(pattern, seed=1, config=SMALL, progress=False)
    _, again = recall.train_probe(pattern, seed=1, config=SMALL, progress=False)
    _, other = recall.train_probe(pattern, seed=2, config=SMALL, progress=False)
    assert list(model.layer_pattern) == ["linear", "full"]
    assert first == again
    assert first.losses != other.losses
    assert first.pattern == "LF"
    assert len(first.losses) == 12
    assert first.overall.asked == 2560


def test_training_lowers_the_loss() -> None:
    config = dataclasses.replace(SMALL, steps=150, batch_size=16)
    _, result = recall.train_probe("L", config=config, progress=False)
    # Knowing that answers are digits takes the loss from ln 39 to ln 10.
    assert result.losses[0] > 3.0
    assert sum(result.losses[-10:]) / 10 < 2.45
    assert result.overall.interval[0] > 0.07


def test_unknown_layer_kind() -> None:
    with pytest.raises(ValueError, match="sparse"):
        recall.train_probe(["sparse"], config=SMALL, progress=False)


def test_results_survive_json() -> None:
    _, result = recall.train_probe("L", config=SMALL, progress=False)
    assert RecallResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    for damaged in (None, {}, {**result.to_json(), "overall": {"right": 1}}):
        with pytest.raises(ValueError, match="not a recall result"):
            RecallResult.from_json(damaged)
