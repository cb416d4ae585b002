"""Outputs, states and all gradients of each form, against the float64 loop over tokens."""

import itertools

import pytest
import torch

from g2c.ops import linear_attention, linear_attention_step
from tests.reference import relative_error, token_loop

FORMS = ["parallel", "chunkwise", "recurrent"]
LENGTHS = [0, 1, 2, 63, 64, 65, 127, 1000]
GAMMAS = [0.01, 0.5, 0.99, 1 - 1e-7, 1.0]


def make_inputs(B, T, H, dk, dv, gammas, *, state=True, dtype=torch.float32):
    """q, k, v, decay, S, z; (S, z) as some earlier tokens would have left them."""
    q, k = torch.randn(B, T, H, dk, dtype=dtype), torch.randn(B, T, H, dk, dtype=dtype)
    v = torch.randn(B, T, H, dv, dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    decay = torch.tensor(gammas, dtype=wide)
    if not state:
        return [q, k, v, decay]
    return [q, k, v, decay, torch.randn(B, H, dk, dv, dtype=wide), torch.rand(B, H, dk, dtype=wide)]


def run(form, inputs, **options):
    q, k, v, decay, *state = inputs
    out, final = linear_attention(
        q, k, v, decay, initial_state=state or None, output_final_state=True, form=form, **options
    )
    return [out, final.S, final.z]


def with_gradients(function, inputs, weights):
    """The outputs, and the gradients of their weighted sum by each input."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = function(leaves)
    loss = sum((o.double() * w).sum() for o, w in zip(outputs, weights, strict=True))
    gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [o.detach() for o in outputs], gradients


def compare(form, inputs, output_bound, gradient_bound, **options):
    """Every head on its own, since a small error in one would hide behind large numbers of another."""
    exact = [x.double() for x in inputs]
    with torch.no_grad():
        weights = [torch.randn_like(o) for o in token_loop(*exact, **options)]
    expected, expected_gradients = with_gradients(lambda xs: token_loop(*xs, **options), exact, weights)
    outputs, gradients = with_gradients(lambda xs: run(form, xs, **options), inputs, weights)
    # (name, dimension of the heads)
    results = [("out", 2), ("S", 1), ("z", 1)]
    leaves = [("q", 2), ("k", 2), ("v", 2), ("decay", 0), ("S", 1), ("z", 1)][: len(inputs)]
    checks = (
        zip(results, outputs, expected, strict=True),
        zip(leaves, gradients, expected_gradients, strict=True),
    )
    one_token = inputs[0].shape[1] == 1
    for bound, group in zip((output_bound, gradient_bound), checks, strict=True):
        for (name, dim), actual, wanted in group:
            assert actual.shape == wanted.shape, name
            for gamma, a, b in zip(inputs[3], actual.unbind(dim), wanted.unbind(dim), strict=True):
                allowed = bound(gamma) if callable(bound) else bound
                # Where a query reaches hardly more than one token, out is its value whatever q: the
                # terms of dq, of size 1, cancel to about eps, and only their rounding can be bounded.
                floor = 1.0 if name == "q" and (one_token or gamma < 1e-3) else 0.0
                assert relative_error(a, b, floor) <= allowed, (name, gamma.item())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("state", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("T", LENGTHS)
def test_matches_the_loop_in_float32(form, T, state):
    inputs = make_inputs(2, T, len(GAMMAS), 16, 16, GAMMAS, state=state)
    compare(form, inputs, 1e-5, lambda gamma: 3e-5 if gamma < 0.1 else 1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("normalize", [True, False])
def test_every_head_has_its_own_decay_and_values_their_own_width(form, normalize):
    inputs = make_inputs(2, 131, 5, 7, 3, [0.0, 1e-6, 0.5, 1 - 1e-7, 1.0])
    compare(form, inputs, 1e-5, 3e-5, normalize=normalize)


def test_long_sequences_with_every_decay():
    inputs = make_inputs(1, 8192, 3, 8, 8, [0.9, 0.5, 0.01])
    compare("chunkwise", inputs, 1e-5, 3e-5)


@pytest.mark.parametrize("form", FORMS)
def test_heads_do_not_mix(form):
    inputs = make_inputs(1, 5, 3, 4, 4, [0.9, 0.5, 0.99])
    together = run(form, inputs)[0]
    for h in range(3):
        alone = [x[:, :, h : h + 1] for x in inputs[:3]]
        alone += [inputs[3][h : h + 1], inputs[4][:, h : h + 1], inputs[5][:, h : h + 1]]
        torch.testing.assert_close(run(form, alone)[0], together[:, :, h : h + 1])


@pytest.mark.parametrize("form", FORMS)
def test_any_split_can_be_resumed_from_its_state(form):
    q, k, v, decay = make_inputs(2, 70, 2, 8, 8, [0.9, 1.0], state=False)
    whole = run(form, [q, k, v, decay])
    for s in (0, 1, 35, 64, 69, 70):
        first, S, z = run(form, [q[:, :s], k[:, :s], v[:, :s], decay])
        rest, S, z = run(form, [q[:, s:], k[:, s:], v[:, s:], decay, S, z])
        for a, b in zip((torch.cat([first, rest], 1), S, z), whole, strict=True):
            assert relative_error(a, b) <= 1e-6


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("T", [0, 1, 3, 65])
@pytest.mark.parametrize("state", [False, True], ids=["fresh", "resumed"])
def test_gradcheck(form, T, state):
    inputs = make_inputs(1, T, 2, 3, 2, [0.7, 0.95], state=state, dtype=torch.float64)
    if T == 65:
        inputs = [x.narrow(3, 0, 1) if x.dim() == 4 and x.shape[1] == T else x for x in inputs]
        if state:
            inputs[4:] = [torch.rand(1, 2, 1, 1).double(), torch.rand(1, 2, 1).double()]
    leaves = [x.detach().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda *xs: run(form, xs), leaves)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_gradient_of_the_decay_at_its_ends(gamma):
    # gradcheck would step outside [0, 1]; the loop's own gradient has no bounds.
    inputs = make_inputs(1, 70, 2, 3, 3, [gamma, gamma], dtype=torch.float64)
    for form in FORMS:
        compare(form, inputs, 1e-12, 1e-11)


def test_parallel_has_second_derivatives_and_the_others_say_that_they_do_not():
    inputs = make_inputs(1, 5, 2, 2, 2, [0.7, 0.95], dtype=torch.float64)
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradgradcheck(lambda *xs: run("parallel", xs), leaves)
    for form in ("chunkwise", "recurrent"):
        first = torch.autograd.grad(run(form, leaves)[0].sum(), leaves[0], create_graph=True)[0]
        with pytest.raises(NotImplementedError, match="second derivative"):
            first.sum().backward()


@pytest.mark.parametrize("state", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(state, grad):
    inputs = make_inputs(2, 70, 2, 4, 3, [0.7, 0.95], state=state)
    inputs = [x.requires_grad_(grad) for x in inputs]
    for name in FORMS:
        torch.library.opcheck(getattr(torch.ops.g2c, f"linear_attention_{name}"), tuple(inputs))
    if state:
        q, k, v, *rest = inputs
        token = [x[:, 0].detach().requires_grad_(grad) for x in (q, k, v)]
        torch.library.opcheck(torch.ops.g2c.linear_attention_step, (*token, *rest))


def test_opcheck_of_the_backward_op():
    q, k, v, decay, S, z = make_inputs(2, 70, 2, 4, 3, [0.7, 0.95])
    out, S_final, z_final, normalizer = torch.ops.g2c.linear_attention_chunkwise(q, k, v, decay, S, z)
    gradients = [torch.randn_like(x) for x in (out, S_final, z_final)]
    op = torch.ops.g2c.linear_attention_chunkwise_backward
    torch.library.opcheck(op, (*gradients, q, k, v, decay, S, z, out, normalizer, True, 64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_matches_float32_of_the_same_values(form, dtype):
    inputs = make_inputs(2, 100, 2, 16, 16, [0.9, 1.0])
    half = [x.to(dtype) for x in inputs[:3]] + inputs[3:]
    out, S, z = run(form, half)
    assert out.dtype == dtype
    assert S.dtype == z.dtype == torch.float32
    expected = run(form, [x.float() for x in half])
    assert torch.equal(out, expected[0].to(dtype))
    assert torch.equal(S, expected[1])


def test_half_precision_sums_do_not_stick_or_overflow():
    T = 70_000
    for dtype in (torch.bfloat16, torch.float16):
        ones = torch.ones(1, T, 1, 1, dtype=dtype)
        out, state = linear_attention(ones, ones, ones, output_final_state=True)
        assert (out == 1).all()
        assert state.z.item() == 2 * T


@pytest.mark.parametrize("form", FORMS)
def test_no_gradient_no_difference_in_structure(form):
    for T, grad in itertools.product((0, 1, 65), (False, True)):
        inputs = [x.requires_grad_(grad) for x in make_inputs(1, T, 2, 4, 4, [0.5, 0.9])]
        out, S, z = run(form, inputs)
        assert out.shape == (1, T, 2, 4) and S.shape == (1, 2, 4, 4) and z.shape == (1, 2, 4)
        assert out.requires_grad == S.requires_grad == z.requires_grad == grad


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("T", LENGTHS)
def test_reads_nothing_past_the_end_of_strided_inputs(form, T):
    T = min(T, 130)
    buffer = torch.full((3, 2, T + 4, 2, 8), float("nan"))
    views = buffer[:, :, 2 : T + 2, :, 1:6]
    views.copy_(torch.randn(views.shape))
    decay = torch.tensor([0.9, 0.5])
    outputs = run(form, [*views.unbind(0), decay])
    contiguous = run(form, [*(x.contiguous() for x in views.unbind(0)), decay])
    for a, b in zip(outputs, contiguous, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_fresh_memory_full_of_nan_changes_nothing(form):
    inputs = make_inputs(2, 130, 2, 8, 8, [0.9, 0.5])
    expected = run(form, inputs)
    torch.use_deterministic_algorithms(True)
    try:
        actual = run(form, inputs)
        compare(form, inputs, 1e-5, 1e-5)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_empty_batch(form):
    inputs = [x.requires_grad_() for x in make_inputs(0, 5, 2, 4, 4, [0.9, 0.5])]
    out, S, z = run(form, inputs)
    assert out.shape == (0, 5, 2, 4) and S.shape == (0, 2, 4, 4)
    gradients = torch.autograd.grad(out.sum() + S.sum() + z.sum(), inputs)
    assert [g.shape for g in gradients] == [x.shape for x in inputs]


@pytest.mark.parametrize("form", FORMS)
def test_strong_decay_stays_finite(form):
    decay = torch.tensor([-2.0, -20.0, -1000.0]).exp()
    compare(form, [*make_inputs(1, 200, 3, 8, 8, [0, 0, 0], state=False)[:3], decay], 1e-5, 3e-5)


def test_step_gradients_match_the_loop():
    q, k, v, decay, S, z = make_inputs(2, 1, 3, 5, 4, [0.0, 0.5, 1.0], dtype=torch.float64)
    weights = [torch.randn(2, 1, 3, 4), torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5)]

    def step(xs):
        q, k, v, decay, S, z = xs
        out, state = linear_attention_step(q[:, 0], k[:, 0], v[:, 0], (S, z), decay)
        return [out[:, None], state.S, state.z]

    inputs = [q, k, v, decay, S, z]
    expected, expected_gradients = with_gradients(lambda xs: token_loop(*xs), inputs, weights)
    outputs, gradients = with_gradients(step, inputs, weights)
    for a, b in zip([*outputs, *gradients], [*expected, *expected_gradients], strict=True):
        torch.testing.assert_close(a, b)


def test_step_leaves_the_given_state_alone():
    q, k, v, decay, S, z = make_inputs(1, 1, 2, 4, 4, [0.5, 0.9])
    kept = S.clone(), z.clone()
    _, state = linear_attention_step(q[:, 0], k[:, 0], v[:, 0], (S, z), decay)
    assert torch.equal(S, kept[0]) and torch.equal(z, kept[1])
    assert state.S.data_ptr() != S.data_ptr()


def test_meta_and_fake_tensors_have_shapes_only():
    inputs = [x.to("meta") for x in make_inputs(2, 70, 2, 4, 3, [0.7, 0.95])]
    for form in FORMS:
        out, S, z = run(form, inputs)
        assert (out.shape, S.shape, z.shape) == ((2, 70, 2, 3), (2, 2, 4, 3), (2, 2, 4))
        assert out.is_meta


def test_vmap_over_a_batch_of_calls():
    inputs = [torch.randn(3, 2, 9, 2, 4) for _ in range(3)]
    decay = torch.tensor([0.5, 0.9])
    mapped = torch.func.vmap(lambda q, k, v: linear_attention(q, k, v, decay)[0])(*inputs)
    for i in range(3):
        torch.testing.assert_close(mapped[i], linear_attention(*(x[i] for x in inputs), decay)[0])


BAD = {
    "rank": (lambda q, k, v, g, S, z: (q[0], k, v, g, S, z), ValueError, "q must have shape"),
    "k": (lambda q, k, v, g, S, z: (q, k[:, :-1], v, g, S, z), ValueError, "k must have the shape"),
    "heads": (lambda q, k, v, g, S, z: (q, k, v[:, :, :1], g, S, z), ValueError, "v must have"),
    "decay": (lambda q, k, v, g, S, z: (q, k, v, g[:1], S, z), ValueError, "one value per head"),
    "high": (lambda q, k, v, g, S, z: (q, k, v, g + 0.6, S, z), ValueError, r"in \[0, 1\]"),
    "nan": (lambda q, k, v, g, S, z: (q, k, v, g * float("nan"), S, z), ValueError, "nan"),
    "state": (lambda q, k, v, g, S, z: (q, k, v, g, S[:1], z[:1]), ValueError, "the state must be"),
    "half state": (lambda q, k, v, g, S, z: (q, k, v, g, S, None), ValueError, "pair"),
    "dtype": (lambda q, k, v, g, S, z: (q, k.double(), v, g, S, z), TypeError, "k must be Float"),
    "state dtype": (lambda q, k, v, g, S, z: (q, k, v, g, S.half(), z), TypeError, "S must be"),
    "integers": (lambda q, k, v, g, S, z: (q.long(), k, v, g, S, z), TypeError, "floating point"),
    "device": (lambda q, k, v, g, S, z: (q, k.to("meta"), v, g, S, z), ValueError, "device"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(form, name):
    spoil, error, message = BAD[name]
    op = getattr(torch.ops.g2c, f"linear_attention_{form}")
    with pytest.raises(error, match=message):
        op(*spoil(*make_inputs(2, 5, 2, 4, 4, [0.5, 0.5])))


def test_unknown_form():
    q, k, v, decay = make_inputs(1, 2, 1, 2, 2, [0.5], state=False)
    with pytest.raises(ValueError, match="chunkwise"):
        linear_attention(q, k, v, decay, form="fast")
