"""Softmax attention with small changes: capped scores, a learned sink, a gate.

Each takes a line or two: the cap comes before the softmax, the sink inside it, and the
gate after it. ``AdjustedSoftmax`` combines any of them, and has none by default.
"""

import math
from dataclasses import dataclass
from typing import Unpack

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
from tested_transformer.checks import (
    validate_attention,
    validate_choice,
    validate_mask,
)
from tested_transformer.inspection import is_known
from tested_transformer.interfaces import LayerSettings
from tested_transformer.kernels import fused_attention
from tested_transformer.multihead import ScoreOptions, Softmax, split_heads

__all__ = [
    "GATES",
    "AdjustedCore",
    "AdjustedSoftmax",
    "adjusted_attention_with_weights",
    "cap_scores",
    "fused_attention_with_sink",
    "weights_with_sink",
]

GATES = ("none", "heads", "features")


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
    weights = attention_weights(torch.cat([scores, column], dim=-1))
    return weights[..., :-1].to(scores.dtype)


# --8<-- [end:sink]


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
    dropout_p: float = 0.0,
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
        dropout_p: The probability of dropping a weight. Pass 0 when evaluating.

    Returns:
        The output, and the weights before dropout. With a sink a row sums to less than
        one.

    Raises:
        TypeError: If ``mask`` is not boolean, or ``score_bias`` is not floating-point.
        ValueError: If shapes do not fit, ``window`` or ``soft_cap`` is not positive, or
            there are more or fewer sinks than heads.
    """
    validate_attention(q, k, v, mask, window, score_bias, dropout_p, causal)
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
    return F.dropout(weights, dropout_p) @ v, weights


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
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H T d_v"]:
    """Return the output of ``adjusted_attention_with_weights`` with a sink, fused.

    It passes one more key and value to PyTorch's kernel. The value is zeros. The key
    has one more feature, in which it alone is 1 and each query has the sink. With a
    bias, the sink is the bias of that key's score instead.
    """
    validate_attention(q, k, v, mask, window, score_bias, dropout_p, causal)
    _validate_sink(sink, q)
    causal = causal and not is_known(q.shape[-2] == 1)  # a single query sees every key
    square = is_known(q.shape[-2] == k.shape[-2])
    if window is not None or (causal and not (square and mask is score_bias is None)):
        mask, causal = and_causal(mask, q, k, window), False
    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], k.shape[-2])
        mask = F.pad(mask, (1, 0), value=True)
    if score_bias is None and scale != 0:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        column = (sink / scale).to(q.dtype)[:, None, None].expand(*q.shape[:-1], 1)
        q = torch.cat([q, column], dim=-1)
        k = F.pad(k, (0, 1, 1, 0))
        one = F.pad(k.new_ones(1, 1), (k.shape[-1] - 1, 0, 0, k.shape[-2] - 1))
        v = F.pad(v, (0, 0, 1, 0))
        if causal:  # as many queries as keys: the first one sees the sink alone
            q = F.pad(q, (0, 0, 1, 0))
        output = fused_attention(
            *(q, k + one, v),
            mask=mask,
            causal=causal,
            scale=scale,
            dropout_p=dropout_p,
        )
        return output[..., 1:, :] if causal else output
    bias = q.new_zeros(1) if score_bias is None else score_bias
    shape = torch.broadcast_shapes(bias.shape, (1, *q.shape[1:3], k.shape[-2]))
    column = sink[:, None, None].expand(*shape[:-1], 1)
    bias = torch.cat([column, bias.expand(shape)], dim=-1)
    k, v = F.pad(k, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))
    return fused_attention(
        q, k, v, mask=mask, scale=scale, score_bias=bias, dropout_p=dropout_p
    )


@dataclass(frozen=True, kw_only=True)
class AdjustedSoftmax(Softmax):
    """Attend with any of capped scores, a learned sink, and a gate on the output.

    PyTorch's fused kernels have no cap, so with one, attention is always open.

    Args:
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.
        soft_cap: Keep scores between ``-soft_cap`` and ``soft_cap``; no cap by default.
        learned_sink: Give each head a sink with a score of its own, initially 0.
        gate: What the gate, a sigmoid computed from the querying token, multiplies, one
            of ``GATES``: a head's output, each of its features, or nothing.

    Raises:
        ValueError: If ``soft_cap`` is not positive, or ``gate`` is unknown.

    Sources: Gemma Team, 2024, "Gemma 2"; OpenAI, 2025, "gpt-oss-120b &
    gpt-oss-20b Model Card"; Qiu et al., 2025, "Gated Attention for Large Language
    Models", the gates at position G1.
    """

    scale: float | None = None
    soft_cap: float | None = None
    learned_sink: bool = False
    gate: str = "none"

    def __post_init__(self) -> None:
        validate_choice("gate", self.gate, GATES)
        if self.soft_cap is not None:
            _validate_cap("soft_cap", self.soft_cap)

    def make_core(self, settings: LayerSettings) -> "AdjustedCore":
        """Return what attends so, with its sinks and its gate."""
        return AdjustedCore(self, settings)


class AdjustedCore(nn.Module):
    """What attends in a layer with ``AdjustedSoftmax``, and its parameters."""

    def __init__(self, adjusted: AdjustedSoftmax, settings: LayerSettings) -> None:
        super().__init__()
        self.num_heads = settings.num_heads
        self.scale, self.soft_cap = adjusted.scale, adjusted.soft_cap
        on, dtype = settings.device, settings.dtype
        self.sink: nn.Parameter | None = None
        if adjusted.learned_sink:
            sink = torch.empty(self.num_heads, device=on, dtype=dtype)
            self.sink = nn.Parameter(sink)
        self.gate_proj: nn.Linear | None = None
        if adjusted.gate != "none":
            per_head = settings.head_dim if adjusted.gate == "features" else 1
            width = self.num_heads * per_head
            self.gate_proj = nn.Linear(
                settings.d_model, width, settings.bias, device=on, dtype=dtype
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the sinks to 0. The model initializes the projections."""
        if self.sink is not None:
            nn.init.zeros_(self.sink)

    # --8<-- [start:attend]
    def forward(
        self,
        q: Float[Tensor, "B H T d_k"],
        k: Float[Tensor, "B H_kv S d_k"],
        v: Float[Tensor, "B H_kv S d_k"],
        x: Float[Tensor, "B T D"],
        *,
        in_the_open: bool,
        **options: Unpack[ScoreOptions],
    ) -> tuple[Float[Tensor, "B H T d_k"], Float[Tensor, "B H T S"] | None]:
        """Attend with the cap and the sink, then apply the gate."""
        scale, weights = self.scale, None
        if in_the_open or self.soft_cap is not None:
            heads, weights = adjusted_attention_with_weights(
                q, k, v, soft_cap=self.soft_cap, sink=self.sink, scale=scale, **options
            )
        elif self.sink is not None:
            heads = fused_attention_with_sink(
                q, k, v, self.sink, scale=scale, **options
            )
        else:
            heads = fused_attention(q, k, v, scale=scale, **options)
        if self.gate_proj is not None:
            heads = heads * split_heads(self.gate_proj(x).sigmoid(), self.num_heads)
        return heads, weights

    # --8<-- [end:attend]


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
