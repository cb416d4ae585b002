"""The memory bill: bytes of history that an attention layer holds while it decodes.

A bill counts what one sequence keeps between two tokens, for one layer: the keys and values of a
softmax layer, or the recurrent state (S, z) of a linear one. It leaves out weights and activations,
which all kinds pay alike. Shapes: D = embedding_dim, H = num_heads, d = D / H.

    mha      keys and values of every head, all tokens         2 · T · D
    gqa      keys and values of kv_heads heads, all tokens     2 · T · kv_heads · d
    window   keys and values of the last ``window`` tokens     2 · min(T, window) · D
    linear   S (H, d, d) and z (H, d), whatever T is           H · d² + H · d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("mha", "gqa", "window", "linear")
_LETTERS = {"F": "full", "L": "linear"}
_STACK_KINDS = ("full", *KINDS)


def bill(
    kind: str,
    *,
    tokens: int,
    embedding_dim: int,
    num_heads: int,
    kv_heads: int | None = None,
    window: int | None = None,
    bytes_per_value: int = 2,
    state_bytes_per_value: int = 2,
) -> int:
    """Bytes that one layer of ``kind`` keeps for one sequence of ``tokens`` tokens.

    ``kv_heads`` belongs to "gqa" and must divide ``num_heads``; ``window``, in tokens, belongs to
    "window". ``bytes_per_value`` is the size of a cached key or value entry (2 for fp16 and bf16),
    ``state_bytes_per_value`` that of an entry of (S, z).

    Raises ValueError for an unknown kind, a size that isn't positive (``tokens`` may be 0), heads
    that don't divide, or an argument that the kind is missing or has no use for; TypeError for a
    size that isn't an int.
    """
    if kind not in KINDS:
        raise ValueError(f"bill: kind must be one of {', '.join(KINDS)}, got {kind!r}")
    _check_sizes(tokens, embedding_dim, num_heads, bytes_per_value, state_bytes_per_value)
    kv_width = _kv_width(kind, embedding_dim, num_heads, kv_heads)
    kept = _kept_tokens(kind, tokens, window)
    if kind == "linear":
        head_dim = embedding_dim // num_heads
        return num_heads * head_dim * (head_dim + 1) * state_bytes_per_value
    return 2 * kept * kv_width * bytes_per_value


@dataclass(frozen=True)
class StackBill:
    """The bill of a whole stack, for one sequence.

    ``kinds`` names each layer's kind ("mha", "gqa", "window" or "linear"), first layer first,
    ``layer_bytes`` what it keeps at ``tokens`` tokens, and ``growing`` the indices of the layers
    that will keep more at the next token. A window layer grows until its window is full.
    """

    tokens: int
    kinds: tuple[str, ...]
    layer_bytes: tuple[int, ...]
    growing: tuple[int, ...]

    @property
    def total(self) -> int:
        """Bytes of all layers together."""
        return sum(self.layer_bytes)

    @property
    def growing_bytes(self) -> int:
        """Bytes held by the layers that still grow."""
        return sum(self.layer_bytes[i] for i in self.growing)

    @property
    def fixed_bytes(self) -> int:
        """Bytes held by the layers that have stopped growing, or never grew."""
        return self.total - self.growing_bytes


def stack_bill(
    pattern: str | Sequence[str],
    *,
    tokens: int,
    embedding_dim: int,
    num_heads: int,
    kv_heads: int | None = None,
    window: int | None = None,
    bytes_per_value: int = 2,
    state_bytes_per_value: int = 2,
) -> StackBill:
    """The bill of a stack whose layers follow ``pattern``, each with the same sizes.

    ``pattern`` is a sequence of "linear", "full", "mha", "gqa" or "window", or a string of the
    letters L and F such as "LLLF". A "full" layer is billed as "gqa" where ``kv_heads`` is given,
    else as "mha". ``kv_heads`` and ``window`` reach only the layers that have a use for them, and
    are refused where no layer has.

    Raises ValueError for an empty pattern or an unknown kind, and whatever `bill` raises.
    """
    full = "mha" if kv_heads is None else "gqa"
    kinds = tuple(full if kind == "full" else kind for kind in _pattern_kinds(pattern))
    for name, value, owner in (("kv_heads", kv_heads, "gqa"), ("window", window, "window")):
        if value is not None and owner not in kinds:
            raise ValueError(f"stack_bill: {name}={value} is given, but no layer is {owner!r}")
    layer_bytes = tuple(
        bill(
            kind,
            tokens=tokens,
            embedding_dim=embedding_dim,
            num_heads=num_heads,
            kv_heads=kv_heads if kind == "gqa" else None,
            window=window if kind == "window" else None,
            bytes_per_value=bytes_per_value,
            state_bytes_per_value=state_bytes_per_value,
        )
        for kind in kinds
    )
    growing = tuple(i for i, kind in enumerate(kinds) if _grows(kind, tokens, window))
    return StackBill(tokens, kinds, layer_bytes, growing)


def format_bytes(count: int) -> str:
    """``count`` bytes in decimal units with three significant digits, such as "16.4 GB"."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    if unit == "B":
        return f"{count} B"
    return f"{value:.0f} {unit}" if value >= 999.5 else f"{value:#.3g}".rstrip(".") + f" {unit}"


def _pattern_kinds(pattern: str | Sequence[str]) -> tuple[str, ...]:
    kinds = tuple(_LETTERS.get(c, c) for c in pattern) if isinstance(pattern, str) else (*pattern,)
    if not kinds:
        raise ValueError("stack_bill: pattern must name at least one layer, got an empty one")
    for kind in kinds:
        if kind not in _STACK_KINDS:
            allowed = ", ".join(_STACK_KINDS)
            raise ValueError(
                f"stack_bill: pattern may hold {allowed}, or be a string of L and F; got {kind!r}"
            )
    return kinds


def _grows(kind: str, tokens: int, window: int | None) -> bool:
    if kind == "window":
        return window is not None and tokens < window
    return kind != "linear"


def _check_sizes(tokens: int, embedding_dim: int, num_heads: int, value_bytes: int, state_bytes: int) -> None:
    _check_int("tokens", tokens, minimum=0)
    _check_int("embedding_dim", embedding_dim)
    _check_int("num_heads", num_heads)
    _check_int("bytes_per_value", value_bytes)
    _check_int("state_bytes_per_value", state_bytes)
    if embedding_dim % num_heads:
        raise ValueError(
            f"bill: embedding_dim must be divisible by num_heads, got {embedding_dim} and {num_heads}"
        )


def _check_int(name: str, value: int, *, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"bill: {name} must be an int, got {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"bill: {name} must be at least {minimum}, got {value}")


def _kv_width(kind: str, embedding_dim: int, num_heads: int, kv_heads: int | None) -> int:
    if kind != "gqa":
        if kv_heads is not None:
            raise ValueError(f"bill: kv_heads belongs to 'gqa' only, got {kv_heads} for {kind!r}")
        return embedding_dim
    if kv_heads is None:
        raise ValueError("bill: 'gqa' needs kv_heads, the number of key/value heads")
    _check_int("kv_heads", kv_heads)
    if num_heads % kv_heads:
        raise ValueError(f"bill: kv_heads must divide num_heads, got {kv_heads} for {num_heads} heads")
    return kv_heads * (embedding_dim // num_heads)


def _kept_tokens(kind: str, tokens: int, window: int | None) -> int:
    if kind != "window":
        if window is not None:
            raise ValueError(f"bill: window belongs to 'window' only, got {window} for {kind!r}")
        return tokens
    if window is None:
        raise ValueError("bill: 'window' needs window, the number of tokens that it keeps")
    _check_int("window", window)
    return min(tokens, window)
