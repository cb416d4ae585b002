"""Batches, loss and evaluation of a language model."""

from g2c.pretraining.batches import Ids, get_lm_batch, sample_starts, windows_at
from g2c.pretraining.evaluation import LossReport, evaluate, nats_per_byte
from g2c.pretraining.loss import language_model_loss, lm_cross_entropy

__all__ = [
    "Ids",
    "LossReport",
    "evaluate",
    "get_lm_batch",
    "language_model_loss",
    "lm_cross_entropy",
    "nats_per_byte",
    "sample_starts",
    "windows_at",
]
