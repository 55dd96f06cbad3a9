"""Graders of *Pruning*."""

from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.multihead import MultiHeadAttention

__all__ = ["grade_drop_head", "grade_padded"]

_State = dict[str, Tensor]


def _drawn_layer(num_heads: int) -> MultiHeadAttention:
    layer = MultiHeadAttention(d_model=12, num_heads=num_heads, head_dim=4)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def _loaded(state: _State, num_heads: int) -> MultiHeadAttention:
    layer = MultiHeadAttention(d_model=12, num_heads=num_heads, head_dim=4)
    for name, parameter in layer.state_dict().items():
        assert name in state, f"{name} is missing"
        shape, actual = tuple(parameter.shape), tuple(state[name].shape)
        assert actual == shape, f"{name} is {actual}, not {shape}"
    layer.load_state_dict(state)
    return layer


@torch.no_grad()
def grade_drop_head(answer: Callable[[_State, int, int], _State]) -> str:
    """Grade the state of a layer without one of its heads.

    Args:
        answer: A function of ``state``, ``head`` and ``head_dim``.
    """
    layer = _drawn_layer(num_heads=3)
    x = torch.randn(2, 5, 12)

    def shut(head: int) -> Tensor:
        state = {
            name: parameter.clone() for name, parameter in layer.state_dict().items()
        }
        state["o_proj.weight"][:, 4 * head : 4 * head + 4] = 0.0
        return _loaded(state, num_heads=3)(x, causal=True)

    for head in (1, 0):
        small = _loaded(answer(dict(layer.state_dict()), head, 4), num_heads=2)
        result = small(x, causal=True)
        for other_head in {0, 1, 2} - {head}:
            assert not torch.allclose(result, shut(other_head), atol=1e-4), (
                f"head {other_head} is gone, and head {head} was to go"
            )
        assert torch.equal(small.o_proj.bias, layer.o_proj.bias), (
            "the bias of o_proj belongs to no head: it stays"
        )
        assert torch.allclose(result, shut(head), atol=1e-4), (
            "the shapes are right, the features are not: d_k in a row make a head"
        )
    return "right"


@torch.no_grad()
def grade_padded(answer: Callable[[_State, int], _State]) -> str:
    """Grade the state of a pruned layer that has all its features again.

    Args:
        answer: A function of ``state`` and ``d_model``.
    """
    small = _drawn_layer(num_heads=2)
    wide = _loaded(answer(dict(small.state_dict()), 12), num_heads=3)
    x = torch.randn(2, 5, 12)
    expected, result = small(x, causal=True), wide(x, causal=True)
    kept = slice(0, 8)
    assert torch.equal(wide.q_proj.weight[kept], small.q_proj.weight), (
        "the heads that were left have changed or moved: the new features come last"
    )
    assert not wide.o_proj.weight[:, 8:].any(), (
        "o_proj reads the new head, and so the output has changed"
    )
    assert torch.allclose(result, expected, atol=1e-4), (
        "the output has changed: is a weight or a bias of the old heads different?"
    )
    return "right"
