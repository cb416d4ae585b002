"""Generation: the same tokens as recomputing the window for each one."""

import pytest
import torch
from torch import nn

from g2c.linear_attention import HybridTransformerLM
from g2c.sampling import generate, generate_tokens, next_token_distribution, sample_token
from g2c.sampling.distribution import SamplingOptions
from g2c.transformer import TransformerLM

VOCAB, LIMIT = 30, 12


def hybrid(*pattern):
    return HybridTransformerLM(VOCAB, 16, list(pattern), 2, LIMIT)


class Plain(nn.Module):
    """A model with no memory of any kind and no limit, only forward."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, VOCAB)

    def forward(self, ids):
        return self.head(self.dropout(self.embedding(ids)).cumsum(1))


MODELS = {
    "transformer": lambda: TransformerLM(VOCAB, 16, 2, 2, LIMIT),
    "full": lambda: hybrid("full", "full"),
    "linear": lambda: hybrid("linear", "linear"),
    "hybrid": lambda: hybrid("linear", "full", "linear"),
    "plain": lambda: Plain().eval(),
}
OPTIONS = {
    "plain": {},
    "greedy": {"temperature": 0.0, "repetition_penalty": 1.4},
    "all": {"temperature": 0.8, "top_k": 12, "top_p": 0.9, "repetition_penalty": 1.2},
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(1)
    model = MODELS[request.param]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.7)  # peaked enough for the filters to matter
    return model


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def recompute(model, prompt, count, generator, **options):
    """The definition: the whole window anew for every token."""
    ids = prompt.tolist()
    limit = getattr(model, "max_seq_len", None)
    for _ in range(count):
        window = torch.tensor(ids if limit is None else ids[-limit:])
        with torch.no_grad():
            logits = model(window[None])[0, -1]
        seen = torch.zeros(VOCAB, dtype=torch.bool)
        seen[ids] = True
        probabilities = next_token_distribution(logits, SamplingOptions(**options), seen)
        if options.get("temperature") == 0:
            ids.append(int(probabilities.argmax()))
        else:
            ids.append(int(sample_token(probabilities, generator)))
    return torch.tensor(ids)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("prompt_length", [1, 5, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT + 3])
def test_same_tokens_as_recomputing(model, options, prompt_length):
    prompt = torch.randint(VOCAB, (prompt_length,))
    fields = OPTIONS[options]
    mine, theirs = seeded(), seeded()
    got = generate(model, prompt, 20, generator=mine, **fields)
    assert got.dtype == torch.int64 and got.shape == (prompt_length + 20,)
    assert torch.equal(got, recompute(model, prompt, 20, theirs, **fields))
    assert torch.equal(mine.get_state(), theirs.get_state())


@pytest.mark.parametrize("name", ["transformer", "hybrid"])
def test_memory_is_used_up_to_the_limit_and_windows_after_it(name):
    model = MODELS[name]()
    windows = []
    model.register_forward_hook(lambda m, inputs, output: windows.append(inputs[0].shape))
    generate(model, torch.arange(5), LIMIT - 5 + 1, generator=seeded())
    assert windows == []
    generate(model, torch.arange(5), LIMIT - 5 + 4, generator=seeded())
    assert windows == [(1, LIMIT)] * 3
    windows.clear()
    generate(model, torch.arange(LIMIT + 4), 2, generator=seeded())
    assert windows == [(1, LIMIT)] * 2


@pytest.mark.parametrize("length", [4, LIMIT + 5])
def test_the_end_token_stops_and_is_kept(model, length):
    prompt = torch.randint(VOCAB, (length,))
    free = generate(model, prompt, 30, generator=seeded())[length:].tolist()
    end = free[9]
    first = free.index(end)
    got = generate(model, prompt, 30, eos_id=end, generator=seeded())
    assert got[length:].tolist() == free[: first + 1]
    # One in the prompt stops nothing.
    assert generate(model, torch.tensor([end]), 1, eos_id=end).numel() == 2


def test_temperature_zero_is_argmax_and_draws_nothing(model):
    prompt = torch.tensor([3, 1])
    generator = seeded()
    before = generator.get_state()
    got = generate(model, prompt, 6, temperature=0, generator=generator)
    again = generate(model, prompt, 6, temperature=0, top_k=5, top_p=0.2)
    assert torch.equal(got, again)
    assert torch.equal(generator.get_state(), before)
    with torch.no_grad():
        logits = model(got[None, :-1])[0, 1:]
    assert torch.equal(got[2:], logits.argmax(-1))
    assert torch.equal(generate(model, prompt, 6, top_k=1), got)


def test_the_seed_decides_and_torchs_own_generator_is_the_default(model):
    prompt = torch.tensor([3, 1])
    a = generate(model, prompt, 15, generator=seeded(1))
    torch.manual_seed(1)
    assert torch.equal(generate(model, prompt, 15), a)
    assert not torch.equal(generate(model, prompt, 15, generator=seeded(2)), a)


def test_no_new_tokens_gives_a_copy_of_the_prompt(model):
    prompt = torch.tensor([3, 1], dtype=torch.int32)
    got = generate(model, prompt, 0)
    assert got.tolist() == [3, 1] and got.dtype == torch.int64
    got[0] = 9
    assert prompt[0] == 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.uint16])
def test_prompts_of_other_integer_dtypes(dtype):
    model = MODELS["hybrid"]()
    prompt = torch.tensor([3, 1, 7])
    expected = generate(model, prompt, 5, generator=seeded())
    assert torch.equal(generate(model, prompt.to(dtype), 5, generator=seeded()), expected)


def test_streaming_yields_each_token_before_computing_the_next():
    model = MODELS["plain"]()
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    prompt = torch.tensor([3, 1])
    stream = generate_tokens(model, prompt, 8, generator=seeded())
    assert passes == []
    tokens = []
    for count, token in enumerate(stream, start=1):
        tokens.append(token)
        assert isinstance(token, int) and len(passes) == count
        assert torch.is_grad_enabled()
    assert tokens == generate(model, prompt, 8, generator=seeded())[2:].tolist()


def test_two_streams_at_once_do_not_disturb_each_other(model):
    prompts = torch.tensor([3, 1]), torch.tensor([9, 9, 2])
    alone = [generate(model, p, 15, generator=seeded())[p.numel() :].tolist() for p in prompts]
    streams = [generate_tokens(model, p, 15, generator=seeded()) for p in prompts]
    together = list(zip(*streams, strict=True))
    assert [list(tokens) for tokens in zip(*together, strict=True)] == alone


def test_modes_and_gradients_are_left_as_they_were():
    model = Plain()
    model.head.eval()
    seen = []
    model.register_forward_hook(lambda m, inputs, output: seen.append((m.training, output.requires_grad)))
    prompt = torch.tensor([3, 1])
    a, b = (generate(model, prompt, 10, generator=seeded()) for _ in range(2))
    assert torch.equal(a, b)  # no dropout
    assert set(seen) == {(False, False)}
    stream = generate_tokens(model, prompt, 5)
    next(stream)
    assert model.training and model.dropout.training and not model.head.training
    assert torch.is_grad_enabled()
    model(prompt[None]).sum().backward()
    assert model.head.weight.grad is not None


def test_a_model_can_be_trained_after_generating(model):
    generate(model, torch.tensor([3, 1]), LIMIT + 3)
    model(torch.tensor([[3, 1, 4]])).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


GOOD = torch.tensor([3, 1])
BAD = [
    ({"prompt_ids": GOOD[:0]}, ValueError, "prompt_ids: expected at least one token"),
    ({"prompt_ids": GOOD[None]}, ValueError, r"prompt_ids: expected 1 dimension, got shape \(1, 2"),
    ({"prompt_ids": GOOD.float()}, TypeError, "prompt_ids: expected integer token ids"),
    ({"prompt_ids": [3, 1]}, TypeError, "prompt_ids: expected a tensor of token ids, got list"),
    ({"prompt_ids": GOOD + 27}, ValueError, "prompt_ids: id 30 is outside the vocabulary of 30"),
    ({"prompt_ids": GOOD - 2}, ValueError, "prompt_ids: id -1 is outside"),
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens: expected at least 0, got -1"),
    ({"max_new_tokens": 2.5}, TypeError, "max_new_tokens: expected an integer"),
    ({"temperature": -1}, ValueError, "temperature: expected at least 0"),
    ({"top_k": 0}, ValueError, "top_k: expected at least 1"),
    ({"top_p": 0}, ValueError, "top_p: expected more than 0"),
    ({"repetition_penalty": 0}, ValueError, "repetition_penalty: expected more than 0"),
    ({"eos_id": -1}, ValueError, "eos_id: expected at least 0"),
    ({"eos_id": "end"}, TypeError, "eos_id: expected an integer"),
]


@pytest.mark.parametrize(("changes", "error", "says"), BAD)
def test_bad_input_is_refused_by_the_call_itself(changes, error, says):
    arguments = {"prompt_ids": GOOD, "max_new_tokens": 3, **changes}
    model = MODELS["hybrid"]()
    with pytest.raises(error, match=says):
        generate(model, **arguments)
    with pytest.raises(error, match=says):
        generate_tokens(model, **arguments)


def test_broken_weights_are_said():
    model = MODELS["hybrid"]()
    with torch.no_grad():
        model.head_bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="logits: the largest must be finite"):
        generate(model, GOOD, 3)
