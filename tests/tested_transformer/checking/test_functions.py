"""A function takes its modules with it, wherever it keeps them."""

import functools

import pytest
import torch
from torch import Tensor, nn

from tested_transformer.checking.functions import FunctionModule, with_its_modules

GLOBAL = nn.Linear(3, 3)


def around_a_global(x: Tensor, *, times: float = 2.0) -> Tensor:
    return times * GLOBAL(x)


def around_a_cell(layer: nn.Module):
    def called(x: Tensor, shift: float = 1.0) -> Tensor:
        return layer(x) + shift

    return called


@pytest.mark.parametrize(
    ("function", "module"),
    [
        (around_a_global, GLOBAL),
        (around_a_cell(GLOBAL), GLOBAL),
        (functools.partial(GLOBAL), GLOBAL),
        (GLOBAL.forward, GLOBAL),
    ],
    ids=["global", "cell", "partial", "method"],
)
def test_it_computes_the_same_and_can_be_moved(function, module: nn.Module) -> None:
    found = with_its_modules(function)
    assert isinstance(found, FunctionModule)
    x = torch.randn(2, 3)
    assert torch.equal(found(x), function(x))
    assert [*found.parameters()] == [*module.parameters()]
    (found.held["only"],) = [nn.Linear(3, 3, dtype=torch.float64)] * 1
    assert module.weight.dtype == torch.float32


def test_another_module_takes_its_place() -> None:
    found = with_its_modules(around_a_cell(GLOBAL))
    assert isinstance(found, FunctionModule)
    found.held["layer"] = nn.Identity()
    assert torch.equal(found(torch.zeros(2), shift=3.0), torch.full((2,), 3.0))


@pytest.mark.parametrize("function", [torch.softmax, lambda x: x, GLOBAL, sum])
def test_what_has_no_modules_stays_what_it_is(function) -> None:
    assert with_its_modules(function) is function
