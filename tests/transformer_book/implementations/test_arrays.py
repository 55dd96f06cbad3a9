"""Plain Python, NumPy and PyTorch answer as the library's layer does."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from tested_transformer.multihead import MultiHeadAttention
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
    reference,
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


def test_an_answer_by_hand(implementation: ModuleType) -> None:
    """One head, one sequence of two tokens, the numbers of chapter 12."""
    layer = MultiHeadAttention(d_model=2, num_heads=1).double()
    matrices = {
        "q_proj": [[1.0, 0], [0, 1]],
        "k_proj": [[0.0, 1], [1, 0]],
        "v_proj": [[2.0, 0], [0, 3]],
        "o_proj": [[1.0, 0], [0, 1]],
    }
    weights = {f"{name}.weight": torch.tensor(m) for name, m in matrices.items()}
    biases = {f"{name}.bias": torch.zeros(2) for name in matrices}
    layer.load_state_dict(weights | biases)
    x = torch.eye(2, dtype=torch.double)[None]
    causal = implementation is packed
    output, _ = implementation.prepare(Question(layer, x, x, causal=causal))()
    rows = output if isinstance(output, list) else output.tolist()
    first = [2.0, 0.0] if causal else [0.6605, 2.0093]
    torch.testing.assert_close(
        torch.tensor(rows), torch.tensor([[first, [1.3395, 0.9907]]]), atol=5e-5, rtol=0
    )


def test_a_conversion_moves_every_number_and_changes_none(
    ask: Callable[..., Question],
) -> None:
    weights = ask(torch.float64).weights
    before = torch.cat([array.flatten() for array in weights.values()]).sort().values
    for implementation in (*ALL, flax_dense, flax_packed, flax_layer):
        converted = implementation.convert(weights, 3).values()
        after = torch.cat([array.flatten() for array in converted]).sort().values
        assert torch.equal(before, after), implementation


def test_a_question_has_a_mask_aligned_at_the_end_and_a_gradient_for_everything(
    ask: Callable[..., Question],
) -> None:
    question = ask(torch.float64, causal=True, context=True)
    assert question.mask is not None
    assert question.mask.sum(dim=-1).tolist() == [3, 4, 5, 6, 7]
    assert ask(torch.float64).mask is None
    right = reference(question)
    assert right.keys() == {"output", "x", "context", *question.weights}
    assert all(gradient.dtype == torch.float64 for gradient in right.values())


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


def test_the_bias_of_the_keys_has_no_gradient(ask: Callable[..., Question]) -> None:
    """It moves all scores of a row alike; so gaps are no fractions of it."""
    right = reference(ask(torch.float64))
    assert right["k_proj.bias"].abs().max() < 1e-13
    assert right["k_proj.weight"].abs().max() > 0.1
