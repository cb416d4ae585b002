"""Training language models: optimiser, schedule, and runs that survive being stopped."""

from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from g2c.training.checkpoint import DamagedCheckpointError
from g2c.training.config import TrainingConfig
from g2c.training.loop import NonFiniteLossError
from g2c.training.optimizer import make_optimizer, parameter_groups
from g2c.training.records import History, StepRecord, TrainingResult
from g2c.training.schedule import cosine_with_warmup
from g2c.training.start import train

__all__ = [
    "AdamW",
    "DamagedCheckpointError",
    "History",
    "NonFiniteLossError",
    "StepRecord",
    "TrainingConfig",
    "TrainingResult",
    "clip_grad_norm_",
    "cosine_with_warmup",
    "make_optimizer",
    "parameter_groups",
    "train",
]
