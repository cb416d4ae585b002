"""The real text, where it lies beside the repository."""

from __future__ import annotations

import pytest

from g2c.artifacts import load_tokenized_corpus_artifact, prepare
from g2c.artifacts.tinystories import PREFIX_BYTES, PREFIX_SHA256
from tests.data.conftest import TINYSTORIES


@pytest.mark.skipif(
    not TINYSTORIES.is_dir(), reason="the TinyStories heads are not present beside the repository"
)
def test_counts_of_the_real_text(capsys):
    train, valid = (TINYSTORIES / f"tinystories-v1-{split}-head.txt.xz" for split in ("train", "valid"))
    assert prepare.main(["--from", str(train), "--validation", str(valid), "--name", "head"]) == 0
    corpus = load_tokenized_corpus_artifact("head")
    record = corpus.metadata.text
    assert (record.source_bytes, record.source_sha256) == (PREFIX_BYTES, PREFIX_SHA256)
    assert record.num_stories == 2316
    assert corpus.num_bytes == PREFIX_BYTES
    assert corpus.validation_num_bytes == 802_863
    assert corpus.metadata.vocab_size == 4096
    # Measured independently: 516,699 and 197,838 tokens, 4.058 bytes per token.
    assert abs(corpus.ids.numel() - 516_699) <= 50
    assert abs(corpus.validation.numel() - 197_838) <= 20
    assert corpus.validation_num_bytes / corpus.validation.numel() == pytest.approx(4.058, abs=1e-3)
    for ids in (corpus.ids, corpus.validation):
        text = corpus.tokenizer.decode(ids[:2000])
        assert corpus.tokenizer.encode(text)[:1900] == ids[:1900].tolist()
