"""Make another model of one: with fewer keys, fewer heads, or a longer context.

Each function returns a copy with its own settings and weights.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from tested_transformer.checks import validate_choice
from tested_transformer.gpt import GPT
from tested_transformer.interpret import shut
from tested_transformer.multihead import MultiHeadAttention, Softmax
from tested_transformer.rotary_scaling import (
    SCALINGS,
    linear_rates,
    ntk_rates,
    yarn_attention_factor,
    yarn_rates,
)

__all__ = ["prune_heads", "stretched", "stretched_by", "with_fewer_keys"]


# --8<-- [start:sharing]
def with_fewer_keys(model: GPT, num_kv_heads: int) -> GPT:
    """Return a copy of a model in which groups of heads share keys and values.

    Within a group the projections to keys and values are averaged; everything else is
    kept. The copy is a starting point for further training. It computes the same as the
    model only if the heads of each group already had the same keys and values.

    Args:
        model: Any GPT.
        num_kv_heads: Heads of keys and values in the copy; must divide the model's.

    Raises:
        ValueError: If ``num_kv_heads`` does not divide the model's, the model was
            pruned, or its attention cannot share keys, like ``Latent``.

    Source: Ainslie et al., 2023, "GQA: Training Generalized Multi-Query Transformer
    Models from Multi-Head Checkpoints", section 2.1.
    """
    before = _num_kv_heads(model)
    if num_kv_heads < 1 or before % num_kv_heads:
        raise ValueError(
            f"num_kv_heads={num_kv_heads} must divide the model's num_kv_heads={before}"
        )

    def pool(rows: Tensor) -> Tensor:
        heads = rows.unflatten(0, (num_kv_heads, before // num_kv_heads, -1))
        return heads.mean(dim=1).flatten(0, 1)

    state, shared = model.state_dict(), [".k_proj.", ".v_proj."]
    # Some models have one gain for each feature of all keys.
    shared += [".k_norm."] if model.config.qk_norm == "projection" else []
    for name, tensor in state.items():
        if any(part in name for part in shared):
            state[name] = pool(tensor)
    copy = GPT.from_weights(replace(model.config, num_kv_heads=num_kv_heads), state)
    return copy.train(model.training)


# --8<-- [end:sharing]


def _num_kv_heads(model: GPT) -> int:
    config = model.config
    if config.kept_heads is not None:
        raise ValueError("model was pruned: share its keys before pruning")
    if "num_kv_heads" in config.attention.unsupported:
        raise ValueError(
            f"attention={config.attention!r} of model has no keys that heads can share"
        )
    return config.num_kv_heads or config.num_heads


# --8<-- [start:prune]
def prune_heads(model: GPT, heads: Iterable[tuple[int, int]]) -> GPT:
    """Return a copy of a model without some of its heads.

    A head is a slice of rows of ``q_proj``, ``k_proj`` and ``v_proj``, and a slice of
    columns of ``o_proj``. The copy leaves these out and keeps everything else. It
    computes what the model computes with these heads' gates at 0, with less work.

    Args:
        model: A GPT with softmax attention; it may have been pruned before.
        heads: ``(layer, head)`` of each head to leave out, by its present number in
            ``model``.

    Raises:
        ValueError: If there is no such head, a layer would keep none, only some of the
            heads that share keys are left out, the model's attention is another than
            ``"softmax"``, or its ``qk_norm`` is ``"projection"``.

    Source: Michel et al., 2019, "Are Sixteen Heads Really Better than One?".
    """
    _validate_prunable(model)
    gates = shut(model, heads)
    kept: list[list[int]] = [gate.nonzero().flatten().tolist() for gate in gates]
    before = model.config.kept_heads or [range(len(gate)) for gate in gates]
    names = tuple(
        tuple(numbers[head] for head in of_layer)
        for numbers, of_layer in zip(before, kept, strict=True)
    )
    state = model.state_dict()
    for layer, block in enumerate(model.blocks):
        attention = block.attention
        assert isinstance(attention, MultiHeadAttention)  # as _validate_prunable says
        for name, weight in _kept_weights(attention, kept[layer]).items():
            state[f"blocks.{layer}.attention.{name}"] = weight
    copy = GPT.from_weights(replace(model.config, kept_heads=names), state)
    return copy.train(model.training)


# --8<-- [end:prune]


def _validate_prunable(model: GPT) -> None:
    if type(model.config.attention) is not Softmax:
        raise ValueError(
            f"attention={model.config.attention!r} of model must be Softmax(): only "
            "its heads can be pruned"
        )
    if model.config.qk_norm == "projection":
        raise ValueError(
            "qk_norm='projection' of model normalizes all heads together: without some "
            "of them, the others would change"
        )


def _kept_weights(attention: MultiHeadAttention, heads: list[int]) -> dict[str, Tensor]:
    """Return the weights that belong to these heads, by name."""
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
    """Return the indices of the features that belong to these heads."""
    return [head * head_dim + feature for head in heads for feature in range(head_dim)]


def stretched(
    model: GPT,
    max_seq_len: int,
    rates: Float[Tensor, "half"],
    *,
    attention_factor: float = 1.0,
) -> GPT:
    """Return a copy of a rotary model with other rates, for longer texts.

    No weight changes. The copy's config holds the rates, so a checkpoint keeps them.

    Args:
        model: A GPT with rotary positions.
        max_seq_len: How many tokens the copy can read.
        rates: How far each pair turns from one token to the next, ``head_dim / 2``
            numbers.
        attention_factor: Multiply rotated queries and keys by this; see
            ``yarn_attention_factor``.

    Raises:
        ValueError: If the model has no rotary positions, or ``rates`` does not have
            ``head_dim / 2`` numbers.
    """
    config = replace(
        model.config,
        max_seq_len=max_seq_len,
        rotary_rates=tuple(rates.tolist()),
        rotary_attention_factor=attention_factor,
    )
    return GPT.from_weights(config, model.state_dict()).train(model.training)


def stretched_by(model: GPT, factor: float, *, scaling: str = "yarn") -> GPT:
    """Return a copy of a rotary model for texts ``factor`` times as long.

    This assumes that the model was trained on texts of its ``max_seq_len``.

    Args:
        model: A GPT with rotary positions, not stretched before.
        factor: How many times as long; at least 1.
        scaling: The rule, one of ``SCALINGS``.

    Raises:
        ValueError: If ``factor`` is less than 1, ``scaling`` is unknown, the model has
            no rotary positions, or it is already stretched.
    """
    validate_choice("scaling", scaling, SCALINGS)
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor={factor} must be at least 1, and finite")
    config = model.config
    if config.positions != "rotary":
        raise ValueError(f"positions={config.positions!r} of model must be 'rotary'")
    if config.rotary_rates is not None:
        raise ValueError("rotary_rates of model must be None: it is already stretched")
    trained, base = config.max_seq_len, config.rotary_base
    if scaling == "yarn":
        rates = yarn_rates(config.d_k, factor=factor, trained_length=trained, base=base)
    else:
        rule = linear_rates if scaling == "linear" else ntk_rates
        rates = rule(config.d_k, factor=factor, base=base)
    scale = yarn_attention_factor(factor) if scaling == "yarn" else 1.0
    return stretched(model, int(trained * factor), rates, attention_factor=scale)
