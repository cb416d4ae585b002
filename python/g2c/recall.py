"""The recall probe: how well a layer pattern answers a pure lookup, by distance.

A row is a line of text, one token per character:

    f=3;q=8;a=1;…;?q8

Twelve pairs of a letter and a digit, then a question mark, one of the letters, and its digit. The
39 tokens are 26 letters, 10 digits and "=", ";", "?". No letter occurs twice, so the digit is
settled by the row and by nothing else. Distance counts pairs back from the question: 1 is the
latest pair, 12 the first. Guessing a digit is right in one of ten cases (`CHANCE`); answering with
the row's most frequent digit, without any lookup, more often than that (`frequent_digit_rate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch.nn import functional as F
from tqdm.auto import tqdm

from g2c.linear_attention import HybridTransformerLM
from g2c.training import AdamW, clip_grad_norm_, cosine_with_warmup

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789=;?"
VOCAB_SIZE = len(ALPHABET)
PAIRS = 12
CHANCE = 0.1
MAX_SEQ_LEN = 64
EVALUATION_ROWS = 2560

_LETTERS, _DIGITS = 26, 10
_EQUALS, _SEMICOLON, _QUESTION = (ALPHABET.index(sign) for sign in "=;?")
_PAIR_TOKENS, _QUESTION_TOKENS = 4, 3
_MAX_QUESTIONS = (MAX_SEQ_LEN - _PAIR_TOKENS * PAIRS) // _QUESTION_TOKENS
_EVALUATION_SEED = 1_000_003


@dataclass(frozen=True)
class Rows:
    """Rows of the task.

    ``ids`` (N, T) int64 holds whole rows, answers included. ``answers`` (N, Q) holds the digits'
    ids and ``distance`` (N, Q) how many pairs back each was said. The token that an answer follows
    is at the same places in every row: `asked_at` (Q,).
    """

    ids: torch.Tensor
    answers: torch.Tensor
    distance: torch.Tensor

    @property
    def asked_at(self) -> torch.Tensor:
        questions = self.answers.shape[1]
        first = _PAIR_TOKENS * PAIRS + _QUESTION_TOKENS - 2
        return first + _QUESTION_TOKENS * torch.arange(questions, device=self.ids.device)


def make_rows(count: int, *, generator: torch.Generator, questions: int = 1) -> Rows:
    """Draw ``count`` rows with ``questions`` different questions each, 1 to 5.

    Equal generators give equal rows. Raises ValueError for a count or a number of questions that
    doesn't fit.
    """
    if count < 0:
        raise ValueError(f"make_rows: count must be at least 0, got {count}")
    if not 1 <= questions <= _MAX_QUESTIONS:
        raise ValueError(f"make_rows: questions must be from 1 to {_MAX_QUESTIONS}, got {questions}")
    letters = torch.rand(count, _LETTERS, generator=generator).argsort(1)[:, :PAIRS]
    digits = _LETTERS + torch.randint(_DIGITS, (count, PAIRS), generator=generator)
    asked = torch.rand(count, PAIRS, generator=generator).argsort(1)[:, :questions]
    answers = digits.gather(1, asked)
    sign = torch.full_like
    pairs = torch.stack([letters, sign(letters, _EQUALS), digits, sign(letters, _SEMICOLON)], dim=2)
    asking = torch.stack([sign(asked, _QUESTION), letters.gather(1, asked), answers], dim=2)
    return Rows(torch.cat([pairs.flatten(1), asking.flatten(1)], 1), answers, PAIRS - asked)


def decode(ids: torch.Tensor) -> str:
    """The text of one row (T,)."""
    return "".join(ALPHABET[i] for i in ids.tolist())


def encode(text: str) -> torch.Tensor:
    """Ids (T,) of a text over `ALPHABET`; ValueError for another character."""
    for character in text:
        if character not in ALPHABET:
            raise ValueError(f"encode: {character!r} is not one of the {VOCAB_SIZE} characters")
    return torch.tensor([ALPHABET.index(c) for c in text], dtype=torch.int64)


@dataclass(frozen=True)
class RecallConfig:
    """How a probe is trained.

    The loss counts the answers only: nothing else in a row can be predicted, and the rest of the
    row would drown them. Training rows ask ``questions`` times, since there is room for it and each
    is a further lesson; evaluation asks once.
    """

    steps: int = 600
    batch_size: int = 64
    max_lr: float = 3e-3
    warmup_steps: int = 50
    questions: int = _MAX_QUESTIONS
    weight_decay: float = 0.0
    embedding_dim: int = 64
    num_heads: int = 4
    hidden_dim: int = 256

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "embedding_dim", "num_heads", "hidden_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"RecallConfig: {name} must be at least 1, got {getattr(self, name)}")

    def lr(self, step: int) -> float:
        """Learning rate of update ``step``, counted from 0: a warm-up, then a cosine to a tenth."""
        return cosine_with_warmup(
            step,
            warmup_steps=min(self.warmup_steps, self.steps // 10),
            max_steps=self.steps,
            max_lr=self.max_lr,
            min_lr=self.max_lr / 10,
        )


@dataclass(frozen=True)
class Accuracy:
    """Right answers among ``asked`` at one distance, in pairs; None stands for all distances."""

    distance: int | None
    right: int
    asked: int

    @property
    def rate(self) -> float:
        """Share of right answers; NaN where nothing was asked."""
        return self.right / self.asked if self.asked else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the rate."""
        return wilson(self.right, self.asked)


@dataclass(frozen=True)
class RecallResult:
    """One trained probe: its pattern and seed, the accuracies, the training losses per step."""

    pattern: str
    seed: int
    steps: int
    overall: Accuracy
    by_distance: tuple[Accuracy, ...]
    losses: tuple[float, ...]

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @staticmethod
    def from_json(content: object) -> RecallResult:
        """What `to_json` gave; ValueError for anything else."""
        try:
            if not isinstance(content, dict):
                raise TypeError(f"expected an object, got {type(content).__name__}")
            return RecallResult(
                pattern=str(content["pattern"]),
                seed=int(content["seed"]),
                steps=int(content["steps"]),
                overall=Accuracy(**content["overall"]),
                by_distance=tuple(Accuracy(**entry) for entry in content["by_distance"]),
                losses=tuple(float(loss) for loss in content["losses"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a recall result: {error}") from error


def wilson(right: int, asked: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval for a share of ``right`` among ``asked``; z = 1.96 means 95 %.

    Without a trial it is (0, 1). Raises ValueError unless 0 <= right <= asked.
    """
    if not 0 <= right <= asked:
        raise ValueError(f"wilson: expected 0 <= right <= asked, got {right} of {asked}")
    if asked == 0:
        return 0.0, 1.0
    rate = right / asked
    scale = 1 + z * z / asked
    centre = rate + z * z / (2 * asked)
    spread = z * math.sqrt(rate * (1 - rate) / asked + z * z / (4 * asked * asked))
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)


def frequent_digit_rate(rows: Rows) -> float:
    """Share of right answers when each is the row's most frequent digit (the smallest of several).

    What a model reaches that knows which digits a row holds and looks nothing up.
    """
    places = torch.arange(PAIRS, device=rows.ids.device) * _PAIR_TOKENS + 2
    digits = rows.ids[:, places] - _LETTERS
    guess = F.one_hot(digits, _DIGITS).sum(1).argmax(1, keepdim=True) + _LETTERS
    return (guess == rows.answers).double().mean().item()


def evaluation_rows(count: int = EVALUATION_ROWS) -> Rows:
    """The fresh rows that every probe is measured on; no training seed draws them."""
    return make_rows(count, generator=torch.Generator().manual_seed(_EVALUATION_SEED))


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, rows: Rows, *, batch_size: int = 512
) -> tuple[Accuracy, tuple[Accuracy, ...]]:
    """Accuracy over all ``rows`` and by distance; the model sees a row up to its first question."""
    device = next(model.parameters()).device
    asked_at = int(rows.asked_at[0])
    right = torch.cat(
        [
            (model(ids[:, : asked_at + 1].to(device))[:, -1].argmax(-1).cpu() == answers[:, 0])
            for ids, answers in zip(
                torch.split(rows.ids, batch_size),
                torch.split(rows.answers, batch_size),
                strict=True,
            )
        ]
    )
    by_distance = tuple(
        Accuracy(distance, int(right[here].sum()), int(here.sum()))
        for distance in range(1, PAIRS + 1)
        for here in [rows.distance[:, 0] == distance]
    )
    return Accuracy(None, int(right.sum()), right.numel()), by_distance


def train_probe(
    pattern: str | Sequence[str],
    *,
    seed: int = 0,
    config: RecallConfig | None = None,
    device: torch.device | None = None,
    progress: bool = True,
) -> tuple[HybridTransformerLM, RecallResult]:
    """Train a model of ``pattern`` ("LLLF", or names of layer kinds) and measure its recall.

    The seed settles the first weights and the rows; the same seed gives every pattern the same
    rows. Shows a progress bar with the loss.
    """
    config = config or RecallConfig()
    kinds = [{"L": "linear", "F": "full"}.get(kind, kind) for kind in pattern]
    torch.manual_seed(seed)
    model = HybridTransformerLM(
        VOCAB_SIZE,
        config.embedding_dim,
        kinds,
        config.num_heads,
        MAX_SEQ_LEN,
        hidden_dim=config.hidden_dim,
    )
    if device is not None:
        model.to(device)
    name = "".join({"linear": "L", "full": "F"}[kind] for kind in kinds)
    losses = _train(model, config, seed, f"recall {name}, seed {seed}", progress)
    model.eval()
    overall, by_distance = evaluate(model, evaluation_rows())
    return model, RecallResult(name, seed, config.steps, overall, by_distance, tuple(losses))


def answer_loss(model: torch.nn.Module, rows: Rows) -> torch.Tensor:
    """Mean nats per answer of ``rows``, all questions counted."""
    device = next(model.parameters()).device
    logits = model(rows.ids[:, :-1].to(device))[:, rows.asked_at]
    return F.cross_entropy(logits.flatten(0, 1), rows.answers.flatten().to(device))


def _train(
    model: torch.nn.Module, config: RecallConfig, seed: int, title: str, progress: bool
) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    parameters = list(model.parameters())
    optimizer = AdamW(parameters, lr=config.lr(0), betas=(0.9, 0.99), weight_decay=config.weight_decay)
    losses = []
    model.train()
    with tqdm(total=config.steps, desc=title, unit="step", disable=not progress) as bar:
        for step in range(config.steps):
            for group in optimizer.param_groups:
                group["lr"] = config.lr(step)
            rows = make_rows(config.batch_size, generator=generator, questions=config.questions)
            loss = answer_loss(model, rows)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix_str(f"loss {losses[-1]:.3f}", refresh=False)
            bar.update()
    return losses
