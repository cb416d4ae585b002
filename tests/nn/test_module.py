"""A C++ module is a real torch.nn.Module: everything that PyTorch users do with one."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from g2c.attention import MultiHeadAttention
from g2c.embeddings import LearnedPositionalEmbedding, TokenEmbedding
from g2c.linear_attention import HybridBlock, HybridTransformerLM, LinearAttention
from g2c.transformer import Block, FeedForward, LayerNorm, TransformerLM

PATTERN = ["linear", "full"]


def make_model() -> HybridTransformerLM:
    return HybridTransformerLM(20, 16, PATTERN, 2, 12)


X = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))
IDS = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(1))
MODULES = {
    "LinearAttention": (lambda: LinearAttention(16, 2), X),
    "MultiHeadAttention": (lambda: MultiHeadAttention(16, 2), X),
    "LayerNorm": (lambda: LayerNorm(16), X),
    "FeedForward": (lambda: FeedForward(16), X),
    "TokenEmbedding": (lambda: TokenEmbedding(20, 16), IDS),
    "LearnedPositionalEmbedding": (lambda: LearnedPositionalEmbedding(12, 16), 7),
    "Block": (lambda: Block(16, 2), X),
    "HybridBlock": (lambda: HybridBlock(16, 2, "linear"), X),
    "TransformerLM": (lambda: TransformerLM(20, 16, 2, 2, 12), IDS),
    "HybridTransformerLM": (make_model, IDS),
}
every_module = pytest.mark.parametrize("name", MODULES)


@every_module
def test_parameters_are_parameters_and_train(name):
    make, x = MODULES[name]
    module = make()
    assert all(type(p) is nn.Parameter and p.is_leaf for p in module.parameters())
    before = module(x).detach().clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(x).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())
    optimizer.step()
    assert not torch.equal(module(x), before)


@every_module
def test_state_dict_round_trip(name):
    make, x = MODULES[name]
    module, other = make(), make()
    for assign in (False, True):
        other = make()
        result = other.load_state_dict(module.state_dict(), strict=True, assign=assign)
        assert not result.missing_keys and not result.unexpected_keys
        assert torch.equal(other(x), module(x))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({}, strict=True)


@every_module
@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_are_equal_and_apart(name, how):
    make, x = MODULES[name]
    module = make().eval()
    next(module.parameters()).requires_grad_(False)
    random = torch.get_rng_state()
    if how == "deepcopy":
        other = copy.deepcopy(module)
    elif how == "pickle":
        other = pickle.loads(pickle.dumps(module))
    else:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    expected = module(x)
    assert type(other) is type(module) and not other.training
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in module.parameters()]
    assert torch.equal(other(x), expected)
    assert torch.equal(torch.get_rng_state(), random)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    assert torch.equal(module(x), expected)
    assert not torch.equal(other(x), expected)


@every_module
def test_dtype_and_meta_device(name):
    make, x = MODULES[name]
    module = make()
    is_float = isinstance(x, torch.Tensor) and x.is_floating_point()
    assert module.to(torch.float64) is module
    assert all(p.dtype == torch.float64 for p in module.parameters())
    assert module(x.double() if is_float else x).dtype == torch.float64
    module.to("meta")
    assert module(
        x.double().to("meta") if is_float else x.to("meta") if isinstance(x, torch.Tensor) else x
    ).is_meta


@every_module
def test_repr_names_the_arguments(name):
    make, _ = MODULES[name]
    assert name in repr(make())
    assert "16" in repr(make())


def test_default_device_and_dtype_are_honoured():
    with torch.device("meta"):
        assert LinearAttention(16, 2).gamma_logit.is_meta
    torch.set_default_dtype(torch.float64)
    try:
        assert LinearAttention(16, 2).q_proj.weight.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_train_eval_and_requires_grad_return_the_module():
    model = make_model()
    assert model.eval() is model and not model.blocks[0].attn.training
    assert model.train() is model and model.blocks[0].attn.training
    assert model.requires_grad_(False) is model
    assert not model(IDS).requires_grad


def test_children_are_live_parts_of_the_whole():
    model = make_model()
    before = model(IDS)
    with torch.no_grad():
        model.blocks[0].attn.gamma_logit.fill_(-5)
    assert not torch.equal(model(IDS), before)
    attention = model.blocks[0].attn
    assert isinstance(attention, LinearAttention) and isinstance(model.blocks[1].attn, MultiHeadAttention)
    projected = attention.q_proj(X)
    torch.testing.assert_close(
        projected, nn.functional.linear(X, attention.q_proj.weight, attention.q_proj.bias)
    )
    # The whole, put together from its parts.
    x = model.token_embedding(IDS) + model.position_embedding(7)
    for block in model.blocks:
        x = block(x)
    logits = model.final_norm(x) @ model.token_embedding.weight.T + model.head_bias
    torch.testing.assert_close(model(IDS), logits)


def test_replaced_parameters_reach_cpp():
    attention = LinearAttention(16, 2)
    attention.gamma_logit = nn.Parameter(torch.tensor([-100.0, 100.0]))
    torch.testing.assert_close(attention.decay, torch.tensor([0.0, 1.0]))
    copied = copy.deepcopy(attention)
    torch.testing.assert_close(copied.decay, torch.tensor([0.0, 1.0]))
    with pytest.raises(TypeError, match="computed in C"):
        attention.q_proj = nn.Linear(16, 16)


def test_parametrizations_and_pruning_reach_cpp():
    attention = LinearAttention(16, 2)

    class Zero(nn.Module):
        def forward(self, weight):
            return weight * 0

    torch.nn.utils.parametrize.register_parametrization(attention.out_proj, "weight", Zero())
    torch.testing.assert_close(attention(X), attention.out_proj.bias.expand(2, 7, 16))


def test_functional_call_and_grad():
    model = make_model()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (IDS,)).square().mean()

    gradients = torch.func.grad(loss)(parameters)
    model(IDS).square().mean().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(gradients[name], p.grad)
    with pytest.raises(NotImplementedError, match="second derivative"):
        torch.func.grad(lambda p: torch.func.grad(loss)(p)["blocks.0.attn.gamma_logit"].sum())(parameters)
    zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
    before = model(IDS)
    assert not torch.func.functional_call(model, zeros, (IDS,)).any()
    assert torch.equal(model(IDS), before)


def test_hooks_on_the_module_that_is_called():
    attention = LinearAttention(16, 2)
    seen = []
    attention.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    attention(X)
    assert seen == [X.shape]


def test_deepcopy_in_the_middle_of_training_goes_on_alike():
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(model, optimizer):
        optimizer.zero_grad()
        model(IDS).square().mean().backward()
        optimizer.step()

    step(model, optimizer)
    twin = copy.deepcopy(model)
    twin_optimizer = torch.optim.AdamW(twin.parameters())
    twin_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer)
    step(twin, twin_optimizer)
    assert torch.equal(model(IDS), twin(IDS))


def test_autocast():
    model = make_model()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(IDS)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), model(IDS), atol=0.1, rtol=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_modules_keep_a_float32_state(dtype):
    attention = LinearAttention(16, 2).to(dtype)
    out, state = attention.step(X[:, 0].to(dtype))
    assert out.dtype == dtype and state.S.dtype == torch.float32
    torch.testing.assert_close(attention(X.to(dtype))[:, 0], out, atol=2e-2, rtol=2e-2)


def test_empty_inputs_have_the_right_shape_and_gradients():
    model = make_model()
    for shape in ((0, 5), (2, 0)):
        logits = model(torch.zeros(shape, dtype=torch.long))
        assert logits.shape == (*shape, 20)
        logits.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.blocks.parameters())


BAD = {
    "rank": (lambda: LinearAttention(16, 2)(X[0]), ValueError, "shape"),
    "columns": (lambda: LinearAttention(8, 2)(X), ValueError, "D=8"),
    "dtype": (lambda: LinearAttention(16, 2)(X.double()), TypeError, "Double"),
    "device": (lambda: LinearAttention(16, 2)(X.to("meta")), ValueError, "meta"),
    "zero heads": (lambda: LinearAttention(16, 0), ValueError, "num_heads=0"),
    "negative size": (lambda: MultiHeadAttention(-4, 2), ValueError, "embedding_dim=-4"),
    "form": (lambda: LinearAttention(16, 2, form="fast"), ValueError, "chunkwise"),
    "state shape": (
        lambda: LinearAttention(16, 2).step(X[:, 0], LinearAttention(16, 4).init_state(2)),
        ValueError,
        "state",
    ),
    "state batch": (
        lambda: LinearAttention(16, 2).step(X[:, 0], LinearAttention(16, 2).init_state(3)),
        ValueError,
        "state",
    ),
    "ids high": (lambda: make_model()(IDS + 20), ValueError, "20"),
    "ids negative": (lambda: make_model()(IDS - 20), ValueError, "-"),
    "ids dtype": (lambda: make_model()(IDS.int()), TypeError, "int64"),
    "ids rank": (lambda: make_model()(IDS[0]), ValueError, "2 dimensions"),
    "empty pattern": (lambda: HybridTransformerLM(20, 16, [], 2, 12), ValueError, "layer_pattern"),
    "unknown kind": (lambda: HybridTransformerLM(20, 16, ["sparse"], 2, 12), ValueError, "sparse"),
    "no layers": (lambda: TransformerLM(20, 16, 0, 2, 12), ValueError, "num_layers"),
    "no positions": (lambda: TransformerLM(20, 16, 1, 2, 0), ValueError, "max_seq_len"),
    "positions": (lambda: LearnedPositionalEmbedding(4, 2)(3, 2), ValueError, "max_seq_len=4"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
