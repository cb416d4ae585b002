import numpy as np
import pytest
import torch

from g2c.linear_attention import feature_map

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SMALLEST_SUBNORMAL = {
    torch.float64: 2.0**-1074,
    torch.float32: 2.0**-149,
    torch.bfloat16: 2.0**-133,
    torch.float16: 2.0**-24,
}


def ulp(expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at the float64 values `expected`."""
    digits = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}[dtype]
    exponent = torch.from_numpy(np.frexp(expected.numpy())[1]).double() - 1
    return torch.maximum(2.0 ** (exponent - digits), torch.tensor(SMALLEST_SUBNORMAL[dtype]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_negative_side_is_exp_within_two_ulp(dtype):
    low = -16 if dtype == torch.float16 else -80
    x = torch.linspace(low, 0, 20001, dtype=torch.float64).to(dtype)
    expected = torch.exp(x.double())
    error = (feature_map(x).double() - expected).abs() / ulp(expected, dtype)
    assert error.max() <= 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_positive_side_is_x_plus_one(dtype):
    x = torch.linspace(0, 100, 2001, dtype=torch.float64).to(dtype)
    assert torch.equal(feature_map(x), x + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_far_below_it_stays_at_least_the_smallest_subnormal(dtype):
    x = torch.tensor([-1e4, -800.0, -120.0, -20.0], dtype=torch.float64).to(dtype)
    assert (feature_map(x).double() >= SMALLEST_SUBNORMAL[dtype]).all()


def test_slope_is_one_at_zero_and_phi_below():
    x = torch.tensor([-3.0, -0.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    feature_map(x).sum().backward()
    expected = torch.tensor([-3.0, -0.5, 0.0, 0.0], dtype=torch.float64).exp()
    torch.testing.assert_close(x.grad, expected)


def test_gradients_stay_finite_far_out():
    x = torch.tensor([-1e4, -90.0, 90.0, 1e30], requires_grad=True)
    feature_map(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_gradcheck_and_gradgradcheck():
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(feature_map, x)
    assert torch.autograd.gradgradcheck(feature_map, x)


def test_opcheck_and_vmap():
    torch.library.opcheck(torch.ops.g2c.feature_map, (torch.randn(3, 4, requires_grad=True),))
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.func.vmap(feature_map)(x), feature_map(x))


def test_any_shape_and_integers_refused():
    assert feature_map(torch.empty(0, 3)).shape == (0, 3)
    assert feature_map(torch.tensor(2.0)) == 3
    with pytest.raises(TypeError, match="floating point"):
        feature_map(torch.tensor([1, 2]))
