"""Tokenizers and tokenized corpora that ``datasets.sh`` makes, and how to load them."""

from g2c.artifacts.chunks import ChunkedIds
from g2c.artifacts.corpus import (
    CorpusSplit,
    TokenizedCorpus,
    available_corpora,
    best_available_corpus,
    load_tokenized_corpus_artifact,
    load_tokenizer_artifact,
)
from g2c.artifacts.files import replacing

__all__ = [
    "ChunkedIds",
    "CorpusSplit",
    "TokenizedCorpus",
    "available_corpora",
    "best_available_corpus",
    "load_tokenized_corpus_artifact",
    "load_tokenizer_artifact",
    "replacing",
]
