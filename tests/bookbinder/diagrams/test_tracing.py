"""A pass is watched: names, values, and what each was made of."""

import pytest
import torch

from bookbinder.diagrams.tracing import Flow, traced
from tested_transformer import MultiHeadAttention, causal_mask
from tested_transformer.blocks import DecoderBlock
from tested_transformer.microgpt import Scalar


def sources(flow: Flow, value: torch.Tensor, **nodes: torch.Tensor) -> dict[str, list]:
    return flow.sources([value], {id(tensor): name for name, tensor in nodes.items()})


def test_a_result_is_made_of_its_inputs_and_the_way_is_named() -> None:
    with Flow() as flow:
        a, b = torch.rand(2, 3), torch.rand(3, 5)
        c = (a @ b).softmax(dim=-1)
    assert sources(flow, c, a=a, b=b) == {
        "a": ["mm", "_softmax"],
        "b": ["mm", "_softmax"],
    }
    assert sources(flow, a, b=b, c=c) == {}


def test_the_way_back_ends_at_the_first_node() -> None:
    with Flow() as flow:
        a = torch.rand(2, 3)
        b = a.exp()
        c = b + 1
    assert sources(flow, c, a=a, b=b) == {"b": ["add"]}


def test_a_way_around_a_node_is_another_source() -> None:
    with Flow() as flow:
        a = torch.rand(2, 3)
        b = a.exp()
        c = a + b
    assert sources(flow, c, a=a, b=b) == {"a": ["add"], "b": ["add"]}


def test_what_is_written_into_a_slice_is_read_from_the_whole() -> None:
    with Flow() as flow:
        room, new = torch.zeros(4, 3), torch.rand(3)
        room[1] = new
        read = room[:2]
    assert "copy_" in sources(flow, room, new=new)["new"]
    assert set(sources(flow, read, new=new)) == {"new"}


def test_gradients_are_made_of_the_loss() -> None:
    with Flow() as flow:
        weight = torch.rand(3, requires_grad=True)
        loss = (weight * 2).sum()
        loss.backward()
    assert weight.grad is not None
    assert "loss" in sources(flow, weight.grad, loss=loss)


def test_numbers_of_plain_python_remember_their_parents() -> None:
    a, b = Scalar(2.0), Scalar(3.0)
    c = a * b
    assert Flow().sources([c], {id(a): "a"}) == {"a": [""]}


def test_steps_have_the_names_of_the_code() -> None:
    x, context = torch.rand(2, 5, 12), torch.rand(2, 7, 11)
    attend = MultiHeadAttention(d_model=12, num_heads=3, d_context=11)
    steps = traced(attend, x, context=context, return_weights=True)
    assert steps.q.shape == (2, 3, 5, 4)
    assert steps.k.shape == (2, 3, 7, 4)
    assert steps["v_proj"].shape == (2, 7, 12)
    output, weights = steps.result
    assert steps.weights is weights
    assert steps["o_proj"] is output
    assert {"output", "o_proj"} <= steps.names(output)


def test_a_variable_has_its_values_in_order() -> None:
    x = torch.rand(2, 5, 12)
    steps = traced(DecoderBlock(d_model=12, num_heads=3), x)
    before, between, after = steps.each("x", "DecoderBlock.forward")
    assert before is x
    assert after is steps.result
    assert torch.allclose(between, x + steps["attention"])
    assert len(steps.each("x")) > 3


def test_functions_without_a_module_are_watched_too() -> None:
    steps = traced(causal_mask, 3, 5)
    assert steps.result.shape == (3, 5)


def test_what_a_pass_has_not_is_an_error() -> None:
    steps = traced(causal_mask, 3)
    with pytest.raises(AttributeError, match="no step of the pass is called weights"):
        _ = steps.weights
    with pytest.raises(KeyError, match=r"the pass has no part blocks\.0"):
        steps["blocks.0"]


def test_an_inner_pass_leaves_the_tracer_as_it_was() -> None:
    import sys

    before = sys.gettrace()
    traced(causal_mask, 3)
    assert sys.gettrace() is before
