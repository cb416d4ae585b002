"""Windows of get_lm_batch: which ones, from what, and how evenly."""

import numpy as np
import pytest
import torch

from g2c.artifacts import ChunkedIds
from g2c.pretraining import get_lm_batch, sample_starts, windows_at


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_batch_is_neighbouring_tokens():
    x, y = get_lm_batch(torch.arange(1000), 16, 32, generator=seeded())
    assert x.shape == y.shape == (16, 32)
    assert x.dtype == y.dtype == torch.int64
    assert x.is_contiguous() and y.is_contiguous()
    assert torch.equal(x, x[:, :1] + torch.arange(32))
    assert torch.equal(y, x + 1)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32]


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.int64, torch.uint64], ids=str)
def test_every_integer_dtype_keeps_its_values(dtype):
    top = min(torch.iinfo(dtype).max, 2**40)
    values = np.linspace(0, top, 50).astype(np.int64)
    ids = torch.from_numpy(values.astype(str(dtype).removeprefix("torch.")))
    x, y = get_lm_batch(ids, 64, 5, generator=seeded())
    expected = get_lm_batch(torch.from_numpy(values), 64, 5, generator=seeded())
    assert torch.equal(x, expected[0]) and torch.equal(y, expected[1])
    assert int(y.max()) == int(values[-1])


def test_a_memory_mapped_token_file(tmp_path):
    tokens = np.arange(60_000, dtype=np.uint16)
    (tmp_path / "tokens.bin").write_bytes(tokens.tobytes())
    mapped = torch.from_file(str(tmp_path / "tokens.bin"), size=60_000, dtype=torch.uint16)
    x, y = get_lm_batch(mapped, 32, 100, generator=seeded())
    assert torch.equal(y, x + 1)
    assert int(x.max()) > 2**15


def test_all_windows_are_equally_likely_and_the_ends_are_reached():
    starts = sample_starts(torch.arange(9), 8000, 4, generator=seeded())
    counts = torch.bincount(starts, minlength=5)
    assert counts.numel() == 5
    # 1600 each, standard deviation 36.
    assert (counts - 1600).abs().max() < 180


def test_the_generator_decides_and_torchs_own_is_the_default():
    ids = torch.arange(500)
    first, again = (get_lm_batch(ids, 4, 8, generator=seeded(7))[0] for _ in range(2))
    assert torch.equal(first, again)
    torch.manual_seed(7)
    assert torch.equal(get_lm_batch(ids, 4, 8)[0], first)
    before = torch.get_rng_state()
    get_lm_batch(ids, 4, 8, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_half_and_the_gathering_half_make_the_whole():
    ids = torch.randint(100, (500,))
    x, y = get_lm_batch(ids, 6, 9, generator=seeded())
    starts = sample_starts(ids, 6, 9, generator=seeded())
    halves = [windows_at(ids, part, 9) for part in starts.split(2)]
    assert torch.equal(torch.cat([part[0] for part in halves]), x)
    assert torch.equal(torch.cat([part[1] for part in halves]), y)


def test_windows_never_cross_chunks():
    ids = torch.arange(1, 95).to(torch.uint16)  # chunks of 10; the last has 4
    chosen = ChunkedIds(ids, 10, torch.tensor([90, 30, 0]))
    x, y = get_lm_batch(chosen, 4000, 3, generator=seeded())
    assert torch.equal(y, x + 1)
    first, last = (x[:, 0] - 1) // 10, (y[:, -1] - 1) // 10
    assert torch.equal(first, last)
    assert set(first.tolist()) == {0, 3, 9}
    counts = torch.bincount(x[:, 0])[torch.tensor([*range(1, 8), *range(31, 38), 91])]
    assert int(counts.sum()) == 4000  # 7 windows in each whole chunk, one in the short
    assert (counts - 4000 / 15).abs().max() < 90


GOOD = torch.arange(20)


@pytest.mark.parametrize(
    ("ids", "batch_size", "context_length", "error", "says"),
    [
        (torch.arange(8), 2, 8, ValueError, "8 tokens are too few for context_length 8"),
        (torch.empty(0, dtype=torch.int64), 2, 1, ValueError, "0 tokens are too few"),
        (GOOD, 0, 4, ValueError, "batch_size: expected at least 1, got 0"),
        (GOOD, 2, 0, ValueError, "context_length: expected at least 1, got 0"),
        (GOOD, 2.0, 4, TypeError, "batch_size: expected an integer, got 2.0"),
        (GOOD, True, 4, TypeError, "batch_size: expected an integer"),
        (GOOD.float(), 2, 4, TypeError, "ids: expected integer token ids, got torch.float32"),
        (GOOD > 3, 2, 4, TypeError, "got torch.bool"),
        (GOOD.view(4, 5), 2, 4, ValueError, r"ids: expected 1 dimension, got shape \(4, 5\)"),
        (GOOD.tolist(), 2, 4, TypeError, "ids: expected a tensor of token ids, got list"),
        (ChunkedIds(GOOD, 4, torch.tensor([0])), 2, 4, ValueError, "context_length: 4 needs chunks"),
    ],
)
def test_bad_input(ids, batch_size, context_length, error, says):
    with pytest.raises(error, match=says):
        get_lm_batch(ids, batch_size, context_length)
