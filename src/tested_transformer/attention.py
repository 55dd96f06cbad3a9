"""Scaled dot-product attention in the open: scores, weights and output, step by step.

``attention_with_weights`` is written to be read: one line for each step. It is the
reference that every faster path of this library is tested against.
"""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from tested_transformer.checks import validate_attention, validate_mask
from tested_transformer.masks import causal_mask, sliding_window_mask

__all__ = [
    "and_causal",
    "attention_scores",
    "attention_weights",
    "attention_with_weights",
    "drop_keys",
    "repeat_heads",
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
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.
        score_bias: Add this, in the type of ``q``, to the scaled scores; broadcasts to
            them.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1.
    """
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    # Scale the queries before the product: in half precision the dot products of
    # unscaled queries can overflow even where the scaled scores do not.
    scores = (q * factor) @ k.transpose(-2, -1)
    return scores if score_bias is None else scores + score_bias.to(q.dtype)


# --8<-- [end:scores]


# --8<-- [start:weights]
def attention_weights(
    scores: Float[Tensor, "*batch T S"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch T S"]:
    """Turn each row of scores into weights that sum to one.

    Args:
        scores: One row of scores for each query. A row of -inf alone, of a query that
            may attend to nothing, becomes a row of zeros and has no gradient.
        mask: ``True`` where a query may attend; broadcasts to ``scores``. The other
            scores become -inf.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If ``mask`` does not fit ``scores``.
    """
    if mask is not None:
        validate_mask(mask, scores.shape, scores.device)
        scores = scores.masked_fill(~mask, float("-inf"))
    # The softmax of a row of -inf is NaN, and so is its gradient. Replace such a row
    # with zeros before the softmax, and set its weights to zero afterwards.
    empty = scores.isneginf().all(dim=-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(dim=-1).masked_fill(empty, 0.0)


# --8<-- [end:weights]


def attention_with_weights(
    q: Float[Tensor, "*queries T d_k"],
    k: Float[Tensor, "*keys S d_k"],
    v: Float[Tensor, "*keys S d_v"],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    score_bias: Float[Tensor, "..."] | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*queries T d_v"], Float[Tensor, "*queries T S"]]:
    """Return, for each query, the values averaged by how well their keys match it.

    Args:
        q: Queries.
        k: Keys. With axes ``(B, H_kv, S, d_k)`` they may have fewer heads than ``q``:
            ``H / H_kv`` consecutive heads of queries then share each of them.
        v: Values, one for each key.
        mask: ``True`` where a query may attend; ``(T, S)``, or with the axes of
            ``q`` in front, each of them full or 1. For padding, use ``padding_mask``
            or ``token_mask``, which return the right axes: two axes are always read
            as ``(T, S)``, and if B equals T, a mask ``(B, S)`` looks the same.
        causal: Also forbid attending to later positions, like ``causal_mask(T, S)``.
        window: Also forbid all but the last ``window`` keys up to each query, like
            ``sliding_window_mask(T, S, window=window)``, which is causal.
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.
        score_bias: Add this to the scores; its axes follow the rules for ``mask``. It
            is converted to the type of ``q``. -inf forbids a key, as ``mask`` does.
        dropout_p: The probability of dropping a weight. Pass 0 when evaluating.

    Returns:
        The output, and the weights before dropout.

    Raises:
        TypeError: If ``mask`` is not boolean, ``score_bias`` is not floating-point, or
            ``causal`` is not a ``bool``.
        ValueError: If shapes do not fit, ``dropout_p`` is not in [0, 1], or
            ``window`` is not positive.

    Source: Vaswani et al., 2017, "Attention Is All You Need", equation 1.
    """
    validate_attention(q, k, v, mask, window, score_bias, dropout_p, causal)
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    if causal or window is not None:
        mask = and_causal(mask, q, k, window)
    scores = attention_scores(q, k, scale=scale, score_bias=score_bias)
    weights = attention_weights(scores, mask)
    return F.dropout(weights, dropout_p) @ v, weights


def and_causal(
    mask: Bool[Tensor, "..."] | None,
    q: Float[Tensor, "*batch T d_k"],
    k: Float[Tensor, "*shared S d_k"],
    window: int | None,
) -> Bool[Tensor, "..."]:
    """Return the mask, with later keys and keys outside the window forbidden too."""
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    if window is None:
        past = causal_mask(num_queries, num_keys, device=q.device)
    else:
        past = sliding_window_mask(
            num_queries, num_keys, window=window, device=q.device
        )
    return past if mask is None else past & mask


def drop_keys(
    table: Bool[Tensor, "..."] | Float[Tensor, "..."] | None, count: int
) -> Bool[Tensor, "..."] | Float[Tensor, "..."] | None:
    """Return a mask or a bias without the first ``count`` keys."""
    if table is None or count == 0 or table.shape[-1] == 1:  # or the same for all keys
        return table
    return table[..., count:]


# --8<-- [start:share]
def repeat_heads(
    heads: Float[Tensor, "*keys S d"], q: Float[Tensor, "*queries T d_k"]
) -> Float[Tensor, "*queries S d"]:
    """Return keys or values with as many heads as the queries have.

    The copies of a head lie next to each other, one for each query head that shares it.
    """
    if heads.shape[:-2] == q.shape[:-2]:
        return heads
    return heads.repeat_interleave(q.shape[-3] // heads.shape[-3], dim=-3)


# --8<-- [end:share]
