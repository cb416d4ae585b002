"""The ops behind the modules, as functions of tensors."""

from g2c.ops.linear_attention import linear_attention, linear_attention_step

__all__ = ["linear_attention", "linear_attention_step"]
