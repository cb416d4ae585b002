"""The loss, against its definition in float64."""

import pytest
import torch

from g2c.linear_attention import HybridTransformerLM
from g2c.pretraining import language_model_loss, lm_cross_entropy
from g2c.transformer import TransformerLM


def by_definition(logits, targets):
    logits = logits.double()
    nats = [
        logits[b, t].logsumexp(0) - logits[b, t, targets[b, t]]
        for b in range(targets.shape[0])
        for t in range(targets.shape[1])
    ]
    return torch.stack(nats).mean()


def test_is_the_mean_negative_log_likelihood():
    logits, targets = torch.randn(3, 5, 11) * 4, torch.randint(11, (3, 5))
    loss = lm_cross_entropy(logits, targets)
    assert loss.shape == () and loss.dtype == torch.float32
    assert torch.allclose(loss.double(), by_definition(logits, targets), rtol=1e-6)


def test_gradient_is_softmax_minus_one_hot():
    logits = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(7, (2, 3))
    lm_cross_entropy(logits, targets).backward()
    one_hot = torch.nn.functional.one_hot(targets, 7)
    assert torch.allclose(logits.grad, (logits.detach().softmax(-1) - one_hot) / 6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    logits, targets = torch.randn(8, 512, 64).to(dtype), torch.randint(64, (8, 512))
    loss = lm_cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    assert torch.allclose(loss.double(), by_definition(logits, targets), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_targets_of_other_integer_dtypes(dtype):
    logits, targets = torch.randn(2, 3, 7), torch.randint(7, (2, 3))
    assert lm_cross_entropy(logits, targets.to(dtype)) == lm_cross_entropy(logits, targets)


@pytest.mark.parametrize(
    "model",
    [lambda: TransformerLM(20, 16, 2, 2, 8), lambda: HybridTransformerLM(20, 16, ["linear"], 2, 8)],
    ids=["full", "linear"],
)
def test_loss_of_a_model(model):
    model = model()
    ids, targets = torch.randint(20, (3, 8)), torch.randint(20, (3, 8))
    loss = language_model_loss(model, ids, targets)
    assert torch.allclose(loss.double(), by_definition(model(ids), targets), rtol=1e-6)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


LOGITS, TARGETS = torch.zeros(2, 3, 7), torch.zeros(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("logits", "targets", "error", "says"),
    [
        (LOGITS, TARGETS + 7, ValueError, "targets: id 7 is outside the vocabulary of 7"),
        (LOGITS, TARGETS - 100, ValueError, "targets: id -100 is outside"),
        (LOGITS, TARGETS[:, :2], ValueError, r"logits: expected \(B, T, V\) for targets of \(2, 2\)"),
        (LOGITS[0], TARGETS, ValueError, r"got \(3, 7\)"),
        (LOGITS, TARGETS[0], ValueError, "targets: expected 2 dimensions"),
        (LOGITS, TARGETS.float(), TypeError, "targets: expected integer"),
        (LOGITS.long(), TARGETS, TypeError, "logits: expected a floating dtype, got torch.int64"),
        (LOGITS[:, :0], TARGETS[:, :0], ValueError, "targets: no token to average over"),
        (LOGITS.to("meta"), TARGETS, ValueError, "targets: on cpu, but the logits are on meta"),
    ],
)
def test_bad_input(logits, targets, error, says):
    with pytest.raises(error, match=says):
        lm_cross_entropy(logits, targets)
