"""Attention in steps that can be replaced one at a time, and a GPT made of it.

Every exhibit of the museum replaces one step. With no step replaced, the layer computes
what ``MultiHeadAttention`` computes.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.attention import attention_scores, attention_weights
from tested_transformer.cache import DenseCache, LayerCache
from tested_transformer.gpt import GPT
from tested_transformer.masks import causal_mask
from tested_transformer.multihead import SOFTMAX, MultiHeadAttention

__all__ = ["ExchangeableAttention", "Steps", "with_steps"]

_Features = Float[Tensor, "B T D"]
_Heads = Float[Tensor, "B H T d_k"]
_Weights = Float[Tensor, "B H T S"]


# --8<-- [start:right]
def _project(
    layer: "ExchangeableAttention", x: _Features
) -> tuple[_Features, Float[Tensor, "B T D_kv"], Float[Tensor, "B T D_kv"]]:
    return layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)


def _split(x: _Features, num_heads: int) -> _Heads:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _share(heads: _Heads, copies: int) -> Float[Tensor, "B H_all T d_k"]:
    return heads.repeat_interleave(copies, dim=1)


def _allow(
    layer: "ExchangeableAttention",
    num_queries: int,
    num_keys: int,
    mask: Bool[Tensor, "..."] | None,
) -> Bool[Tensor, "..."]:
    causal = causal_mask(num_queries, num_keys, device=layer.device)
    return causal if mask is None else causal & mask


def _drop(weights: _Weights, p: float, training: bool) -> _Weights:
    return F.dropout(weights, p, training)


def _attend(
    layer: "ExchangeableAttention",
    q: _Heads,
    k: Float[Tensor, "B H S d_k"],
    v: Float[Tensor, "B H S d_v"],
    mask: Bool[Tensor, "..."] | None,
) -> tuple[Float[Tensor, "B H T d_v"], _Weights | None]:
    steps = layer.steps
    scores = steps.score(q, k)
    weights = steps.weigh(scores, mask)
    return steps.drop(weights, layer.dropout, layer.training) @ v, weights


def _merge(heads: _Heads) -> _Features:
    return heads.transpose(1, 2).flatten(2)


def _mix(layer: "ExchangeableAttention", heads: _Features) -> _Features:
    return layer.o_proj(heads)


# --8<-- [end:right]


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of attention in order, each of them a function.

    Args:
        project: From the layer and its input to queries, keys and values.
        split: From features to heads.
        share: From heads of keys or values, and the number of copies of each, to as
            many heads as the queries have.
        allow: From the layer, the numbers of queries and keys, and the padding mask or
            ``None``, to the mask of a causal layer.
        score: From queries and keys to scores.
        weigh: From scores and mask to weights.
        drop: From weights, the dropout probability and whether the layer is in training
            mode, to weights.
        attend: From the layer, queries, keys, values and mask to the heads' outputs and
            their weights. Calls ``score``, ``weigh`` and ``drop``.
        merge: From heads to features.
        mix: From the layer and its merged heads to the output.
    """

    project: Callable[..., tuple[Tensor, Tensor, Tensor]] = _project
    split: Callable[[Tensor, int], Tensor] = _split
    share: Callable[[Tensor, int], Tensor] = _share
    allow: Callable[..., Tensor | None] = _allow
    score: Callable[[Tensor, Tensor], Tensor] = attention_scores
    weigh: Callable[[Tensor, Tensor | None], Tensor] = attention_weights
    drop: Callable[[Tensor, float, bool], Tensor] = _drop
    attend: Callable[..., tuple[Tensor, Tensor | None]] = _attend
    merge: Callable[[Tensor], Tensor] = _merge
    mix: Callable[..., Tensor] = _mix


class ExchangeableAttention(nn.Module):
    """Multi-head self-attention in which each step can be replaced.

    Its parameters have the same names and shapes as in ``MultiHeadAttention``.

    Args:
        d_model: D, the width of input and output.
        num_heads: H; divides ``d_model``.
        num_kv_heads: Heads of keys and values; ``num_heads`` by default.
        dropout: The probability of dropping a weight while training.
        bias: Whether the projections add a bias.
        steps: The steps to take; by default the correct ones.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        steps: Steps | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = d_model // num_heads
        self.dropout = dropout
        self.steps = Steps() if steps is None else steps
        d_kv = self.num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(d_model, d_model, bias=bias)
        self.k_proj = nn.Linear(d_model, d_kv, bias=bias)
        self.v_proj = nn.Linear(d_model, d_kv, bias=bias)
        self.o_proj = nn.Linear(d_model, d_model, bias=bias)

    # --8<-- [start:forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        window: None = None,
        score_bias: None = None,
        rotary: None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> Float[Tensor, "B T D"] | tuple[Float[Tensor, "B T D"], _Weights | None]:
        """Attend as ``MultiHeadAttention`` does, step by step."""
        steps = self.steps
        q, k, v = steps.project(self, x)
        q = steps.split(q, self.num_heads)
        k, v = (steps.split(each, self.num_kv_heads) for each in (k, v))
        if cache is not None:
            k, v = cache.append(k, v)
        if self.num_kv_heads != self.num_heads:
            copies = self.num_heads // self.num_kv_heads
            k, v = steps.share(k, copies), steps.share(v, copies)
        if causal:
            mask = steps.allow(self, q.shape[-2], k.shape[-2], mask)
        heads, weights = steps.attend(self, q, k, v, mask)
        output = steps.mix(self, steps.merge(heads))
        return (output, weights) if return_weights else output

    # --8<-- [end:forward]

    def new_cache(self, batch_size: int, max_length: int) -> DenseCache:
        """Return an empty cache, like that of a ``MultiHeadAttention``."""
        shape = batch_size, self.num_kv_heads, max_length, self.head_dim
        weight = self.k_proj.weight
        return DenseCache(weight.new_zeros(shape), weight.new_zeros(shape))

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self.q_proj.weight.device


def with_steps(model: GPT, steps: Steps) -> GPT:
    """Return a copy of a model whose attention takes other steps.

    Args:
        model: A GPT with learned, sinusoidal or no positions.
        steps: The steps of each of its layers; ``Steps()`` are the correct ones.

    Raises:
        TypeError: If a layer is neither ``MultiHeadAttention`` nor one with steps.
        ValueError: If its layers do something that the steps cannot: rotate queries and
            keys, add a bias to the scores, normalize queries and keys, use a window, or
            attend otherwise than with softmax.
    """
    config = model.config
    if config.attention != SOFTMAX:
        raise ValueError(
            f"attention={config.attention!r} has no counterpart in the steps"
        )
    if config.positions in ("rotary", "alibi") or config.qk_norm:
        raise ValueError(
            f"positions={config.positions!r} and qk_norm={config.qk_norm} have no "
            "counterpart in the steps"
        )
    if any(config.window_of(layer) for layer in range(config.num_layers)):
        raise ValueError(f"windows={config.windows} have no counterpart in the steps")
    model = copy.deepcopy(model)
    for block in model.blocks:
        before = block.attention
        if not isinstance(before, MultiHeadAttention | ExchangeableAttention):
            raise TypeError(f"{type(before).__name__} does not attend in these steps")
        layer = ExchangeableAttention(
            d_model=config.d_model,
            num_heads=before.num_heads,
            num_kv_heads=before.num_kv_heads,
            dropout=config.dropout,
            bias=config.bias,
            steps=steps,
        )
        layer.to(before.q_proj.weight).load_state_dict(before.state_dict())
        block.register_module("attention", layer.train(before.training))
    return model
