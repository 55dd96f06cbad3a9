"""The feed-forward against its formula, for each activation."""

import math

import pytest
import torch
from torch import Tensor

from tested_transformer.layers import ACTIVATIONS, FeedForward

B, T, D, D_FF = 2, 3, 5, 7


def bend(name: str, x: Tensor) -> Tensor:
    """Give the activation from its definition."""
    sigmoid = 1 / (1 + torch.exp(-x))
    return {
        "gelu": x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
        "gelu_tanh": x
        * 0.5
        * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "relu": torch.where(x > 0, x, 0.0),
        "relu2": torch.where(x > 0, x * x, 0.0),
        "silu": x * sigmoid,
        "swiglu": x * sigmoid,
    }[name]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_it_is_its_formula(name: str, bias: bool):
    layer = FeedForward(d_model=D, d_ff=D_FF, activation=name, bias=bias)
    x = torch.randn(B, T, D, requires_grad=True)

    def linear(matrix: str, x: Tensor) -> Tensor:
        part = getattr(layer, matrix)
        return x @ part.weight.T + (part.bias if bias else 0)

    inner = bend(name, linear("gate" if name == "swiglu" else "up", x))
    if name == "swiglu":
        inner = inner * linear("up", x)
    expected, output = linear("down", inner), layer(x)
    torch.testing.assert_close(output, expected)
    direction = torch.randn(B, T, D)
    wanted = [x, *layer.parameters()]
    for one, other in zip(
        torch.autograd.grad(output, wanted, direction),
        torch.autograd.grad(expected, wanted, direction),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_positions_do_not_meet():
    layer = FeedForward(d_model=D)
    x = torch.randn(B, T, D, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, 1].sum(), x)
    assert gradient[0, 1].ne(0).all()
    gradient[0, 1] = 0
    assert gradient.eq(0).all()


def test_it_is_four_times_as_wide_by_default():
    assert FeedForward(d_model=D).up.weight.shape == (4 * D, D)
    assert FeedForward(d_model=D).gate is None


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"^d_model=0 and d_ff=0 must be positive$"):
        FeedForward(d_model=0)
    known = "gelu, gelu_tanh, relu, relu2, silu, swiglu"
    with pytest.raises(ValueError, match=f"^activation='tanh' must be one of {known}$"):
        FeedForward(d_model=D, activation="tanh")
