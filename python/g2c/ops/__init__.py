"""The ops behind the modules, as functions of tensors."""

from g2c.ops.implementation import implementation
from g2c.ops.linear_attention import linear_attention, linear_attention_step

__all__ = ["implementation", "linear_attention", "linear_attention_step"]
