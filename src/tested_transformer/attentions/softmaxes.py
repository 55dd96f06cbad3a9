"""Softmax attention with small changes: capped scores, a learned sink, a gate.

Each takes a line or two: the cap comes before the softmax, the sink inside it, and the
gate after it. ``AdjustedAttention`` combines any of them, and has none by default.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.attention import (
    and_causal,
    attention_scores,
    attention_weights,
    repeat_heads,
)
from tested_transformer.cache import DenseCache, LayerCache, numbers_of
from tested_transformer.kernels import fused_attention
from tested_transformer.multihead import merge_heads, split_heads
from tested_transformer.positions import rotate
from tested_transformer.validation import (
    validate_attention,
    validate_choice,
    validate_features,
    validate_heads,
    validate_mask,
)

__all__ = [
    "GATES",
    "AdjustedAttention",
    "AttentionLayer",
    "adjusted_attention_with_weights",
    "cap_scores",
    "fused_attention_with_sink",
    "weights_with_sink",
]

GATES = ("none", "heads", "features")

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B *heads T S"]


# --8<-- [start:cap]
def cap_scores(
    scores: Float[Tensor, "*rows S"], cap: float
) -> Float[Tensor, "*rows S"]:
    """Squash scores into -cap to cap, and leave small ones almost unchanged.

    Raises:
        ValueError: If ``cap`` is not positive.

    Source: Gemma Team, 2024, "Gemma 2", on logit soft-capping.
    """
    _validate_cap("cap", cap)
    return cap * torch.tanh(scores / cap)


# --8<-- [end:cap]


# --8<-- [start:sink]
def weights_with_sink(
    scores: Float[Tensor, "B H T S"],
    sink: Float[Tensor, "sinks"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H T S"]:
    """Turn scores into weights that sum to less than one: the sink takes the rest.

    The sink is one more score in each row, for a key that has no value.

    Args:
        scores: One row of scores for each query.
        sink: The score of the sink, one for each head.
        mask: ``True`` where a query may attend. A query that may attend to nothing
            gets a row of zeros.

    Raises:
        ValueError: If there are more or fewer sinks than heads.

    Source: OpenAI, 2025, "gpt-oss-120b & gpt-oss-20b Model Card", on attention.
    """
    _validate_sink(sink, scores)
    column = sink[:, None, None].expand(*scores.shape[:-1], 1)
    if mask is not None:
        validate_mask(mask, scores.shape, scores.device)
        scores = scores.masked_fill(~mask, float("-inf"))
    whole = attention_weights(torch.cat([scores, column], dim=-1))
    return whole[..., :-1].to(scores.dtype)


# --8<-- [end:sink]


# --8<-- [start:open]
def adjusted_attention_with_weights(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    *,
    soft_cap: float | None = None,
    sink: Float[Tensor, "sinks"] | None = None,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
) -> tuple[Float[Tensor, "B H T d_v"], Float[Tensor, "B H T S"]]:
    """Return the output and weights of attention with a cap, a sink, or both.

    Args:
        q: Queries.
        k: Keys; with fewer heads than ``q`` if heads share them.
        v: Values, one for each key.
        soft_cap: Keep scores between ``-soft_cap`` and ``soft_cap``.
        sink: The score of a key without a value, one for each head.
        mask: ``True`` where a query may attend.
        causal: Also forbid attending to later positions.
        window: Also forbid all but the last ``window`` positions up to each.
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.
        score_bias: Add this to the scores, after the cap.

    Returns:
        The output, and the weights. With a sink a row sums to less than one.

    Raises:
        TypeError: If ``mask`` is not boolean, or ``score_bias`` is not floating-point.
        ValueError: If shapes do not fit, ``window`` or ``soft_cap`` is not positive, or
            there are more or fewer sinks than heads.
    """
    validate_attention(q, k, v, mask, window, score_bias, 0.0, causal)
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    if causal or window is not None:
        mask = and_causal(mask, q, k, window)
    scores = attention_scores(q, k, scale=scale)
    if soft_cap is not None:
        scores = cap_scores(scores, soft_cap)
    if score_bias is not None:
        scores = scores + score_bias
    if sink is None:
        weights = attention_weights(scores, mask)
    else:
        weights = weights_with_sink(scores, sink, mask)
    return weights @ v, weights


# --8<-- [end:open]


# --8<-- [start:fused]
def fused_attention_with_sink(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    sink: Float[Tensor, "sinks"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H T d_v"]:
    """Return the output of ``adjusted_attention_with_weights`` with a sink, fused.

    It passes one more key and value, both zeros, to PyTorch's kernel, with the sink as
    the bias of that key's score. The kernel therefore reads a (T, S + 1) table.
    """
    validate_attention(q, k, v, mask, window, score_bias, 0.0, causal)
    _validate_sink(sink, q)
    if causal or window is not None:
        mask = and_causal(mask, q, k, window)
    bias = q.new_zeros(1) if score_bias is None else score_bias
    shape = torch.broadcast_shapes(bias.shape, (1, *q.shape[1:3], k.shape[-2]))
    column = sink[:, None, None].expand(*shape[:-1], 1)
    bias = torch.cat([bias.expand(shape), column], dim=-1)
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], k.shape[-2])
        mask = F.pad(mask, (0, 1), value=True)
    k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    return fused_attention(q, k, v, mask=mask, scale=scale, score_bias=bias)


# --8<-- [end:fused]


# --8<-- [start:layer]
class AttentionLayer(nn.Module):
    """Base class of multi-head self-attention; a subclass says how heads attend.

    Args:
        d_model: D, the width of the sequence.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values, each shared by
            ``num_heads // num_kv_heads`` consecutive heads; ``num_heads`` by default.
        bias: Whether the projections add a bias.
        fused: Use the fast form unless weights are asked for.

    Raises:
        ValueError: If heads do not fit the model, or each other.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        bias: bool = False,
        fused: bool = True,
    ) -> None:
        super().__init__()
        validate_heads(d_model, num_heads, head_dim, num_kv_heads)
        self.d_model = d_model
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = d_model // num_heads if head_dim is None else head_dim
        self.fused = fused
        d_q, d_kv = num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.q_proj = nn.Linear(d_model, d_q, bias=bias)
        self.k_proj = nn.Linear(d_model, d_kv, bias=bias)
        self.v_proj = nn.Linear(d_model, d_kv, bias=bias)
        self.o_proj = nn.Linear(d_q, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        causal: bool = False,
        window: int | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Return what every position gathers from those that it may attend to.

        The arguments are those of ``MultiHeadAttention``.

        Returns:
            The output, or the output and the weights.

        Raises:
            TypeError: If ``mask`` is not boolean.
            ValueError: If shapes do not fit.
        """
        validate_features("x", x, self.d_model)
        q = split_heads(self.q_proj(x), self.num_heads)
        k = split_heads(self.k_proj(x), self.num_kv_heads)
        v = split_heads(self.v_proj(x), self.num_kv_heads)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        if cache is not None:
            k, v = cache.append(k, v)
        how: dict[str, Any] = {
            "mask": mask,
            "causal": causal,
            "window": window,
            "score_bias": score_bias,
        }
        in_the_open = return_weights or not self.fused
        heads, weights = self.attend(q, k, v, x, how, in_the_open=in_the_open)
        output = self.o_proj(merge_heads(heads))
        if weights is None or not return_weights:
            return output
        return output, weights

    def new_cache(self, batch_size: int, max_length: int) -> DenseCache:
        """Return an empty cache for the keys and values of this layer.

        Args:
            batch_size: How many sequences are read side by side.
            max_length: How many tokens it has room for.
        """
        shape = batch_size, self.num_kv_heads, max_length, self.head_dim
        like = numbers_of(self)
        return DenseCache(like.new_zeros(shape), like.new_zeros(shape))

    def attend(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        how: dict[str, Any],
        *,
        in_the_open: bool,
    ) -> tuple[Float[Tensor, "B *heads T d_v"], _Weights | None]:
        """Return the outputs of the heads and, ``in_the_open``, their weights.

        A subclass implements it. ``how`` holds arguments of ``attention_with_weights``.
        """
        raise NotImplementedError


# --8<-- [end:layer]


# --8<-- [start:adjusted]
class AdjustedAttention(AttentionLayer):
    """Attend with any of capped scores, a learned sink, and a gate on the output.

    Args:
        d_model: D, the width of the sequence.
        num_heads: H, how many heads.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        bias: Whether the four projections add a bias.
        fused: Use PyTorch's fused kernels unless weights are asked for. They have no
            cap, so with one, attention is always open.
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.
        soft_cap: Keep scores between ``-soft_cap`` and ``soft_cap``.
        learned_sink: Give each head a sink with a score of its own, initially 0.
        gate: What the gate, a sigmoid computed from the querying token, multiplies:
            a head's whole output ("heads"), each of its features ("features"), or
            nothing ("none").

    Raises:
        ValueError: If heads do not fit, ``soft_cap`` is not positive, or ``gate`` is
            unknown.

    Sources: Gemma Team, 2024, "Gemma 2"; OpenAI, 2025, "gpt-oss-120b &
    gpt-oss-20b Model Card"; Qiu et al., 2025, "Gated Attention for Large Language
    Models", the gates at position G1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        bias: bool = False,
        fused: bool = True,
        scale: float | None = None,
        soft_cap: float | None = None,
        learned_sink: bool = False,
        gate: str = "none",
    ) -> None:
        super().__init__(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            num_kv_heads=num_kv_heads,
            bias=bias,
            fused=fused,
        )
        validate_choice("gate", gate, GATES)
        if soft_cap is not None:
            _validate_cap("soft_cap", soft_cap)
        self.scale = scale
        self.soft_cap = soft_cap
        self.sink = nn.Parameter(torch.empty(num_heads)) if learned_sink else None
        width = num_heads * (self.head_dim if gate == "features" else 1)
        made = None if gate == "none" else nn.Linear(d_model, width, bias=bias)
        self.gate_proj = made
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the sinks to 0. The model initializes the projections."""
        if self.sink is not None:
            nn.init.zeros_(self.sink)

    # --8<-- [start:attend]
    def attend(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        how: dict[str, Any],
        *,
        in_the_open: bool,
    ) -> tuple[Float[Tensor, "B *heads T d_v"], _Weights | None]:
        """Attend with the cap and the sink, then apply the gate."""
        how, weights = how | {"scale": self.scale}, None
        if in_the_open or self.soft_cap is not None:
            heads, weights = adjusted_attention_with_weights(
                q, k, v, soft_cap=self.soft_cap, sink=self.sink, **how
            )
        elif self.sink is not None:
            heads = fused_attention_with_sink(q, k, v, self.sink, **how)
        else:
            heads = fused_attention(q, k, v, **how)
        if self.gate_proj is not None:
            heads = heads * split_heads(self.gate_proj(x).sigmoid(), self.num_heads)
        return heads, weights

    # --8<-- [end:attend]


# --8<-- [end:adjusted]


def _validate_cap(name: str, cap: float) -> None:
    if not 0 < cap < math.inf:
        raise ValueError(f"{name}={cap} must be positive and finite; None means no cap")


def _validate_sink(sink: Tensor, q: Tensor) -> None:
    if not isinstance(sink, Tensor):
        raise TypeError(
            f"sink must be a tensor, ({q.shape[1]},); it is a {type(sink).__name__}"
        )
    if sink.shape != q.shape[1:2]:
        raise ValueError(
            f"sink must be ({q.shape[1]},), one per head; it is {tuple(sink.shape)}"
        )
