"""Plain Python, NumPy and PyTorch answer as the library's layer does."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from transformer_book.implementations import (
    Question,
    einsum,
    flax_dense,
    flax_layer,
    flax_packed,
    functional,
    gaps,
    packed,
    per_head,
    scalars,
    separate,
    torch_layer,
)
from transformer_book.implementations.question import Parameters, Step

TORCH = [separate, packed, einsum, functional, torch_layer]
ALL = [scalars, per_head, *TORCH]


@pytest.fixture(params=ALL, ids=lambda module: module.__name__.rpartition(".")[2])
def implementation(request: pytest.FixtureRequest) -> ModuleType:
    if request.param is scalars:
        # Python's own sum begins with the whole number 0, which is no float.
        request.getfixturevalue("as_a_caller")
    return request.param


def test_output_and_every_gradient_are_those_of_the_layer(
    ask: Callable[..., Question], implementation: ModuleType
) -> None:
    """The page about them asks other cases, in double precision and in less."""
    question = ask(torch.float64, causal=True, context=True)
    if implementation is packed:
        message = "^PackedAttention does only causal self-attention$"
        with pytest.raises(ValueError, match=message):
            gaps(packed, question)
        question = ask(torch.float64, causal=True)
    differences = gaps(implementation, question)
    assert max(differences.values()) <= 2e-14, differences
    assert {"output", "x"} <= differences.keys()
    assert ("context" in differences) == (question.context is not None)


def test_numpy_has_no_bfloat16(ask: Callable[..., Question]) -> None:
    with pytest.raises(TypeError, match="BFloat16"):
        gaps(per_head, ask(torch.bfloat16))


def test_a_conversion_moves_every_number_and_changes_none(
    ask: Callable[..., Question],
) -> None:
    weights = ask(torch.float64).weights
    before = torch.cat([array.flatten() for array in weights.values()]).sort().values
    for implementation in (*ALL, flax_dense, flax_packed, flax_layer):
        converted = implementation.convert(weights, 3).values()
        after = torch.cat([array.flatten() for array in converted]).sort().values
        assert torch.equal(before, after), implementation


class Broken:
    """The function of PyTorch with one thing wrong."""

    def __init__(self, **wrong: str) -> None:
        self.wrong = wrong

    def convert(self, weights: Parameters, num_heads: int) -> Parameters:
        return functional.convert(weights, num_heads)

    def prepare(self, question: Question) -> Step:
        step = functional.prepare(question)

        def broken() -> tuple[Tensor, Parameters]:
            output, gradients = step()
            match self.wrong:
                case {"lost": name}:
                    gradients.pop(name)
                case {"off": "output"}:
                    output = output * 1.001
                case {"nan": name}:
                    gradients[name] = gradients[name].clone()
                    gradients[name].view(-1)[-1] = torch.nan
                case {"off": name}:
                    gradients[name] = gradients[name] + 0.01
            return output, gradients

        return broken


def test_one_number_that_is_off_or_missing_is_seen_where_it_is(
    ask: Callable[..., Question],
) -> None:
    for name in ("output", "x", "context", "v_proj.weight"):
        differences = gaps(Broken(off=name), ask(torch.float64, context=True))
        assert [part for part, gap in differences.items() if gap > 1e-12] == [name]
        assert differences[name] > 1e-4
    differences = gaps(Broken(nan="v_proj.bias"), ask(torch.float64))
    assert [name for name, gap in differences.items() if gap > 1e-12] == ["v_proj.bias"]
    assert differences["v_proj.bias"] == float("inf")
    with pytest.raises(ValueError, match=r"^answer has \['k_proj.*; it must have \["):
        gaps(Broken(lost="q_proj.bias"), ask(torch.float64))
