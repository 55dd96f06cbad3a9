"""Which query may attend to which key.

A mask is boolean and ``True`` means *may attend*, here and everywhere in this
library. It broadcasts to the scores it masks, ``(B, H, T, S)``, so that two masks
combine with ``&``: a key is attended to where every mask allows it.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["causal_mask", "padding_mask"]


# --8<-- [start:causal]
def causal_mask(
    num_queries: int,
    num_keys: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Let each position attend to itself and to what came before it.

    The last query stands at the last key, so the mask is aligned bottom-right:
    with a key/value cache, ``causal_mask(1, 7)`` lets the newest token see all 7.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.
        device: Where to make the mask.

    Raises:
        ValueError: If a length is negative.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.2.3.
    """
    num_keys = num_queries if num_keys is None else num_keys
    _check_length("num_queries", num_queries)
    _check_length("num_keys", num_keys)
    query_positions = torch.arange(num_keys - num_queries, num_keys, device=device)
    key_positions = torch.arange(num_keys, device=device)
    return key_positions <= query_positions[:, None]


# --8<-- [end:causal]


# --8<-- [start:padding]
def padding_mask(
    lengths: Int[Tensor, "B"], num_keys: int | None = None
) -> Bool[Tensor, "B 1 1 S"]:
    """Let every query attend to the first ``lengths[b]`` keys of sequence ``b``.

    Args:
        lengths: The number of real tokens in each sequence of the batch.
        num_keys: S, the padded length; the longest sequence by default.

    Raises:
        TypeError: If ``lengths`` is not a tensor of whole numbers.
        ValueError: If it has not one axis, or a length is not between 0 and
            ``num_keys``.
    """
    _check_lengths(lengths)
    counts = lengths.tolist()
    num_keys = max(counts, default=0) if num_keys is None else num_keys
    _check_length("num_keys", num_keys)
    if any(not 0 <= count <= num_keys for count in counts):
        raise ValueError(f"lengths={counts} must lie between 0 and num_keys={num_keys}")
    key_positions = torch.arange(num_keys, device=lengths.device)
    return key_positions < lengths[:, None, None, None]


# --8<-- [end:padding]


def _check_lengths(lengths: Tensor) -> None:
    # A mask of tokens is easily taken for their number: neither floats nor booleans
    # are lengths, nor is a table of ones and zeros.
    kind = getattr(lengths, "dtype", type(lengths).__name__)
    whole = isinstance(kind, torch.dtype) and not (
        kind.is_floating_point or kind.is_complex or kind == torch.bool
    )
    if not whole:
        raise TypeError(f"lengths must be a tensor of whole numbers, not {kind}")
    if lengths.ndim != 1:
        raise ValueError(
            f"lengths must be (B,), one for each sequence; it is {tuple(lengths.shape)}"
        )


def _check_length(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name}={value} must not be negative")
