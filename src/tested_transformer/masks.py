"""Masks: which query may attend to which key.

A mask is boolean and ``True`` means *may attend*, everywhere in this library. It
broadcasts to the scores, ``(B, H, T, S)``, so you can combine two masks with ``&``: a
query then attends to the keys that both allow.

Other libraries have other conventions. If their ``True`` means *ignore*, convert with
``~``, in either direction; if their masks are floats to add to the scores, use
``to_additive`` and ``from_additive``.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tested_transformer.inspection import is_readable

__all__ = [
    "causal_mask",
    "from_additive",
    "padding_mask",
    "sliding_window_mask",
    "to_additive",
    "token_mask",
]


# --8<-- [start:causal]
def causal_mask(
    num_queries: int,
    num_keys: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Return the mask that lets each position see itself and the positions before it.

    The last query is at the last key, so the mask is aligned bottom-right: with a
    key/value cache, ``causal_mask(1, 7)`` lets the newest token see all 7.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.
        device: Where to make the mask.

    Raises:
        TypeError: If a length is not a whole number.
        ValueError: If a length is negative.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.2.3.
    """
    num_keys = num_queries if num_keys is None else num_keys
    _validate_length("num_queries", num_queries)
    _validate_length("num_keys", num_keys)
    query_positions = torch.arange(num_keys - num_queries, num_keys, device=device)
    key_positions = torch.arange(num_keys, device=device)
    return key_positions <= query_positions[:, None]


# --8<-- [end:causal]


def sliding_window_mask(
    num_queries: int,
    num_keys: int | None = None,
    *,
    window: int,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Return the mask that lets a position see itself and ``window - 1`` keys before.

    It is causal, and aligned bottom-right like ``causal_mask``. With a window at least
    as long as the keys it equals the causal mask.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.
        window: How many keys a position may attend to, including itself.
        device: Where to make the mask.

    Raises:
        TypeError: If a length or ``window`` is not a whole number.
        ValueError: If a length is negative, or ``window`` is not positive.

    Source: Beltagy et al., 2020, "Longformer", section 3.1, with a window that looks
    back only.
    """
    _validate_integer("window", window)
    if window < 1:
        raise ValueError(f"window={window} must be positive")
    causal = causal_mask(num_queries, num_keys, device=device)
    # Causal, minus the keys that lie `window` or more positions back.
    return causal & ~causal.tril(causal.shape[1] - causal.shape[0] - window)


def padding_mask(
    lengths: Int[Tensor, "B"], num_keys: int | None = None
) -> Bool[Tensor, "B 1 1 S"]:
    """Return the mask that lets queries see the first ``lengths[b]`` keys of row ``b``.

    Args:
        lengths: The number of real tokens in each sequence of the batch.
        num_keys: S, the padded length; the longest sequence by default.

    Raises:
        TypeError: If ``lengths`` is not a tensor of whole numbers.
        ValueError: If it does not have exactly one axis, or a length is not between 0
            and ``num_keys``; or if the lengths cannot be read, as while a graph is
            traced, and ``num_keys`` is not given.
    """
    _validate_lengths(lengths)
    if num_keys is None and not is_readable(lengths):
        raise ValueError("num_keys must be given: lengths cannot be read here")
    counts = lengths.tolist() if is_readable(lengths) else []
    num_keys = max(counts, default=0) if num_keys is None else num_keys
    _validate_length("num_keys", num_keys)
    if any(not 0 <= count <= num_keys for count in counts):
        raise ValueError(f"lengths={counts} must lie between 0 and num_keys={num_keys}")
    key_positions = torch.arange(num_keys, device=lengths.device)
    return key_positions < lengths[:, None, None, None]


def token_mask(
    real: Bool[Tensor, "B S"] | Int[Tensor, "B S"],
) -> Bool[Tensor, "B 1 1 S"]:
    """Return the mask that lets queries see the real tokens, on either side of padding.

    Args:
        real: For each sequence, which of its positions hold a real token: booleans
            such as ``tokens != pad``, or a tokenizer's ones and zeros.

    Raises:
        TypeError: If ``real`` is floating-point.
        ValueError: If it does not have two axes, or holds numbers other than 0 and 1.
    """
    _validate_tokens(real)
    return real.bool()[:, None, None, :]


# --8<-- [start:additive]
def to_additive(
    mask: Bool[Tensor, "*shape"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape"]:
    """Return the mask as numbers to add to the scores: 0 where allowed, else -inf.

    Args:
        mask: ``True`` where a query may attend.
        dtype: The type of the scores.

    Raises:
        TypeError: If ``mask`` is not boolean.
    """
    _validate_tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise TypeError(
            "mask must be boolean (True = may attend); "
            f"it is {str(mask.dtype).removeprefix('torch.')}"
        )
    allowed = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return allowed.masked_fill(~mask, float("-inf"))


def from_additive(added: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Return the boolean mask for a mask of numbers to add to the scores.

    Args:
        added: 0 where a query may attend. Where it may not, -inf or the lowest number
            of its type, which some libraries use instead.

    Raises:
        TypeError: If ``added`` is not floating-point.
        ValueError: If it holds another number, which would not forbid a key but only
            shift its score.
    """
    _validate_tensor("added", added)
    if not added.is_floating_point():
        raise TypeError(f"added must be floating-point; its dtype is {added.dtype}")
    forbidden = added <= torch.finfo(added.dtype).min
    others = added[~forbidden & (added != 0)]
    if others.numel():
        raise ValueError(
            "added must hold 0 where a query may attend and -inf where not; "
            f"it holds {others[0].item():g}"
        )
    return ~forbidden


# --8<-- [end:additive]


def _validate_tensor(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name} must be a tensor; it is a {type(value).__name__}: "
            f"write torch.as_tensor({name})"
        )


def _validate_tokens(real: Tensor) -> None:
    _validate_tensor("real", real)
    if real.is_floating_point():
        raise TypeError(
            f"real must be booleans, or ones and zeros, not floats; it is {real.dtype}"
        )
    if real.ndim != 2:
        raise ValueError(
            f"real must be (B, S), one row for each sequence; it is {tuple(real.shape)}"
        )
    others = ((real != 0) & (real != 1)).any()
    if is_readable(others) and others:
        raise ValueError("real must hold ones and zeros, or be tokens != pad")


def _validate_lengths(lengths: Tensor) -> None:
    # A mask of tokens is easily passed in place of their number, so refuse floats,
    # booleans and tables of ones and zeros.
    _validate_tensor("lengths", lengths)
    kind = lengths.dtype
    if kind.is_floating_point or kind.is_complex or kind == torch.bool:
        raise TypeError(f"lengths must be a tensor of whole numbers, not {kind}")
    if lengths.ndim != 1:
        raise ValueError(
            f"lengths must be (B,), one for each sequence; it is {tuple(lengths.shape)}"
        )


def _validate_length(name: str, value: int) -> None:
    _validate_integer(name, value)
    if value < 0:
        raise ValueError(f"{name}={value} must not be negative")


def _validate_integer(name: str, value: int) -> None:
    # torch.export passes symbolic lengths, which are not ints but behave like them.
    if isinstance(value, (bool, float, Tensor)):
        shown = "a tensor" if isinstance(value, Tensor) else value
        raise TypeError(f"{name} must be a whole number; it is {shown}")
