"""Random states that a run carries across sessions."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RandomState:
    """States of the generator of the data and of torch's global ones, each a uint8 tensor.

    ``device`` is that of the accelerator that the model is on, None on the CPU.
    """

    data: torch.Tensor
    cpu: torch.Tensor
    device: torch.Tensor | None

    @classmethod
    def capture(cls, data: torch.Generator, device: torch.device) -> RandomState:
        on_device = None
        if device.type == "cuda":
            on_device = torch.cuda.get_rng_state(device)
        elif device.type == "mps":
            on_device = torch.mps.get_rng_state()
        return cls(data.get_state(), torch.get_rng_state(), on_device)

    def restore(self, data: torch.Generator, device: torch.device) -> None:
        data.set_state(self.data)
        torch.set_rng_state(self.cpu)
        if self.device is not None and device.type == "cuda":
            torch.cuda.set_rng_state(self.device, device)
        elif self.device is not None and device.type == "mps":
            torch.mps.set_rng_state(self.device)

    def to_json(self) -> dict[str, str | None]:
        return {
            "data": _encode(self.data),
            "cpu": _encode(self.cpu),
            "device": None if self.device is None else _encode(self.device),
        }

    @classmethod
    def from_json(cls, fields: dict[str, str | None]) -> RandomState:
        data, cpu, device = fields["data"], fields["cpu"], fields["device"]
        if data is None or cpu is None:
            raise ValueError("random states are missing")
        return cls(_decode(data), _decode(cpu), None if device is None else _decode(device))


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
