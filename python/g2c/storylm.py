"""The StoryLM family: sizes, layer patterns, and how to build one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from g2c.linear_attention import HybridTransformerLM

VOCAB_SIZE = 4096
MAX_PATTERN_LAYERS = 1024

_KINDS = {"L": "linear", "F": "full"}


@dataclass(frozen=True)
class Preset:
    """Sizes of a model; `pattern` is that of its hybrid."""

    embedding_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    pattern: str
    max_seq_len: int = 256


PRESETS: dict[str, Preset] = {
    "storylm-1m": Preset(128, 4, 4, 512, "LLLF"),
    "storylm-5m": Preset(256, 6, 8, 1024, "LLLFLL"),
    "storylm-30m": Preset(512, 9, 8, 2048, "LLLFLLLFL"),
}


def parse_pattern(pattern: str | Sequence[str], num_layers: int | None = None) -> list[str]:
    """A layer pattern as a list of "linear" and "full".

    Takes "LLLF", "(LLLF)x2", the words "full" and "linear" (every one of `num_layers` layers), or
    a list of kinds. Raises ValueError for anything else, and for a length other than num_layers.
    """
    if isinstance(pattern, str) and pattern in _KINDS.values():
        if num_layers is None:
            raise ValueError(
                f"pattern {pattern!r} needs a number of layers; write it as {pattern[0].upper()!r} times that"
            )
        return [pattern] * num_layers
    kinds = _expand(pattern) if isinstance(pattern, str) else list(pattern)
    unknown = [kind for kind in kinds if kind not in _KINDS.values()]
    if unknown or not kinds:
        raise ValueError(
            f"pattern must name layers as 'linear' and 'full', 'LLLF' or '(LLLF)x2', got {pattern!r}"
        )
    if num_layers is not None and len(kinds) != num_layers:
        raise ValueError(f"pattern {pattern!r} has {len(kinds)} layers, the model {num_layers}")
    return kinds


def _expand(text: str) -> list[str]:
    kinds: list[str] = []
    for match in re.finditer(r"\(([LF]+)\)x(\d{1,4})|([LF]+)|(.)", text):
        group, times, plain, other = match.groups()
        if other is not None:
            return []
        kinds += [_KINDS[letter] for letter in (group * int(times) if group else plain)]
        if len(kinds) > MAX_PATTERN_LAYERS:
            raise ValueError(f"pattern {text!r} has more than {MAX_PATTERN_LAYERS} layers")
    return kinds


def build(
    preset: str, pattern: str | Sequence[str] | None = None, *, vocab_size: int = VOCAB_SIZE
) -> HybridTransformerLM:
    """A model of a preset's sizes; without a pattern, the preset's hybrid.

    Raises ValueError for an unknown preset, or a pattern of another length.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    sizes = PRESETS[preset]
    kinds = parse_pattern(sizes.pattern if pattern is None else pattern, sizes.num_layers)
    return HybridTransformerLM(
        vocab_size,
        sizes.embedding_dim,
        kinds,
        sizes.num_heads,
        sizes.max_seq_len,
        hidden_dim=sizes.hidden_dim,
    )
