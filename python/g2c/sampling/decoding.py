"""Next-token logits for a growing sequence, by the cheapest way that a model offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from g2c.pretraining.modules import device_of, evaluation_mode

Step = Callable[[torch.Tensor], torch.Tensor]
"""Takes the next token (1,) and gives the logits (V,) after it."""


class Decoder(Protocol):
    """What follows one sequence, as logits (V,): `read` first and once, then `append`."""

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Begin with a prompt (T,), T >= 1."""

    def append(self, token: int) -> torch.Tensor:
        """Go on with one more token."""


class WindowDecoder:
    """Runs the model over the last ``max_seq_len`` tokens, all of them each time."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._limit = _limit(model)
        self._ids = torch.empty(0, dtype=torch.int64, device=device_of(model))

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        self._ids = ids.to(self._ids)
        return self._logits()

    def append(self, token: int) -> torch.Tensor:
        self._ids = torch.cat([self._ids, self._ids.new_tensor([token])])
        return self._logits()

    def _logits(self) -> torch.Tensor:
        if self._limit is not None:
            self._ids = self._ids[-self._limit :]
        with evaluation_mode(self._model):
            logits: torch.Tensor = self._model(self._ids[None])
        return logits[0, -1]


class StepDecoder:
    """Feeds one token at a time to a model that remembers the ones before.

    Positions are absolute: past ``max_seq_len`` the window slides, every token in it moves to
    another position, and what the model remembers is of no more use. From there on the window is
    computed anew for each token.
    """

    def __init__(self, model: nn.Module, step: Step) -> None:
        self._model = model
        self._step = step
        self._limit = _limit(model)
        self._device = device_of(model)
        self._ids: list[int] = []
        self._window: WindowDecoder | None = None

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        self._ids = ids.tolist()
        if self._full():
            return self._slide()
        # Token by token: no model reads a whole prompt into its memory at once.
        for token in self._ids:
            logits = self._feed(token)
        return logits

    def append(self, token: int) -> torch.Tensor:
        if self._window is not None:
            return self._window.append(token)
        self._ids.append(token)
        return self._slide() if self._full() else self._feed(token)

    def _full(self) -> bool:
        return self._limit is not None and len(self._ids) > self._limit

    def _slide(self) -> torch.Tensor:
        self._window = WindowDecoder(self._model)
        return self._window.read(torch.tensor(self._ids))

    def _feed(self, token: int) -> torch.Tensor:
        with evaluation_mode(self._model):
            return self._step(torch.tensor([token], device=self._device))


def make_decoder(model: nn.Module) -> Decoder:
    """Recurrent steps or a KV cache where ``model`` has them, else whole windows."""
    if hasattr(model, "init_state") and hasattr(model, "forward_step"):
        return StepDecoder(model, _recurrent_step(model))
    if hasattr(model, "empty_kv_cache") and hasattr(model, "forward_cached"):
        return StepDecoder(model, _cached_step(model))
    return WindowDecoder(model)


def _recurrent_step(model: Any) -> Step:
    state = model.init_state(1, device_of(model))

    def step(ids: torch.Tensor) -> torch.Tensor:
        nonlocal state
        logits, state = model.forward_step(ids, state)
        return logits[0]

    return step


def _cached_step(model: Any) -> Step:
    cache = model.empty_kv_cache()

    def step(ids: torch.Tensor) -> torch.Tensor:
        nonlocal cache
        logits, cache = model.forward_cached(ids[None], cache)
        return logits[0, -1]

    return step


def _limit(model: nn.Module) -> int | None:
    limit = getattr(model, "max_seq_len", None)
    return limit if isinstance(limit, int) else None
