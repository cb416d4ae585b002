from __future__ import annotations

import collections

import pytest
import torch

from g2c.artifacts import ChunkedIds


def chunked(total: int, size: int, starts: list[int]) -> ChunkedIds:
    return ChunkedIds(torch.arange(total), size, torch.tensor(starts, dtype=torch.int64))


def test_chunks_come_in_the_given_order():
    ids = chunked(10, 4, [8, 0])
    assert [chunk.tolist() for chunk in ids] == [[8, 9], [0, 1, 2, 3]]
    assert len(ids) == 6
    assert ids.chunk_lengths().tolist() == [2, 4]
    assert "2 chunks of 4" in repr(ids)


@pytest.mark.parametrize("context", [1, 2, 3])
def test_every_window_inside_a_chunk_is_drawn_alike_and_no_other(context):
    ids = chunked(22, 4, [12, 20, 0])
    allowed = [
        start
        for begin, length in ((12, 4), (20, 2), (0, 4))
        for start in range(begin, begin + length - context)
    ]
    assert ids.num_windows(context) == len(allowed)
    draws = 4000
    generator = torch.Generator().manual_seed(1)
    drawn = ids.sample_starts(draws, context, generator=generator)
    counts = collections.Counter(drawn.tolist())
    assert set(counts) == set(allowed)
    expected = draws / len(allowed)
    assert all(abs(count - expected) < 6 * expected**0.5 for count in counts.values())


def test_draws_follow_the_generator():
    ids = chunked(1000, 50, [0, 500, 250])
    first, second, third = (
        ids.sample_starts(20, 8, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (3, 3, 4)
    )
    assert first == second != third
    assert ids.sample_starts(0, 8).shape == (0,)


def test_windows_that_do_not_fit_are_refused():
    ids = chunked(22, 4, [12, 20, 0])
    assert ids.num_windows(4) == 0
    with pytest.raises(ValueError, match="context_length: 4 needs chunks of at least 5"):
        ids.sample_starts(1, 4)
    with pytest.raises(ValueError, match="context_length: got 0"):
        ids.sample_starts(1, 0)
    with pytest.raises(ValueError, match="context_length"):
        chunked(8, 4, []).sample_starts(1, 1)


@pytest.mark.parametrize(
    ("total", "size", "starts", "message"),
    [
        (8, 0, [0], "chunk_tokens: got 0"),
        (8, 4, [2], "2 is not the start of a chunk"),
        (8, 4, [8], "8 is not the start"),
        (8, 4, [-4], "-4 is not the start"),
    ],
)
def test_malformed_chunks(total, size, starts, message):
    with pytest.raises(ValueError, match=message):
        chunked(total, size, starts)


def test_malformed_tensors():
    with pytest.raises(ValueError, match="ids: expected one dimension"):
        ChunkedIds(torch.zeros(2, 2), 1, torch.tensor([0]))
    with pytest.raises(ValueError, match="starts: expected int64"):
        ChunkedIds(torch.arange(4), 2, torch.tensor([0.0]))
