"""Which code serves a call."""

from __future__ import annotations

import torch

_FORMS = {"auto": "chunkwise", "parallel": "parallel", "chunkwise": "chunkwise", "recurrent": "recurrent"}
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "meta": "Meta"}


def implementation(form: str = "auto", device: torch.device | str = "cpu") -> str:
    """What computes `linear_attention(..., form=form)` on a device, as "form/backend".

    The backend is "aten" where ATen calls do it, which every device can run, and the device's name
    where it has a kernel of its own. Nothing falls back silently: a form is never exchanged for
    another. Raises ValueError for an unknown form or device.
    """
    if form not in _FORMS:
        raise ValueError(f"implementation: form must be one of {', '.join(_FORMS)}, got {form!r}")
    kind = torch.device(device).type
    if kind not in _BACKENDS:
        raise ValueError(f"implementation: device must be one of {', '.join(_BACKENDS)}, got {kind!r}")
    op = f"g2c::linear_attention_{_FORMS[form]}"
    own = torch._C._dispatch_has_kernel_for_dispatch_key(op, _BACKENDS[kind])
    return f"{_FORMS[form]}/{kind if own else 'aten'}"
