"""Norms by hand, with their gain, their bias and the number that guards zero."""

import pytest
import torch

from tested_transformer.layers import NORMS, make_norm

T, D = 3, 5


def test_a_layer_norm_by_hand():
    # Mean 2, variance (1 + 0 + 1 + 0) / 4.
    norm = make_norm("layer", 4)
    output = norm(torch.tensor([1.0, 2.0, 3.0, 2.0]))
    root = (0.5 + 1e-5) ** 0.5
    torch.testing.assert_close(output, torch.tensor([-1.0, 0.0, 1.0, 0.0]) / root)


def test_an_rms_norm_by_hand():
    # Mean of squares (9 + 16) / 2; nothing is centered.
    norm = make_norm("rms", 2)
    output = norm(torch.tensor([3.0, -4.0]))
    torch.testing.assert_close(output, torch.tensor([3.0, -4.0]) / 12.50001**0.5)


@pytest.mark.parametrize("name", NORMS)
def test_gains_and_gradients(name: str):
    norm = make_norm(name, D, bias=False)
    with torch.no_grad():
        norm.weight.copy_(torch.arange(1.0, D + 1))
    x = torch.randn(T, D, requires_grad=True)
    centered = x - x.mean(dim=-1, keepdim=True) if name == "layer" else x
    size = (centered.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    expected = centered / size * torch.arange(1.0, D + 1)
    output = norm(x)
    torch.testing.assert_close(output, expected)
    direction = torch.randn(T, D)
    for one, other in zip(
        torch.autograd.grad(output, [x, norm.weight], direction),
        (
            torch.autograd.grad(expected, x, direction, retain_graph=True)[0],
            (centered / size * direction).sum(dim=0),
        ),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_only_a_layer_norm_may_have_a_bias():
    assert make_norm("layer", D).bias is not None
    assert make_norm("layer", D, bias=False).bias is None
    assert [name for name, _ in make_norm("rms", D).named_parameters()] == ["weight"]


@pytest.mark.parametrize("name", NORMS)
def test_zeros_stay_zeros(name: str):
    x = torch.zeros(T, D, requires_grad=True)
    output = make_norm(name, D)(x)
    output.sum().backward()
    assert output.eq(0).all()
    assert x.grad.isfinite().all()
