"""A cache that evicts keys, simulated by masks, to see what each rule forgets."""

from dataclasses import dataclass
from typing import Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer import attention_scores, attention_with_weights
from tested_transformer.checks import validate_choice, validate_sizes
from tested_transformer.interfaces import LayerSettings
from tested_transformer.multihead import Core, ScoreOptions, Softmax

__all__ = ["RULES", "SINKS", "Evicting", "kept_keys"]

_BY_WEIGHT = ("heavy hitters", "heavy hitters and recent", "mean weights")
RULES = (
    "sinks and recent",
    *_BY_WEIGHT,
    *("random", "random, alike", "best afterwards"),
)
SINKS = 4


def kept_keys(
    scores: Float[Tensor, "B H T T"], *, rule: str, count: int, start: int = 0
) -> Bool[Tensor, "B H T T"]:
    """Return which keys each query still finds in a cache that holds few of them.

    A token's key comes before its query reads. If there are then too many, the key with
    the lowest rank goes, for good; never the newest.

    Args:
        scores: The scores of all queries and keys, before any mask.
        rule: One of ``RULES``. By ``best afterwards`` nothing is evicted: each query
            reads those that it weighs most, which no cache can know before.
        count: How many keys each head keeps.
        start: The first token after which keys are evicted.

    Raises:
        ValueError: If the rule is unknown, ``count`` is not positive, or ``start`` is
            negative.

    Source: Xiao et al., 2023, "Efficient Streaming Language Models with Attention
    Sinks" (sinks and recent); Zhang et al., 2023, "H2O: Heavy-Hitter Oracle for
    Efficient Generative Inference of Large Language Models" (heavy hitters).
    """
    validate_choice("rule", rule, RULES)
    validate_sizes(count=count)
    if start < 0:
        raise ValueError(f"start={start} must not be negative")
    # --8<-- [start:kept]
    position = torch.arange(scores.shape[-1])
    kept = torch.zeros_like(scores, dtype=torch.bool)
    alive = torch.zeros_like(kept[:, :, 0])
    total = torch.zeros_like(scores[:, :, 0])  # weights so far, of each key
    luck = torch.rand_like(total)
    if rule == "random, alike":  # in all heads and layers
        one = torch.rand(
            len(total), 1, len(position), generator=torch.Generator().manual_seed(0)
        )
        luck = one.expand_as(total)
    by_weight = rule in _BY_WEIGHT
    for t in range(scores.shape[2]):
        alive[..., t] = True
        if rule == "sinks and recent":
            rank = position.where(position >= SINKS, t).expand_as(total).to(total)
        elif rule in ("random", "random, alike"):
            rank = luck
        elif rule == "best afterwards":
            alive, rank = alive | (position <= t), scores[:, :, t]
        else:
            recent = count // 2 if rule == "heavy hitters and recent" else 1
            queries = (t - position).clamp(min=1) if rule == "mean weights" else 1
            rank = (total / queries).masked_fill(position > t - recent, float("inf"))
        if t >= max(start, count):  # there may be too many
            rank = rank.masked_fill(position == t, float("inf"))
            rank = rank.masked_fill(~alive, float("-inf"))
            best = rank.topk(count).indices
            alive = torch.zeros_like(alive).scatter(-1, best, True)
        kept[:, :, t] = alive
        if by_weight:
            row = scores[:, :, t].masked_fill(~alive, float("-inf"))
            total = total + row.softmax(dim=-1)
    return kept
    # --8<-- [end:kept]


@dataclass(frozen=True, kw_only=True)
class Evicting(Softmax):
    """Attend with softmax to the keys that a small cache would still hold.

    It reads whole texts without padding, and has a key head for each query head.

    Args:
        rule: One of ``RULES``.
        count: How many keys each head keeps.
        start: The first token after which keys are evicted.
    """

    rule: str
    count: int
    start: int = 0

    def make_core(self, settings: LayerSettings) -> Core:
        """Return what attends so."""
        return self._attend

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Tensor, Tensor | None]:
        scores = attention_scores(q, k)
        kept = kept_keys(scores, rule=self.rule, count=self.count, start=self.start)
        return attention_with_weights(q, k, v, mask=kept)
