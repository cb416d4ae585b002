"""Linear attention with a fixed recurrent memory, computed by a LibTorch C++ extension."""

import torch


def _check_torch() -> None:
    try:
        from g2c._build_info import TORCH_VERSION
    except ImportError:
        raise ImportError(
            "g2c's C++ extension is not built: run `pip install -e . --no-build-isolation`"
        ) from None
    if torch.__version__.split("+")[0] != TORCH_VERSION.split("+")[0]:
        raise ImportError(
            f"g2c was built against torch {TORCH_VERSION} but torch {torch.__version__} is "
            "installed: run `pip install --force-reinstall --no-deps . --no-build-isolation`"
        )


_check_torch()

from g2c import attention, embeddings, linear_attention, ops, transformer  # noqa: E402

__all__ = ["attention", "embeddings", "linear_attention", "ops", "transformer"]
__version__ = "0.1.0"
