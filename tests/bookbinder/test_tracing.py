"""A pass is watched: its tensors are found under the names of the code."""

import pytest
import torch

from bookbinder.tracing import traced
from tested_transformer import MultiHeadAttention
from tested_transformer.gpt import DecoderBlock
from transformer_book.microgpt import MicroGPT


def test_steps_have_the_names_of_the_code() -> None:
    x, context = torch.rand(2, 5, 12), torch.rand(2, 7, 11)
    attend = MultiHeadAttention(d_model=12, num_heads=3, d_context=11)
    steps = traced(attend, x, context=context, return_weights=True)
    assert steps.q.shape == (2, 3, 5, 4)
    assert steps.k.shape == (2, 3, 7, 4)
    output, weights = steps.result
    assert steps.output is output
    assert steps.weights is weights
    with pytest.raises(AttributeError, match="no step of the pass is called nothing"):
        _ = steps.nothing
    # Plain Python computes with lists of numbers.
    model = MicroGPT(vocab_size=5, max_seq_len=3, d_model=4, num_heads=2)
    assert len(traced(model.read, 0, model.new_past()).merged) == 4


def test_a_variable_has_its_values_in_order() -> None:
    x = torch.rand(2, 5, 12)
    steps = traced(DecoderBlock(d_model=12, num_heads=3), x)
    before, between, after = steps.values("x", "DecoderBlock.forward")
    assert before is x
    assert after is steps.result
    assert between.shape == x.shape
    assert len(steps.values("x")) > 3
