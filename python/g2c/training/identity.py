"""Which run this is: model, data and config, as JSON that two sessions can compare."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from g2c.artifacts import ChunkedIds
from g2c.pretraining import Ids
from g2c.pretraining.arguments import check_integer_ids
from g2c.training.config import TrainingConfig

_SIZES = (
    "vocab_size",
    "embedding_dim",
    "hidden_dim",
    "layer_pattern",
    "num_layers",
    "num_heads",
    "max_seq_len",
)
_SCAN_TOKENS = 1 << 22


@dataclass(frozen=True)
class DataFacts:
    """What one pass over some token ids finds.

    Attributes:
        num_tokens: in all, or in the chosen chunks.
        lowest, highest: among all ids.
        sha256: of the ids, and of the choice of chunks.
    """

    num_tokens: int
    lowest: int
    highest: int
    sha256: str

    @classmethod
    def of(cls, name: str, ids: Ids) -> DataFacts:
        """Read all ``ids``, memory-mapped ones a block at a time.

        Raises:
            TypeError, ValueError: ``ids``, called ``name``, are none.
        """
        tokens = check_integer_ids(name, ids.ids if isinstance(ids, ChunkedIds) else ids, dims=1)
        if tokens.numel() == 0:
            raise ValueError(f"{name}: there are no tokens")
        digest = hashlib.sha256()
        lows: list[int] = []
        highs: list[int] = []
        for block in torch.split(tokens, _SCAN_TOKENS):
            array = block.contiguous().cpu().numpy()
            digest.update(array.data)
            lows.append(int(array.min()))
            highs.append(int(array.max()))
        if isinstance(ids, ChunkedIds):
            digest.update(f"chunks of {ids.chunk_tokens}".encode())
            digest.update(ids.starts.contiguous().numpy().data)
        return cls(len(ids), min(lows), max(highs), digest.hexdigest())

    def to_dict(self) -> dict[str, Any]:
        return {"num_tokens": self.num_tokens, "sha256": self.sha256}


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Class, sizes that the model names, and every parameter's dtype and shape."""
    sizes = {name: getattr(model, name, None) for name in _SIZES}
    kind = type(model)
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        **{name: size for name, size in sizes.items() if isinstance(size, int | list | tuple)},
        "parameters": {
            name: f"{str(p.dtype).removeprefix('torch.')} {list(p.shape)}"
            for name, p in model.named_parameters()
        },
    }


def check_fit(
    model: nn.Module, train: tuple[Ids, DataFacts], val: DataFacts | None, config: TrainingConfig
) -> None:
    """Raise ValueError for data or a context that the model can't take, before any work."""
    context = config.context_length
    longest = getattr(model, "max_seq_len", None)
    if isinstance(longest, int) and context > longest:
        raise ValueError(f"context_length: {context} is over the model's max_seq_len of {longest}")
    vocab = getattr(model, "vocab_size", None)
    for name, facts in (("train_ids", train[1]), ("val_ids", val)):
        if facts is None:
            continue
        wrong = facts.lowest if facts.lowest < 0 else facts.highest
        if wrong < 0 or (isinstance(vocab, int) and wrong >= vocab):
            raise ValueError(
                f"{name}: id {wrong} is outside the model's vocabulary of {vocab}; the corpus was "
                "made with another tokenizer than the model is for"
            )
    ids = train[0]
    windows = ids.num_windows(context) if isinstance(ids, ChunkedIds) else ids.numel() - context
    if windows < 1:
        raise ValueError(
            f"train_ids: no window of context_length {context} + 1 fits in {ids!r}"
            if isinstance(ids, ChunkedIds)
            else f"train_ids: {ids.numel()} tokens are too few for context_length {context}"
        )
    if val is not None and val.num_tokens < 2:
        raise ValueError("val_ids: one token leaves none to predict")


def identity_of(
    model: nn.Module, train: DataFacts, val: DataFacts | None, config: TrainingConfig
) -> dict[str, Any]:
    """All that the losses and weights of a run follow from, but for its first weights."""
    identity = {
        "config": config.identity(),
        "model": describe_model(model),
        "data": {
            "train": train.to_dict(),
            "validation": None if val is None else val.to_dict(),
        },
    }
    fields: dict[str, Any] = json.loads(json.dumps(identity))
    return fields


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Where two identities differ, as "config.max_lr is 0.0003 there and 0.001 here"."""
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        return [
            line
            for key in keys
            for line in differences(there.get(key), here.get(key), f"{name}.{key}".strip("."))
        ]
    return [] if there == here else [f"{name} is {there} there and {here} here"]


def count_parameters(model: nn.Module) -> int:
    """Numbers in all parameters, tied ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def device_facts(device: torch.device) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return {"device": name, "threads": torch.get_num_threads()}
