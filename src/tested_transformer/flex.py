"""Blockwise attention with FlexAttention, without a table for masks and biases.

PyTorch's FlexAttention takes the mask and the bias as functions of positions. On a GPU
it compiles them into its kernel and skips blocks that are fully masked. Windows,
padding, documents and ALiBi then need memory that is linear in the length, while the
kernel of ``fused_attention`` reads them from a (T, S) table. On a CPU it only serves
for comparison: uncompiled, it does make the table, and it has no gradient.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask,
    flex_attention,
)

from tested_transformer.validation import validate_sizes

__all__ = ["blockwise_attention"]

_Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


# --8<-- [start:blockwise]
def blockwise_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Int[Tensor, "B"] | None = None,
    documents: Int[Tensor, "B S"] | None = None,
    slopes: Float[Tensor, "H"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T d_v"]:
    """Return the output of ``attention_with_weights``, computed by FlexAttention.

    Args:
        q: Queries. The last one is at the last key.
        k: Keys; with fewer heads than ``q`` if heads share them.
        v: Values, one for each key.
        causal: Forbid attending to later positions, like ``causal_mask``.
        window: Forbid all but the last ``window`` keys, like ``sliding_window_mask``.
        lengths: Forbid keys beyond these lengths, like ``padding_mask``.
        documents: For documents packed into one sequence, the number of the document
            that each key belongs to. Attending to another document is forbidden.
        slopes: Add the ``alibi_bias`` of these slopes to the scores.
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.

    Raises:
        ValueError: If ``window`` is not positive.

    Source: Dong et al., 2024, "Flex Attention".
    """
    if window is not None:
        validate_sizes(window=window)
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    start = num_keys - num_queries
    # Each rule says whether, in sequence b and head h, query t may attend to key s.
    rules: list[_Rule] = []
    if causal or window is not None:
        rules.append(lambda b, h, t, s: s <= t + start)
    if window is not None:
        rules.append(lambda b, h, t, s: s > t + start - window)
    if lengths is not None:
        rules.append(lambda b, h, t, s: s < lengths[b])
    if documents is not None:
        rules.append(lambda b, h, t, s: documents[b, s] == documents[b, t + start])
    attend, make_blocks = _functions(q.device)
    blocks = None
    if rules:
        blocks = make_blocks(
            and_masks(*rules),
            B=None if lengths is documents is None else len(q),
            H=None,
            Q_LEN=num_queries,
            KV_LEN=num_keys,
            device=str(q.device),
        )
    return attend(
        q,
        k,
        v,
        score_mod=None
        if slopes is None
        else lambda score, b, h, t, s: score + slopes[h] * (s - t - start),
        block_mask=blocks,
        scale=scale,
        enable_gqa=k.shape[1] != q.shape[1],
    )


# --8<-- [end:blockwise]


@lru_cache
def _compiled() -> tuple[Callable[..., Tensor], Callable[..., BlockMask]]:
    return torch.compile(flex_attention), torch.compile(create_block_mask)


def _functions(
    device: torch.device,
) -> tuple[Callable[..., Tensor], Callable[..., BlockMask]]:
    """Return PyTorch's two functions, compiled unless they run on a CPU."""
    if device.type == "cpu" or torch.compiler.is_compiling():
        return flex_attention, create_block_mask
    return _compiled()
