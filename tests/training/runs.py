"""Small models and runs that the training tests share."""

import hashlib
import json
from pathlib import Path

import torch
from torch import nn

from g2c.linear_attention import HybridTransformerLM
from g2c.training import TrainingConfig, train
from g2c.transformer import TransformerLM

VOCAB = 40
CONTEXT = 8


def tokens(n=2000, seed=3):
    """Some learnable text: a noisy cycle through the vocabulary, (n,) uint16."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 4, (n,), generator=generator)
    return (steps.cumsum(0) % VOCAB).to(torch.uint16)


TRAIN, VAL = tokens(), tokens(300, seed=4)


def config(**changes):
    fields = {
        "steps": 20,
        "batch_size": 4,
        "context_length": CONTEXT,
        "max_lr": 3e-3,
        "min_lr": 3e-4,
        "eval_every": 6,
        "eval_batches": 3,
        "checkpoint_every": 5,
    }
    return TrainingConfig(**{**fields, **changes})


def hybrid(seed=0, pattern=("linear", "full")):
    torch.manual_seed(seed)
    return HybridTransformerLM(VOCAB, 16, list(pattern), 2, 16)


def transformer(seed=0):
    torch.manual_seed(seed)
    return TransformerLM(VOCAB, 16, 2, 2, 16)


class DropoutLM(nn.Module):
    """A plain PyTorch model that draws random numbers and ties its head to its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(16, VOCAB)
        self.head.weight = self.embedding.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, ids):
        self.calls += self.training
        return self.head(self.dropout(self.embedding(ids)))


def dropout_model(seed=0):
    torch.manual_seed(seed)
    return DropoutLM()


def run(model, run_dir=None, cfg=None, **options):
    """train() without bars; what it reports goes to options["report"] or nowhere."""
    options.setdefault("report", lambda line: None)
    options.setdefault("progress", False)
    return train(model, TRAIN, VAL, cfg or config(), run_dir=run_dir, **options)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a, b):
    """Whether two state dicts are equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def steps_on_disk(run_dir):
    return sorted(path.name for path in (Path(run_dir) / "checkpoints").iterdir())


def rows(run_dir, *columns):
    """The given columns of metrics.csv, as text."""
    header, *lines = (Path(run_dir) / "metrics.csv").read_text().splitlines()
    names = header.split(",")
    return [tuple(line.split(",")[names.index(column)] for column in columns) for line in lines]


NUMBERS = ("step", "loss", "lr", "grad_norm", "val_loss", "val_tokens")


def content_digest(run_dir):
    """Digest of every file below a folder, by name."""
    folder = Path(run_dir)
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
