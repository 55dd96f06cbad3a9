"""Muon against singular value decompositions, and a step of it by hand."""

import math
import re
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.training.muon import (
    _COEFFICIENTS,
    Muon,
    _coefficients,
    _orthogonalize_together,
    orthogonalize,
    orthogonalize_on_short_side,
)

SHAPES = [(5, 5), (5, 11), (11, 5), (2, 3)]


def polynomial(values: Tensor, rounds: int = 4) -> Tensor:
    for a, b, c in _coefficients(rounds):
        values = a * values + b * values**3 + c * values**5
    return values


def test_the_coefficients_are_those_of_polar_express():
    """Algorithm 2 of the paper: the error of the best polynomial alternates."""
    low, high = 0.001, 1.0
    for a, b, c in _COEFFICIENTS:

        def value(x, a=a, b=b, c=c):
            return a * x + b * x**3 + c * x**5

        root = math.sqrt(9 * b * b - 20 * a * c)
        first, second = (math.sqrt((-3 * b + s * root) / (10 * c)) for s in (-1, 1))
        start, end = value(max(low, 0.02407327424182761 * high)), value(high)
        assert (value(first), value(second)) == pytest.approx((end, start), abs=1e-10)
        # The interval that comes of it lies around 1.
        low, high = value(low), end
        assert low + high == pytest.approx(2.0, abs=1e-10)
    safe = [(a / 1.01, b / 1.01**3, c / 1.01**5) for a, b, c in _COEFFICIENTS]
    last = [(1.875, -1.25, 0.375)] * 2
    for result, expected in zip(_coefficients(9), [*safe, *last], strict=True):
        assert result == pytest.approx(expected)


def test_it_is_a_polynomial_in_the_singular_values():
    for shape in SHAPES:
        matrices = torch.randn(3, *shape, dtype=torch.float64)
        u, values, v = torch.linalg.svd(matrices, full_matrices=False)
        length = values.square().sum(dim=-1, keepdim=True).sqrt()
        expected = u @ torch.diag_embed(polynomial(values / length)) @ v
        torch.testing.assert_close(orthogonalize(matrices), expected)
        torch.testing.assert_close(orthogonalize(matrices[1]), expected[1])
        zeros = torch.zeros(shape)
        assert torch.equal(orthogonalize(zeros), zeros)


def test_values_from_a_thousandth_on_are_brought_near_one():
    values = torch.linspace(0.001, 1.0, 5000, dtype=torch.float64)
    for rounds, least, most in ((4, 0.42, 1.57), (5, 0.84, 1.13), (6, 0.99, 1.01)):
        assert polynomial(values, rounds).min() > least
        assert polynomial(values, rounds).max() < most


def test_on_the_short_side_it_is_the_same():
    for shape, rounds in product(SHAPES, (1, 4)):
        matrix = torch.randn(shape) * torch.logspace(0, -3, shape[1])
        expected = orthogonalize(matrix.double(), rounds=rounds).float()
        result = orthogonalize_on_short_side(matrix, rounds=rounds)
        # Singular values are squared on the way; bfloat16 would be wrong by 0.03.
        torch.testing.assert_close(result, expected, rtol=0, atol=2e-3)
        zeros = torch.zeros(shape)
        assert torch.equal(orthogonalize_on_short_side(zeros, rounds=rounds), zeros)


def test_on_the_short_side_small_singular_values_do_no_harm():
    one = torch.randn(64, 1) @ torch.randn(1, 256)
    u, v = (torch.linalg.qr(torch.randn(n, 16)).Q for n in (16, 64))
    nearly_one = (u * torch.tensor([1.0, *[3e-4] * 15])) @ v.T
    for matrix, rounds in product((one, nearly_one), (4, 5, 6, 12)):
        expected = orthogonalize(matrix.double(), rounds=rounds).float()
        result = orthogonalize_on_short_side(matrix, rounds=rounds)
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-3)


def test_together_they_are_the_same():
    # 67 is nearly as long as 55, 111 is not. A GPU multiplies in bfloat16, and the
    # first rounds, which are steep, make its rounding eight times and four times more.
    for long, (on_gpu, error) in product((67, 111), ((False, 1e-3), (True, 0.15))):
        matrices = [
            torch.randn(shape) for shape in ((55, long), (long, 55), (55, long))
        ]
        result = _orthogonalize_together(matrices, 4, on_gpu=on_gpu)
        for actual, matrix in zip(result, matrices, strict=True):
            expected = orthogonalize(matrix.double(), rounds=4).float()
            assert (actual - expected).norm() < error * expected.norm()


def some_parameters(shapes: list[tuple[int, int]]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]


def test_matrices_of_one_shape_step_as_each_alone():
    shapes = [(5, 11), (11, 5)] * 3 + [(7, 7)]
    together, alone = some_parameters(shapes), some_parameters(shapes)
    for joint, single in zip(together, alone, strict=True):
        joint.grad = torch.randn(joint.shape)
        single.grad = joint.grad.clone()
    together[2].grad = alone[2].grad = None
    Muon(together, weight_decay=0.5).step()
    for joint, single in zip(together, alone, strict=True):
        Muon([single], weight_decay=0.5).step()
        torch.testing.assert_close(joint, single)
    assert torch.equal(together[2], some_parameters(shapes)[2])


@pytest.mark.parametrize("shape", [(11, 5), (5, 7)])  # long, and nearly square
def test_steps_by_hand(shape):
    (parameter,) = some_parameters([shape])
    optimizer = Muon([parameter], lr=0.1, momentum=0.75, weight_decay=0.5, rounds=3)
    expected, mean = parameter.detach().clone(), torch.zeros(shape)
    scale = 0.1 * max(1.0, math.sqrt(shape[0] / shape[1]))
    for gradient in torch.randn(2, *shape):
        parameter.grad = gradient
        optimizer.step()
        mean = 0.75 * mean + 0.25 * gradient
        update = orthogonalize(0.25 * gradient + 0.75 * mean, rounds=3)
        expected = expected * (1 - 0.1 * 0.5) - scale * update
        torch.testing.assert_close(parameter.detach(), expected)
        torch.testing.assert_close(optimizer.state[parameter]["mean"], mean)


def test_only_matrices_are_taken():
    message = "Muon is for matrices; a parameter is (5,)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Muon([nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(5))])
