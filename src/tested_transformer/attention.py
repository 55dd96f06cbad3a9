"""Scaled dot-product attention, in the open and fused.

``attention_with_weights`` is written to be read: three lines, one for each
step. It is the reference that every faster path of this library is tested against.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer.masks import causal_mask

__all__ = [
    "attention_scores",
    "attention_weights",
    "attention_with_weights",
    "fused_attention",
]


# --8<-- [start:scores]
def attention_scores(
    q: Float[Tensor, "*batch T d_k"],
    k: Float[Tensor, "*batch S d_k"],
    *,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch T S"]:
    """Score how well each query matches each key: their scaled dot product.

    Args:
        q: Queries.
        k: Keys, as wide as the queries.
        scale: What to multiply the dot products by; ``1 / sqrt(d_k)`` by default.
        score_bias: What to add to the scores, after the scale; broadcasts to them.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1.
    """
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    # Scaled before the product, so that in half precision no sum of it overflows
    # that would not overflow scaled.
    scores = (q * factor) @ k.transpose(-2, -1)
    return scores if score_bias is None else scores + score_bias


# --8<-- [end:scores]


# --8<-- [start:weights]
def attention_weights(
    scores: Float[Tensor, "*batch T S"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch T S"]:
    """Turn each row of scores into weights that sum to one.

    Args:
        scores: One row of scores for each query.
        mask: ``True`` where a query may attend; broadcasts to ``scores``. A query
            that may attend to nothing gets a row of zeros, and passes no gradient.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If ``mask`` does not fit ``scores``.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    _check_mask(mask, scores.shape)
    scores = scores.masked_fill(~mask, float("-inf"))
    # Softmax over nothing but -inf is NaN, and so is its gradient. Such a row goes
    # through softmax as zeros, and is set to zero after it.
    empty = ~mask.any(dim=-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)


# --8<-- [end:weights]


# --8<-- [start:attention]
def attention_with_weights(
    q: Float[Tensor, "*batch T d_k"],
    k: Float[Tensor, "*batch S d_k"],
    v: Float[Tensor, "*batch S d_v"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*batch T d_v"], Float[Tensor, "*batch T S"]]:
    """Average the values, each query weighting them by how well their keys match.

    Args:
        q: Queries.
        k: Keys.
        v: Values, one for each key.
        mask: ``True`` where a query may attend; ``(T, S)``, or with the axes of
            ``q`` in front, each of them full or 1. For padding, ``padding_mask``
            makes one with the right axes.
        causal: Also forbid attending to later positions, as ``causal_mask(T, S)``.
        scale: What to multiply the dot products by; ``1 / sqrt(d_k)`` by default.
        score_bias: What to add to the scores, with axes as those of ``mask``.
        dropout_p: The probability of dropping a weight. Pass 0 when evaluating.

    Returns:
        The output, and the weights before dropout.

    Raises:
        TypeError: If ``mask`` is not boolean, or ``score_bias`` not of floats.
        ValueError: If shapes do not fit, or ``dropout_p`` is not in [0, 1].

    Source: Vaswani et al., 2017, "Attention Is All You Need", equation 1.
    """
    _check_inputs(q, k, v, mask, score_bias, dropout_p)
    if causal:
        mask = _with_causal(mask, q, k)
    scores = attention_scores(q, k, scale=scale, score_bias=score_bias)
    weights = attention_weights(scores, mask)
    return F.dropout(weights, dropout_p) @ v, weights


# --8<-- [end:attention]


# --8<-- [start:fused]
def fused_attention(
    q: Float[Tensor, "*batch T d_k"],
    k: Float[Tensor, "*batch S d_k"],
    v: Float[Tensor, "*batch S d_v"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "*batch T d_v"]:
    """Give the output of ``attention_with_weights`` without its weights.

    PyTorch's fused kernels do without the (T, S) table of weights, which saves time
    and, where no mask of that shape is needed, memory. Arguments and errors are those
    of the open function. Dropout drops other weights than there, and there are first
    derivatives only.

    Source: Dao et al., 2022, "FlashAttention", section 3.
    """
    _check_inputs(q, k, v, mask, score_bias, dropout_p)
    # Left to make the causal mask itself, PyTorch can choose its fastest kernels. Its
    # mask is aligned top-left, which is ours on a square only, and is multiplied by
    # the scale, which must not turn -inf around.
    if q.shape[-2] == 1:
        causal = False  # a single query is the last: it may see every key
    square = q.shape[-2] == k.shape[-2] and (scale is None or scale > 0)
    # The causal mask alone leaves every query a key, if there are as many keys.
    full_rows = mask is None and q.shape[-2] <= k.shape[-2]
    if causal and not (mask is None and score_bias is None and square):
        mask = _with_causal(mask, q, k)
    if mask is None:
        return _call_kernel(
            q, k, v, score_bias, dropout_p=dropout_p, is_causal=causal, scale=scale
        )
    # What a kernel makes of a row with nothing to attend to is its own affair: such a
    # row attends to everything, and is set to zero afterwards.
    empty = None if full_rows else ~mask.any(dim=-1, keepdim=True)
    if empty is not None:
        mask = mask | empty
    if score_bias is not None:
        mask = score_bias.masked_fill(~mask, float("-inf"))
    output = _call_kernel(q, k, v, mask, dropout_p=dropout_p, scale=scale)
    return output if empty is None else output.masked_fill(empty, 0.0)


# --8<-- [end:fused]


def _call_kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any
) -> Tensor:
    """Call PyTorch's kernel, and on a CPU under autocast in float32.

    Its kernel for CPUs takes longer in bfloat16 than all that autocast gains in the
    products around it.
    """
    if q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        if mask is not None and mask.is_floating_point():
            mask = mask.float()
        with torch.autocast("cpu", enabled=False):
            output = _call_kernel(q.float(), k.float(), v.float(), mask, **options)
        return output.to(torch.get_autocast_dtype("cpu"))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def __getattr__(name: str) -> object:
    # Until the release after next, for the name that attention_with_weights had.
    from tested_transformer._moved import find

    return find(__name__, name)


def _with_causal(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    causal = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return causal if mask is None else causal & mask


def _check_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    score_bias: Tensor | None,
    dropout_p: float,
) -> None:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k must be equally wide: q is {_show(q.shape)}, "
            f"k is {_show(k.shape)}"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must be equally long: k is {_show(k.shape)}, "
            f"v is {_show(v.shape)}"
        )
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(
            "q, k and v must agree in every axis but the last two: "
            f"q is {_show(q.shape)}, k is {_show(k.shape)}, v is {_show(v.shape)}"
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p={dropout_p} must lie between 0 and 1")
    scores_shape = torch.Size([*q.shape[:-1], k.shape[-2]])
    if mask is not None:
        _check_mask(mask, scores_shape)
    if score_bias is not None:
        if not score_bias.is_floating_point():
            raise TypeError(
                f"score_bias must be of floats; its dtype is {score_bias.dtype}"
            )
        _check_axes("score_bias", score_bias, scores_shape)


def _check_mask(mask: Tensor, scores_shape: torch.Size) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean, True = may attend; its dtype is {mask.dtype}"
        )
    _check_axes("mask", mask, scores_shape)


def _check_axes(name: str, mask: Tensor, scores_shape: torch.Size) -> None:
    # Between two axes and all of them it would be ambiguous: is (3, T, S) one mask
    # for each sequence, or one for each head?
    full = mask.ndim in (2, len(scores_shape))
    if not full or any(
        have not in (1, want)
        for have, want in zip(mask.shape[::-1], scores_shape[::-1], strict=False)
    ):
        wanted = "(T, S) or (B, H, T, S), each axis full or 1"
        raise ValueError(
            f"{name} is {_show(mask.shape)} but must be {wanted}; "
            f"the scores are {_show(scores_shape)}"
        )


def _show(shape: torch.Size) -> str:
    return str(tuple(shape))
