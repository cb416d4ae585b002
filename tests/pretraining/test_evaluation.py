"""evaluate, against a loop over tokens."""

import pytest
import torch
from torch import nn

from g2c.artifacts import ChunkedIds
from g2c.linear_attention import HybridTransformerLM
from g2c.pretraining import evaluate, nats_per_byte

T = 8


@pytest.fixture
def model():
    return HybridTransformerLM(20, 16, ["linear", "full"], 2, T)


def token_by_token(model, pieces):
    """Nats of every token but the first of each piece, given the tokens before it in its window."""
    nats = []
    with torch.no_grad():
        for piece in pieces:
            for position in range(1, piece.numel()):
                begin = (position - 1) // T * T
                logits = model(piece[None, begin:position])[0, -1].double()
                nats.append(float(logits.logsumexp(0) - logits[piece[position]]))
    return nats


@pytest.mark.parametrize("n", [2, T, T + 1, T + 2, 3 * T + 1, 5 * T - 2])
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_every_token_but_the_first_counts_once(model, n, batch_size):
    ids = torch.randint(20, (n,))
    nats = token_by_token(model, [ids])
    report = evaluate(model, ids.to(torch.uint16), T, batch_size)
    assert report.num_tokens == n - 1 == len(nats)
    assert report.nats_per_token == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_chunks_are_evaluated_one_by_one(model):
    ids = torch.randint(20, (11 * 5 + 3,))
    chunked = ChunkedIds(ids.to(torch.uint16), 11, torch.tensor([33, 55, 0]))
    nats = token_by_token(model, list(ids[s : s + 11] for s in (33, 55, 0)))
    report = evaluate(model, chunked, T, 2)
    assert report.num_tokens == 10 + 2 + 10
    assert report.nats_per_token == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_max_batches_takes_windows_from_everywhere(model):
    ids = torch.arange(T * 12 + 1) % 20
    seen = []
    model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][:, 0].clone()))
    report = evaluate(model, ids, T, 2, max_batches=2)
    assert report.num_tokens == 4 * T
    assert torch.cat(seen).tolist() == [int(ids[T * i]) for i in (0, 3, 6, 9)]
    whole = evaluate(model, ids, T, 2)
    assert evaluate(model, ids, T, 2, max_batches=6) == whole
    assert evaluate(model, ids, T, 2, max_batches=100) == whole


def test_is_deterministic_and_draws_nothing(model):
    ids = torch.randint(20, (100,))
    before = torch.get_rng_state()
    assert evaluate(model, ids, T, 4) == evaluate(model, ids, T, 4)
    assert torch.equal(torch.get_rng_state(), before)


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 20)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.Dropout(0.5).eval()

    def forward(self, ids):
        return self.frozen(self.dropout(self.embedding(ids)))


def test_dropout_is_off_and_every_mode_comes_back():
    model = WithDropout()
    ids = torch.randint(20, (50,))
    assert evaluate(model, ids, T, 4) == evaluate(model, ids, T, 4)
    assert model.training and model.dropout.training and not model.frozen.training
    model.eval()
    evaluate(model, ids, T, 4)
    assert not model.dropout.training


def test_modes_come_back_after_an_error():
    model = WithDropout()
    with pytest.raises(IndexError):
        evaluate(model, torch.full((50,), 99), T, 4)
    assert model.dropout.training and not model.frozen.training


def test_progress_counts_tokens_and_no_graph_is_kept(model):
    calls = []
    seen = []
    model.register_forward_hook(lambda _, inputs, output: seen.append(output.requires_grad))
    evaluate(model, torch.randint(20, (3 * T + 4,)), T, 2, progress=lambda *c: calls.append(c))
    assert calls == [(2 * T, 3 * T + 3), (3 * T, 3 * T + 3), (3 * T + 3, 3 * T + 3)]
    assert seen == [False] * 3


def test_nats_per_byte():
    assert nats_per_byte(4.188, 197_838, 802_826) == pytest.approx(1.032, abs=5e-4)
    with pytest.raises(ValueError, match="num_bytes: expected at least 1, got 0"):
        nats_per_byte(4.0, 10, 0)
    with pytest.raises(ValueError, match="num_tokens"):
        nats_per_byte(4.0, 0, 10)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.tensor([3]), T, 4), "ids: 1 tokens leave none to predict"),
        ((torch.arange(9), 0, 4), "context_length: expected at least 1, got 0"),
        ((torch.arange(9), T, 0), "batch_size: expected at least 1, got 0"),
        ((torch.arange(9)[None], T, 4), "ids: expected 1 dimension"),
        ((torch.arange(10), T + 1, 4), "max_seq_len"),
        ((torch.arange(30), T, 4), r"ids must lie in \[0, 20\)"),
    ],
)
def test_bad_input(model, arguments, says):
    with pytest.raises(ValueError, match=says):
        evaluate(model, *arguments)


def test_bad_max_batches(model):
    with pytest.raises(ValueError, match="max_batches: expected at least 1, got 0"):
        evaluate(model, torch.arange(9), T, 4, max_batches=0)
