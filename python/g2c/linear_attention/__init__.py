"""Linear attention: a fixed recurrent memory in place of a growing cache."""

from g2c._C import HybridState
from g2c.linear_attention.attention import EPS, LinearAttention, feature_map
from g2c.linear_attention.hybrid import HybridBlock, HybridTransformerLM
from g2c.linear_attention.state import RecurrentState

__all__ = [
    "EPS",
    "HybridBlock",
    "HybridState",
    "HybridTransformerLM",
    "LinearAttention",
    "RecurrentState",
    "feature_map",
]
