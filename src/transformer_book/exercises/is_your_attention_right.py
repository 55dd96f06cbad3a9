"""Graders of *Is your attention right?*."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention_check import EXHIBITS
from transformer_book.museum import ExchangeableAttention

__all__ = ["grade_drops", "grade_sharing"]

Share = Callable[[Tensor, int], Tensor]


def grade_sharing(accepts: Callable[[Share], bool]) -> str:
    """Grade a test for functions that give neighboring heads the same keys.

    Args:
        accepts: Whether ``share(heads, copies)`` passes the test.
    """

    def right(heads: Tensor, copies: int) -> Tensor:
        return heads.repeat_interleave(copies, dim=1)

    wrong: dict[str, Share] = {
        "it accepts tiled keys": lambda heads, copies: EXHIBITS["tiled-keys"].function(
            heads, heads, copies
        )[0],
        "it accepts the right groups in the wrong order": lambda heads, copies: right(
            heads.flip(1), copies
        ),
        "it accepts one head for all": lambda heads, copies: heads[:, :1].expand(
            -1, copies * heads.shape[1], -1, -1
        ),
        "it accepts too few heads": lambda heads, copies: right(heads, copies)[:, :1],
        "it accepts values that were changed": lambda heads, copies: (
            0.5 * right(heads, copies)
        ),
    }
    assert accepts(right), "it refuses what is right"
    for hint, share in wrong.items():
        assert not accepts(share), hint
    return "right"


def grade_drops(drops: Callable[[ExchangeableAttention, Tensor], bool]) -> str:
    """Grade a test for layers that drop weights while evaluating.

    Args:
        drops: A function of a layer and some features that says whether it does so.
    """
    x = torch.randn(3, 7, 12)
    exhibit = EXHIBITS["dropout-while-evaluating"].steps
    for hint, steps, p in (
        ("it accuses a layer that is right: was it asked while training?", None, 0.5),
        ("it passes a layer that drops half of its weights", exhibit, 0.5),
        ("it passes a layer that drops few weights: ask more often", exhibit, 0.002),
    ):
        layer = ExchangeableAttention(d_model=12, num_heads=3, dropout=p, steps=steps)
        torch.manual_seed(1)
        assert drops(layer, x) == (steps is not None), hint
        assert layer.training, "it leaves the layer in another mode"
    drops(layer.eval(), x)
    assert not layer.training, "it leaves an evaluating layer in training"
    return "right"
