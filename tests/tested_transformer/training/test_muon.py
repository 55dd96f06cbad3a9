"""Muon against singular value decompositions and against PyTorch's."""

import math
import re

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.training.muon import (
    Muon,
    _orthogonalize_together,
    orthogonalize,
    orthogonalize_on_short_side,
)

SHAPES = [(5, 5), (5, 11), (11, 5), (2, 3)]


def polynomial(values: Tensor) -> Tensor:
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_a_polynomial_in_the_singular_values(shape: tuple[int, int]):
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    u, values, v = torch.linalg.svd(matrices, full_matrices=False)
    length = values.square().sum(dim=-1, keepdim=True).sqrt()
    expected = u @ torch.diag_embed(polynomial(values / length)) @ v
    torch.testing.assert_close(orthogonalize(matrices), expected)
    for one, other in zip(matrices, expected, strict=True):
        torch.testing.assert_close(orthogonalize(one), other)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_result_is_nearly_orthogonal(shape: tuple[int, int]):
    matrix = torch.randn(shape)
    values = torch.linalg.svdvals(orthogonalize(1e-3 * matrix))
    assert values.min() > 0.65
    assert values.max() < 1.2
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    # The same directions: what it is nearest to is U V'.
    cosine = (orthogonalize(matrix) * (u @ v)).sum() / (
        orthogonalize(matrix).norm() * (u @ v).norm()
    )
    assert cosine > 0.97


def test_values_from_a_500th_on_are_brought_near_one():
    values = torch.linspace(0.002, 1.0, 5000, dtype=torch.float64)
    assert polynomial(values).min() > 0.68
    assert polynomial(values).max() < 1.21


def test_a_gradient_of_zeros_changes_nothing():
    assert torch.equal(orthogonalize(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_on_the_short_side_it_is_the_same(shape: tuple[int, int], rounds: int):
    matrix = torch.randn(shape) * torch.logspace(0, -3, shape[1])
    expected = orthogonalize(matrix.double(), rounds=rounds).float()
    found = orthogonalize_on_short_side(matrix, rounds=rounds)
    # Singular values are squared on the way; bfloat16 would be wrong by 0.03.
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
    zeros = torch.zeros(shape)
    assert torch.equal(orthogonalize_on_short_side(zeros, rounds=rounds), zeros)


@pytest.mark.parametrize(("on_gpu", "atol"), [(False, 2e-3), (True, 0.08)])
@pytest.mark.parametrize("long", [7, 11])
def test_together_they_are_the_same(long: int, on_gpu: bool, atol: float):
    # 7 is nearly as long as 5, 11 is not; a GPU multiplies in bfloat16.
    matrices = [torch.randn(5, long), torch.randn(long, 5), torch.randn(5, long)]
    found = _orthogonalize_together(matrices, 4, on_gpu=on_gpu)
    for one, other in zip(found, matrices, strict=True):
        expected = orthogonalize(other.double(), rounds=4).float()
        torch.testing.assert_close(one, expected, rtol=0, atol=atol)


def test_matrices_of_one_shape_step_as_each_alone():
    shapes = [(5, 11), (11, 5)] * 3 + [(7, 7)]
    together, alone = with_gradients(shapes), with_gradients(shapes)
    for one, other in zip(together, alone, strict=True):
        one.grad = torch.randn(one.shape)
        other.grad = one.grad.clone()
    together[2].grad = None
    before = together[2].clone()
    Muon(together).step()
    for index, other in enumerate(alone):
        if index != 2:
            Muon([other]).step()
            torch.testing.assert_close(together[index], other)
    assert torch.equal(together[2], before)


def with_gradients(shapes: list[tuple[int, int]]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(s, generator=generator)) for s in shapes]


def test_it_steps_as_pytorchs():
    shapes = [(5, 11), (7, 7), (11, 5), (7, 7), (3, 13)]
    ours, theirs = with_gradients(shapes), with_gradients(shapes)
    settings = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.2}
    mine = Muon(ours, **settings)
    others = torch.optim.Muon(theirs, **settings)
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        mine.step()
        others.step()
    for one, other in zip(ours, theirs, strict=True):
        # Theirs multiplies in bfloat16.
        torch.testing.assert_close(one, other, rtol=0, atol=0.02)
        assert (one - other).abs().mean() < 0.004


def test_a_step_by_hand():
    (parameter,) = with_gradients([(11, 5)])
    before = parameter.detach().clone()
    optimizer = Muon([parameter], lr=0.1, momentum=0.75, weight_decay=0.5)
    first, second = torch.randn(2, 11, 5)
    parameter.grad = first
    optimizer.step()
    mean = 0.25 * first
    expected = before * (1 - 0.1 * 0.5) - 0.1 * math.sqrt(11 / 5) * orthogonalize(
        0.25 * first + 0.75 * mean
    )
    torch.testing.assert_close(parameter.detach(), expected)
    parameter.grad = second
    optimizer.step()
    mean = 0.75 * mean + 0.25 * second
    expected = expected * (1 - 0.1 * 0.5) - 0.1 * math.sqrt(11 / 5) * orthogonalize(
        0.25 * second + 0.75 * mean
    )
    torch.testing.assert_close(parameter.detach(), expected)
    torch.testing.assert_close(optimizer.state[parameter]["mean"], mean)


def test_what_has_no_gradient_stays():
    one, other = with_gradients([(3, 5), (3, 5)])
    before = other.detach().clone()
    one.grad = torch.randn(3, 5)
    Muon([one, other], weight_decay=0.5).step()
    assert torch.equal(other, before)


def test_only_matrices_are_taken():
    message = "Muon is for matrices; a parameter is (5,)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Muon([nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(5))])
