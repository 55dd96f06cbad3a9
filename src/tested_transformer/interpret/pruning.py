"""Pruning: heads taken out of the weights for good."""

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from tested_transformer.gpt import GPT
from tested_transformer.interpret.ablation import shut
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["prune_heads"]


# --8<-- [start:prune]
def prune_heads(model: GPT, heads: Iterable[tuple[int, int]]) -> GPT:
    """Copy a model without some of its heads.

    A head is a slice of rows of ``q_proj``, ``k_proj`` and ``v_proj``, and a slice of
    columns of ``o_proj``. These are left out; all else is kept. The copy computes what
    the model computes with a gate of 0 for each of these heads, with less work.

    Args:
        model: Any GPT; it may have been pruned before.
        heads: ``(layer, head)`` of each head to leave out, counted as ``model`` has
            them now.

    Raises:
        ValueError: If there is no such head, a layer would keep none, or heads that
            share keys are not left out together.

    Source: Michel et al., 2019, "Are Sixteen Heads Really Better than One?".
    """
    gates = shut(model, heads)
    kept: list[list[int]] = [gate.nonzero().flatten().tolist() for gate in gates]
    before = model.config.kept_heads or [range(len(gate)) for gate in gates]
    names = tuple(
        tuple(numbers[head] for head in of_layer)
        for numbers, of_layer in zip(before, kept, strict=True)
    )
    state = model.state_dict()
    for layer, block in enumerate(model.blocks):
        for name, weight in _kept_weights(block.attention, kept[layer]).items():
            state[f"blocks.{layer}.attention.{name}"] = weight
    copy = GPT.from_weights(replace(model.config, kept_heads=names), state)
    return copy.train(model.training)


# --8<-- [end:prune]


# --8<-- [start:weights]
def _kept_weights(attention: MultiHeadAttention, heads: list[int]) -> dict[str, Tensor]:
    """Return what is left of a layer's projections, by name."""
    share = attention.num_heads // attention.num_kv_heads
    groups = sorted({head // share for head in heads})
    queries = _features(heads, attention.head_dim)
    keys = _features(groups, attention.head_dim)
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    weights = {"o_proj.weight": attention.o_proj.weight[:, queries]}
    for name, weight in attention.state_dict().items():
        projection = name.partition(".")[0]
        if projection in rows:
            weights[name] = weight[rows[projection]]
    return weights


def _features(heads: list[int], head_dim: int) -> list[int]:
    """Return the numbers of the features that belong to heads."""
    return [head * head_dim + feature for head in heads for feature in range(head_dim)]


# --8<-- [end:weights]
