"""Graders of *What heads do*."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor

from tested_transformer.interpret import previous_token_target
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_back_target", "grade_silenced"]


def grade_back_target(answer: Callable[[Tensor, int], Tensor]) -> str:
    """Grade the target of a head that looks a number of tokens back.

    Args:
        answer: A function of ``tokens`` and ``steps``.
    """
    tokens = torch.tensor([[4, 4, 2, 9, 4], [1, 2, 3, 4, 5]])
    got = answer(tokens, 2)
    assert got.shape == (2, 5, 5), f"it is {tuple(got.shape)}, not (2, 5, 5)"
    assert got.dtype == torch.bool, "a target is boolean"
    assert not got.triu().any(), "it looks ahead: a row is a query, a column a key"
    assert not got[:, :2].any(), "the first tokens have no target; do not wrap around"
    assert torch.equal(answer(tokens, 1), previous_token_target(tokens)), (
        "with steps=1 it is another distance than the token before"
    )
    assert got[:, 2:].any(dim=-1).all(), "it depends on the tokens; places are enough"
    assert torch.equal(got, _placed(tokens, 2)), "it is right for one step only"
    return "right"


def _placed(tokens: Tensor, steps: int) -> Tensor:
    length = tokens.shape[1]
    return torch.ones(length, length).bool().tril(-steps).triu(-steps).expand(2, -1, -1)


@torch.no_grad()
def grade_silenced(
    answer: Callable[[MultiHeadAttention, int], MultiHeadAttention],
) -> str:
    """Grade a copy of a layer in which one head contributes nothing.

    Args:
        answer: A function of ``layer`` and ``head``.
    """
    layer = MultiHeadAttention(d_model=12, num_heads=3)
    torch.nn.init.normal_(layer.v_proj.bias)
    torch.nn.init.normal_(layer.o_proj.bias)
    x = torch.randn(2, 5, 12)
    before = deepcopy(layer.state_dict())
    for head in (1, 2):
        got = answer(layer, head)(x, causal=True)
        state = layer.state_dict()
        assert all(torch.equal(state[name], before[name]) for name in state), (
            "the layer that was given has changed: copy it first"
        )
        silenced, every_third, rows = (deepcopy(layer) for _ in range(3))
        own = slice(4 * head, 4 * head + 4)
        silenced.o_proj.weight[:, own] = 0.0
        every_third.o_proj.weight[:, head::3] = 0.0
        rows.o_proj.weight[own] = 0.0
        assert not torch.allclose(got, every_third(x, causal=True)), (
            "heads lie side by side, d_k features in a row"
        )
        assert not torch.allclose(got, rows(x, causal=True)), (
            "a head is columns of o_proj"
        )
        assert torch.allclose(got, silenced(x, causal=True), atol=1e-6), (
            f"something of head {head} is left, or another head has changed"
        )
    return "right"
