"""Scores: how much of its weight a head puts where a head of some kind would look."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["head_scores", "uniform_score"]


# --8<-- [start:scores]
def head_scores(
    weights: Sequence[Float[Tensor, "B H T S"]], target: Bool[Tensor, "B T S"]
) -> Float[Tensor, "L H"]:
    """Give the weight that each head puts on the target, from 0 to 1.

    It is the mean over all queries that have a target; the others do not count.

    Args:
        weights: Of each layer, as ``Recording.weights`` has them.
        target: ``True`` for the keys that a head of this kind attends to.

    Raises:
        ValueError: If no query has a target, or layers have different numbers of
            heads, as after ``prune_heads``.
    """
    _check_alike(weights)
    asked = _asked(target)
    marked = target[:, None].to(weights[0].dtype)
    on_target = torch.stack([(each * marked).sum(dim=-1) for each in weights])
    return on_target.transpose(1, 2)[:, :, asked].mean(dim=-1)


def uniform_score(target: Bool[Tensor, "B T S"]) -> float:
    """Give the score of a head that attends to all that came, and itself, alike.

    Raises:
        ValueError: If no query has a target.
    """
    seen = torch.arange(1, target.shape[1] + 1)
    return (target.sum(dim=-1) / seen)[_asked(target)].mean().item()


# --8<-- [end:scores]


def _asked(target: Tensor) -> Tensor:
    asked = target.any(dim=-1)
    if not asked.any():
        raise ValueError("target has no key for any query: there is nothing to score")
    return asked


def _check_alike(weights: Sequence[Tensor]) -> None:
    counts = [each.shape[1] for each in weights]
    if len({*counts}) != 1:
        raise ValueError(
            f"weights are of layers with {counts} heads, which make no table: score "
            "one layer at a time, head_scores([weights[layer]], target)"
        )
