"""Which parameters decay, and torch's own optimisers on the C++ models."""

import pytest
import torch
from torch import nn

from g2c.pretraining import language_model_loss
from g2c.training import AdamW, clip_grad_norm_, make_optimizer, parameter_groups
from tests.training.runs import VOCAB, config, dropout_model, hybrid, transformer


def test_only_matrices_decay_and_every_parameter_is_in_one_group():
    model = hybrid()
    names = {id(p): name for name, p in model.named_parameters()}
    decaying, others = ({names[id(p)] for p in group["params"]} for group in parameter_groups(model, 0.05))
    assert decaying | others == set(names.values()) and not decaying & others
    assert "blocks.0.attn.q_proj.weight" in decaying and "token_embedding.weight" in decaying
    assert {"blocks.0.attn.gamma_logit", "blocks.0.ln1.weight", "head_bias"} <= others


def test_tied_and_frozen_parameters():
    model = dropout_model()
    model.head.bias.requires_grad_(False)
    groups = parameter_groups(model, 0.1)
    assert [len(group["params"]) for group in groups] == [1]
    assert groups[0]["params"][0] is model.embedding.weight
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="model: no parameter requires a gradient"):
        parameter_groups(model, 0.1)


def test_decay_moves_matrices_alone():
    model = hybrid()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = make_optimizer(model, config(weight_decay=0.5, warmup_steps=0))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 - 3e-3 * 0.5 if parameter.dim() >= 2 else 1.0
        assert torch.allclose(parameter, before[name] * factor, rtol=1e-6, atol=0), name


@pytest.mark.parametrize("make", [hybrid, transformer])
def test_adamw_and_clipping_train_the_models(make):
    model = make()
    ids = torch.arange(12).repeat(4, 1)
    optimizer = AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = language_model_loss(model, ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 0.1)
        clipped = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        assert float(clipped) <= min(0.1, float(norm)) * 1.001
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 3 and losses[-1] < 0.5


def test_make_optimizer_on_a_model_of_vectors_only():
    model = nn.Sequential(nn.LayerNorm(VOCAB))
    assert [group["weight_decay"] for group in make_optimizer(model, config()).param_groups] == [0.0]
