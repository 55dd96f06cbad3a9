"""Blockwise attention with FlexAttention, without a table for masks and biases.

PyTorch's FlexAttention takes the mask and the bias as functions of positions. On a GPU
it compiles them into its kernel and skips blocks that are fully masked. Windows,
padding, documents and ALiBi then need memory that is linear in the length, while the
kernel of ``fused_attention`` reads them from a (T, S) table. Make the mask once for a
batch, and pass it to every layer. On a CPU all this only serves for comparison:
uncompiled, it does make the table, and it has no gradient.
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

from tested_transformer.checks import validate_shape, validate_sizes

__all__ = ["blockwise_attention", "make_block_mask"]

_Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def make_block_mask(
    num_queries: int,
    num_keys: int,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Int[Tensor, "B"] | None = None,
    documents: Int[Tensor, "B S"] | None = None,
    device: str | torch.device | None = None,
) -> BlockMask:
    """Return who may attend to whom, for every layer that reads the same batch.

    Args:
        num_queries: T. The last query is at the last key.
        num_keys: S.
        causal: Forbid attending to later positions, like ``causal_mask``.
        window: Forbid all but the last ``window`` keys, like ``sliding_window_mask``.
        lengths: Forbid keys beyond these lengths, like ``padding_mask``.
        documents: For documents packed into one sequence, the number of the document
            that each key belongs to. Attending to another document is forbidden.
        device: Where the attention is computed; by default where ``lengths`` or
            ``documents`` are, and without either the CPU.

    Raises:
        TypeError: If a size is not an ``int``, or ``lengths`` or ``documents`` is not a
            tensor.
        ValueError: If a size is not positive, a shape does not fit, or ``lengths`` or
            ``documents`` is on another device.
    """
    validate_sizes(num_queries=num_queries, num_keys=num_keys)
    start = num_keys - num_queries
    # Each rule says whether, in sequence b, query t may attend to key s.
    rules: list[_Rule] = []
    batch = None
    if causal or window is not None:
        rules.append(lambda b, h, t, s: s <= t + start)
    if window is not None:
        validate_sizes(window=window)
        rules.append(lambda b, h, t, s: s > t + start - window)
    if documents is not None:
        batch = len(documents)
        validate_shape("documents", documents, (batch, num_keys))
        rules.append(lambda b, h, t, s: documents[b, s] == documents[b, t + start])
    if lengths is not None:
        batch = len(lengths) if batch is None else batch
        validate_shape("lengths", lengths, (batch,))
        rules.append(lambda b, h, t, s: s < lengths[b])
    where = _device(device, lengths=lengths, documents=documents)
    _, create = _functions(where)
    return create(
        and_masks(*rules),
        B=batch,
        H=None,
        Q_LEN=num_queries,
        KV_LEN=num_keys,
        device=str(where),
    )


def blockwise_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H_kv S d_k"],
    v: Float[Tensor, "B H_kv S d_v"],
    *,
    block_mask: BlockMask | None = None,
    slopes: Float[Tensor, "H"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T d_v"]:
    """Return the output of ``attention_with_weights``, computed by FlexAttention.

    Args:
        q: Queries. The last one is at the last key.
        k: Keys; with fewer heads than ``q`` if heads share them.
        v: Values, one for each key.
        block_mask: The result of ``make_block_mask``, or any mask of FlexAttention.
        slopes: Add the ``alibi_bias`` of these slopes to the scores.
        scale: Multiply the dot products by this; ``1 / sqrt(d_k)`` by default.

    Raises:
        TypeError: If ``block_mask`` is not a block mask, or ``slopes`` not a tensor.
        ValueError: If ``block_mask`` was made for other sizes or another device, or
            there is not one slope for each head.

    Source: Dong et al., 2024, "Flex Attention".
    """
    batch, heads, num_queries = q.shape[:3]
    start = k.shape[2] - num_queries
    if block_mask is not None:
        scores = (batch, heads, num_queries, k.shape[2])
        _validate_block_mask(block_mask, scores, q.device)
    if slopes is not None:
        validate_shape("slopes", slopes, (heads,))
    attend, _ = _functions(q.device)
    return attend(
        q,
        k,
        v,
        score_mod=None
        if slopes is None
        else lambda score, b, h, t, s: score + slopes[h] * (s - t - start),
        block_mask=block_mask,
        scale=scale,
        enable_gqa=k.shape[1] != heads,
    )


def _device(
    device: str | torch.device | None, **tensors: Tensor | None
) -> torch.device:
    """Return where all of this is, or raise a ``ValueError``."""
    devices = {name: x.device for name, x in tensors.items() if x is not None}
    if device is None:
        where = next(iter(devices.values()), torch.device("cpu"))
    else:
        where = torch.empty(0, device=device).device  # "cuda" becomes "cuda:0"
    if any(device != where for device in devices.values()):
        shown = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(
            f"the mask must be made on one device: {shown}, device={device}"
        )
    return where


def _validate_block_mask(
    block_mask: BlockMask, scores: tuple[int, ...], device: torch.device
) -> None:
    if not isinstance(block_mask, BlockMask):
        raise TypeError(
            "block_mask must be a BlockMask, as make_block_mask returns; "
            f"it is a {type(block_mask).__name__}"
        )
    shape = tuple(block_mask.shape)
    batch_and_heads = zip(shape[:2], scores[:2], strict=True)
    if shape[2:] != scores[2:] or any(n not in (1, m) for n, m in batch_and_heads):
        raise ValueError(f"block_mask was made for {shape}; the scores are {scores}")
    if (place := block_mask.kv_num_blocks.device) != device:
        raise ValueError(
            f"block_mask is on {place} but must be where q is, on {device}"
        )


@lru_cache
def _compiled() -> tuple[Callable[..., Tensor], Callable[..., BlockMask]]:
    return torch.compile(flex_attention), torch.compile(create_block_mask)


def _functions(
    device: torch.device,
) -> tuple[Callable[..., Tensor], Callable[..., BlockMask]]:
    """Return PyTorch's two functions, compiled if they run on an accelerator."""
    if device.type in ("cpu", "meta") or torch.compiler.is_compiling():
        return flex_attention, create_block_mask
    return _compiled()
