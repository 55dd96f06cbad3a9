"""Check arguments: sizes, choices, tokens, features, masks.

An error names the argument, what came, and what was wanted.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tested_transformer.inspection import is_plain, is_readable

__all__ = [
    "validate_attention",
    "validate_between",
    "validate_choice",
    "validate_divisible",
    "validate_dtype",
    "validate_features",
    "validate_heads",
    "validate_kinds",
    "validate_mask",
    "validate_qk_norm",
    "validate_shape",
    "validate_sizes",
    "validate_switches",
    "validate_text",
    "validate_tokens",
]


def validate_sizes(**sizes: int) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a size is not a positive ``int``."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, torch.SymInt)):
            raise TypeError(f"{name}={size!r} must be an int")
        if size < 1:
            raise ValueError(f"{name}={size} must be positive")


def validate_switches(**switches: bool) -> None:
    """Raise a ``TypeError`` if a switch is not a ``bool``."""
    for name, switch in switches.items():
        if not isinstance(switch, bool):
            raise TypeError(f"{name}={switch!r} must be True or False")


def validate_qk_norm(qk_norm: bool | str) -> None:
    """Raise a ``ValueError`` if this is no way to normalize queries and keys."""
    if not isinstance(qk_norm, bool) and qk_norm not in ("heads", "projection"):
        raise ValueError(
            f"qk_norm={qk_norm!r} must be False, True, 'heads' or 'projection'"
        )


def validate_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise a ``ValueError`` if a setting is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(choices)}")


def validate_between(
    name: str, value: float, low: float, high: float, limit: str = ""
) -> None:
    """Raise a ``ValueError`` if a value is not between ``low`` and ``high``.

    If ``high`` is the value of another setting, ``limit`` is that setting's name.
    """
    if not low <= value <= high:
        highest = f"{limit}={high}" if limit else high
        raise ValueError(f"{name}={value} must lie between {low} and {highest}")


def validate_divisible(name: str, width: int, num_heads: int) -> None:
    """Raise a ``ValueError`` if a width is not divisible by the number of heads."""
    if num_heads < 1 or width % num_heads:
        raise ValueError(f"{name}={width} must be divisible by num_heads={num_heads}")


def validate_heads(
    d_model: int,
    num_heads: int,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
) -> None:
    """Raise a ``ValueError`` if the numbers of heads do not fit the model's width.

    ``num_heads`` must divide ``d_model`` unless ``head_dim`` sets the width of a head;
    ``num_kv_heads`` must divide ``num_heads``.
    """
    validate_sizes(d_model=d_model, num_heads=num_heads)
    if head_dim is None:
        validate_divisible("d_model", d_model, num_heads)
    else:
        validate_sizes(head_dim=head_dim)
    if num_kv_heads is not None:
        validate_sizes(num_kv_heads=num_kv_heads)
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads={num_kv_heads} must divide num_heads={num_heads}"
            )


def validate_tokens(
    name: str,
    tokens: Tensor,
    vocab_size: int,
    max_seq_len: int,
    start: int = 0,
    positions: Tensor | None = None,
) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a model cannot read these token ids.

    Args:
        name: Their name in the error.
        tokens: Token ids, (B, T).
        vocab_size: How many ids the model knows.
        max_seq_len: How many positions it knows.
        start: How many tokens its cache already holds.
        positions: The position of each token, if they are given.
    """
    if not isinstance(tokens, Tensor):
        nested = isinstance(tokens, list) and [type(part) for part in tokens[:1]] == [
            list
        ]
        raise TypeError(
            f"{name} must be a tensor, (B, T); it is a {type(tokens).__name__}: "
            f"for a list of ids write torch.tensor({name if nested else '[ids]'})"
        )
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"{name} must be (B, T) and not empty; their shape is {tuple(tokens.shape)}"
        )
    if tokens.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must be int64 or int32; their dtype is {tokens.dtype}")
    if start + tokens.shape[1] > max_seq_len:
        held = f" after {start} in the cache" if start else ""
        raise ValueError(
            f"{tokens.shape[1]} {name}{held} are more than max_seq_len={max_seq_len}"
        )
    _validate_range(f"{name} hold ids", tokens, vocab_size=vocab_size)
    if positions is not None:
        _validate_positions(positions, tokens, max_seq_len)


def validate_text(name: str, tokens: Tensor) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if this is no text of token ids, (N)."""
    if not isinstance(tokens, Tensor):
        encode = ": write torch.tensor(tokenizer.encode(text))"
        raise TypeError(
            f"{name} must be a tensor of token ids, (N); it is a "
            f"{type(tokens).__name__}{encode if isinstance(tokens, str) else ''}"
        )
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise TypeError(f"{name} must be token ids; their dtype is {tokens.dtype}")
    if tokens.ndim != 1:
        raise ValueError(
            f"{name} must be one text, (N); their shape is {tuple(tokens.shape)}: "
            f"write {name}.flatten()"
        )


def _validate_positions(positions: Tensor, tokens: Tensor, max_seq_len: int) -> None:
    validate_shape("positions", positions, tokens.shape)
    if positions.is_floating_point():
        raise TypeError(f"positions must be integers; their dtype is {positions.dtype}")
    _validate_range("positions go", positions, max_seq_len=max_seq_len)


def _validate_range(what: str, numbers: Tensor, **limit: int) -> None:
    # Reading numbers on another device would mean waiting for it.
    if numbers.device.type != "cpu" or not is_readable(numbers):
        return
    extremes = numbers.aminmax()
    if not is_readable(extremes.min):  # what is computed may be fake
        return
    ((name, most),) = limit.items()
    lowest, highest = map(int, extremes)
    if lowest < 0 or highest >= most:
        raise ValueError(
            f"{what} from {lowest} to {highest}; they must be at least 0 and less than "
            f"{name}={most}"
        )


def validate_features(name: str, x: Tensor, width: int) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if these are not features, (B, T, D)."""
    if not isinstance(x, Tensor):
        kind = type(x).__name__
        raise TypeError(
            f"{name} must be a tensor, (batch, length, {width}); it is a {kind}"
        )
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(
            f"{name} must be (batch, length, {width}); it is {tuple(x.shape)}"
        )


def validate_dtype(name: str, x: Tensor, projection: nn.Module) -> None:
    """Raise a ``TypeError`` if the dtypes of features and of a projection differ.

    Another module than an ``nn.Linear`` decides for itself what it takes.
    """
    if not is_plain(projection, nn.Linear):
        return
    weight = projection.weight
    # Under autocast the product converts both to one type.
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        floats = x.is_floating_point()
        layer = f", or layer.to(torch.{_name(x.dtype)})" if floats else ""
        raise TypeError(
            f"{name} is {_name(x.dtype)}, the layer's weights {_name(weight.dtype)}: "
            f"write {name}.to(torch.{_name(weight.dtype)}){layer}"
        )


def validate_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    window: int | None,
    score_bias: Tensor | None,
    dropout_p: float,
    causal: bool = False,
) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if attention cannot use these arguments.

    The arguments are those of ``attention_with_weights``.
    """
    validate_kinds(q=q, k=k, v=v)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q and k must be equally wide: q is {_show(q)}, k is {_show(k)}"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            f"k and v must be equally long: k is {_show(k)}, v is {_show(v)}"
        )
    if not (k.shape[:-2] == v.shape[:-2] and _may_share(q.shape, k.shape)):
        raise ValueError(
            "q, k and v must agree in every axis but the last two (keys and values "
            "may have fewer heads, which divide those of q): "
            f"q is {_show(q)}, k is {_show(k)}, v is {_show(v)}"
        )
    validate_between("dropout_p", dropout_p, 0, 1)
    validate_switches(causal=causal)
    if window is not None:
        validate_sizes(window=window)
    scores = torch.Size([*q.shape[:-1], k.shape[-2]])
    if mask is not None:
        validate_mask(mask, scores, q.device)
    if score_bias is not None:
        if not isinstance(score_bias, Tensor):
            raise TypeError(
                f"score_bias must be a tensor; it is a {type(score_bias).__name__}: "
                "write score_bias=torch.as_tensor(score_bias)"
            )
        if not score_bias.is_floating_point():
            raise TypeError(
                f"score_bias must be floating-point; its dtype is {score_bias.dtype}"
            )
        _validate_axes("score_bias", score_bias, scores, q.device)


def validate_kinds(**tensors: Tensor) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if tensors cannot be multiplied."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor; it is a {type(tensor).__name__}")
    (first, one), *rest = tensors.items()
    names = ", ".join([first, *(name for name, _ in rest[:-1])]) + f" and {rest[-1][0]}"
    if any(tensor.device != one.device for _, tensor in rest):
        others = "".join(f", {name} on {tensor.device}" for name, tensor in rest)
        raise ValueError(
            f"{names} must be on one device: {first} is on {one.device}{others}"
        )
    # Under autocast the products convert their factors to one type.
    alike = all(tensor.dtype == one.dtype for _, tensor in rest)
    if not (alike or torch.is_autocast_enabled(one.device.type)):
        kinds = ", ".join(f"{name} is {_name(x.dtype)}" for name, x in tensors.items())
        raise TypeError(f"{names} must have one dtype: {kinds}")


def validate_shape(name: str, tensor: Tensor, shape: Iterable[int]) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if this is not a tensor of that shape."""
    shape = tuple(shape)
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        raise TypeError(f"{name} must be a tensor, {shape}; it is a {kind}")
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {shape}; it is {tuple(tensor.shape)}")


def validate_mask(mask: Tensor, scores: torch.Size, device: torch.device) -> None:
    """Raise a ``TypeError`` or ``ValueError`` if a mask does not fit its scores."""
    if not isinstance(mask, Tensor):
        raise TypeError(
            "mask must be a boolean tensor (True = may attend); it is "
            + (
                "'causal': write causal=True"
                if isinstance(mask, str) and mask == "causal"
                else f"a {type(mask).__name__}: write mask=torch.as_tensor(mask)"
            )
        )
    if mask.dtype != torch.bool:
        ones = mask == 1
        if mask.is_floating_point() and ones.any() and (ones | (mask == 0)).all():
            advice = "ones and zeros, write mask=mask.bool()"
        elif mask.is_floating_point():
            advice = (
                "a mask that is added to the scores, write mask=from_additive(mask); "
                "for numbers that shift them, score_bias=mask"
            )
        else:
            advice = (
                "a tokenizer's ones and zeros, (B, S), write mask=token_mask(mask); "
                "for ones and zeros of another shape, mask=mask.bool()"
            )
        raise TypeError(
            "mask must be boolean (True = may attend); "
            f"it is {_name(mask.dtype)}. For {advice}"
        )
    _validate_axes("mask", mask, scores, device)


def _validate_axes(
    name: str, mask: Tensor, scores: torch.Size, device: torch.device
) -> None:
    # With a number of axes in between, the mask would be ambiguous: is (3, T, S) one
    # mask for each sequence, or one for each head?
    full = mask.ndim in (2, len(scores))
    if not full or not _broadcasts(mask.shape, scores):
        expected = "(T, S) or (B, H, T, S), each axis full or 1"
        raise ValueError(
            f"{name} is {_show(mask)} but must be {expected}; "
            f"the scores are {tuple(scores)}{_advise_on_axes(name, mask, scores)}"
        )
    if mask.device != device:
        raise ValueError(
            f"{name} is on {mask.device} but must be where q is, on {device}"
        )


def _advise_on_axes(name: str, mask: Tensor, scores: torch.Size) -> str:
    if len(scores) != 4:
        return ""
    b, h, _, s = scores
    if name == "mask" and mask.shape == (b, s):
        return ". For a mask of tokens, (B, S), write mask=token_mask(mask)"
    if mask.ndim != 3 or not _broadcasts(mask.shape[1:], scores):
        return ""
    ways = {
        h: ("head, (H, T, S)", "[None]"),
        b: ("sequence, (B, T, S)", "[:, None]"),
        b * h: ("head of each sequence", f".unflatten(0, ({b}, {h}))"),
    }
    if len(mask) not in ways:
        return ""
    meant, way = ways[len(mask)]
    return f". For one for each {meant}, write {name}={name}{way}"


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    if len(shape) > len(to):
        return False
    pairs = zip(shape, to[len(to) - len(shape) :], strict=True)
    # A list, because PyTorch 2.8 cannot compile what all() makes of a generator.
    return not [have for have, want in pairs if have not in (1, want)]


def _may_share(queries: torch.Size, keys: torch.Size) -> bool:
    if queries[:-2] == keys[:-2]:
        return True
    shared = len(queries) == len(keys) >= 4 and queries[:-3] == keys[:-3]
    return shared and keys[-3] > 0 and queries[-3] % keys[-3] == 0


def _show(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
