"""What is plain, readable and known, and what is not."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tested_transformer.inspection import (
    is_known,
    is_open,
    is_plain,
    is_readable,
    numbers_of,
)


def test_a_plain_layer_computes_nothing_more() -> None:
    layer = nn.Linear(2, 3)
    assert is_plain(layer, nn.Linear)
    assert not is_plain(layer, nn.Module)
    handle = layer.register_forward_hook(lambda *_: None)
    assert not is_plain(layer, nn.Linear)
    handle.remove()
    assert is_plain(layer, nn.Linear)
    layer.forward = lambda x: x
    assert not is_plain(layer, nn.Linear)


def test_numbers_can_be_read_where_there_are_some() -> None:
    assert is_readable(torch.zeros(2))
    assert not is_readable(torch.zeros(2, device="meta"))
    with FakeTensorMode():
        assert not is_readable(torch.zeros(2))
    seen: list[bool] = []
    torch.func.vmap(lambda x: seen.append(is_readable(x)) or x)(torch.zeros(2))
    assert seen == [False]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_length_is_open_only_while_a_program_for_every_length_is_made(
    dynamic: bool,
) -> None:
    assert not is_open(3)
    assert is_known(3 > 2)
    assert not is_known(3 > 4)
    seen: list[tuple[bool, bool]] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append((is_open(x.shape[0]), is_known(x.shape[0] > 5)))
        return x + 1

    length = torch.export.Dim("length", min=1, max=9) if dynamic else None
    shapes = {"x": {0: length}} if dynamic else None
    torch.export.export(
        Program(program), (torch.zeros(7),), dynamic_shapes=shapes, strict=False
    )
    assert {*seen} == {(dynamic, not dynamic)}


class Program(nn.Module):
    def __init__(self, program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(x)


def test_numbers_are_those_of_the_first_parameter_that_has_fractions() -> None:
    layer = nn.Linear(2, 3, dtype=torch.float64, device="meta")
    assert numbers_of(layer).dtype == torch.float64
    assert numbers_of(layer).is_meta
    packed = nn.Module()
    packed.weight = nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)
    assert numbers_of(packed).dtype == torch.get_default_dtype()
    packed.register_buffer("scale", torch.zeros(2, dtype=torch.bfloat16))
    assert numbers_of(packed).dtype == torch.bfloat16
