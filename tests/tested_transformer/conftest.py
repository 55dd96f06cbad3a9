"""Modules that take the place of a model's own layers, as adapters do."""

import copy
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from tests.tested_transformer import tape
from torch import Tensor, nn

from tested_transformer import checks, replay

_Model = TypeVar("_Model", bound=nn.Module)


class Adapter(nn.Module):
    """A layer and an update of rank 3, with neither a weight nor widths of its own."""

    def __init__(self, layer: nn.Linear | nn.Embedding) -> None:
        super().__init__()
        self.wrapped = layer
        rows, columns = layer.weight.shape
        generator = torch.Generator().manual_seed(rows * columns)
        self.tall = nn.Parameter(torch.randn(rows, 3, generator=generator) / 5)
        self.flat = nn.Parameter(torch.randn(3, columns, generator=generator) / 5)
        self.to(layer.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.wrapped, nn.Embedding):
            return self.wrapped(x) + self.tall[x] @ self.flat
        return self.wrapped(x) + x @ self.flat.T @ self.tall.T


class Packed(nn.Module):
    """A matrix of eights of integers, as quantized layers keep it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.packed = nn.Parameter(
            (8 * layer.weight).round().to(torch.int8), requires_grad=False
        )
        self.bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.packed.to(x.dtype) / 8, self.bias)


def _replaced(model: _Model, how: str) -> tuple[_Model, _Model]:
    """Return a copy with other modules, and a plain one that computes the same."""
    model, plain = copy.deepcopy(model), copy.deepcopy(model)
    for name, layer in [*model.named_modules()]:
        if type(layer) not in (nn.Linear, nn.Embedding):
            continue
        weight = plain.get_submodule(name).weight
        if how == "adapter":
            model.set_submodule(name, replacement := Adapter(layer))
            weight.data += replacement.tall.data @ replacement.flat.data
        elif isinstance(layer, nn.Linear):
            model.set_submodule(name, replacement := Packed(layer))
            weight.data = replacement.packed.to(weight.dtype) / 8
    return model, plain


@pytest.fixture(params=["adapter", "packed"])
def replaced(
    request: pytest.FixtureRequest,
) -> Callable[[_Model], tuple[_Model, _Model]]:
    return lambda model: _replaced(model, request.param)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Record steps on the processor as a GPU would; return what has been recorded."""
    calls: list[tuple] = []

    def record(function, inputs):
        calls.append(inputs)
        return tape.record(function, inputs)

    # Only on the processor are ids read, in order to check them.
    monkeypatch.setattr(checks, "_validate_range", lambda *_, **__: None)
    monkeypatch.setattr(replay, "record", record)
    monkeypatch.setattr(replay, "warm_up", lambda function, inputs: function(*inputs))
    return calls
