"""How to call an attention: by the names of its arguments, in one of four styles."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.cache import LayerCache
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.masks import causal_mask, token_mask

__all__ = [
    "STYLES",
    "call_causal",
    "call_mha",
    "call_ours",
    "lifted",
    "masked_call",
    "parameters_of",
    "read_mha",
    "read_ours",
    "style_of",
    "wanted_of",
]

STYLES = ("ours", "sdpa", "mha", "causal")
_QKV = 3
_KNOWN = {"mask", "attn_mask", "key_padding_mask"}
_Call = Callable[[Any, Tensor, bool, Tensor | None], Any]


def parameters_of(attention: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Give the parameters by name. PyTorch's own function does not tell them."""
    if attention is F.scaled_dot_product_attention:
        return inspect.signature(_like_sdpa).parameters
    # What torch.compile gives keeps what it was made of, and takes what that takes.
    attention = getattr(attention, "_orig_mod", attention)
    called = attention.forward if isinstance(attention, nn.Module) else attention
    try:
        return inspect.signature(called).parameters
    except ValueError:  # It is not written in Python, and keeps them to itself.
        return {}


def _like_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
) -> None: ...


def wanted_of(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Give the names of those that have to be given in their places."""
    places = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind in places
    ]


def style_of(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Tell the style from the names of the arguments.

    Raises:
        TypeError: If they are those of no style, or of a mask of unknown meaning.
    """
    names, wanted = {*parameters}, wanted_of(parameters)
    if names & {"key_padding_mask", "need_weights"}:
        return "mha"
    strange = [each for each in parameters if "mask" in each and each not in _KNOWN]
    if strange and len(wanted) in (1, _QKV):
        raise TypeError(
            f"{name} takes {', '.join(strange)}, and what True means there is not "
            "known: say style='causal' if it is causal without a mask, or hand over a "
            "module around it whose forward takes attn_mask, True = may attend"
        )
    if names & {"attn_mask", "is_causal"} and len(wanted) in (1, _QKV):
        return "sdpa"
    if names & {"mask", "causal"} and len(wanted) in (1, _QKV):
        return "ours"
    if len(wanted) == 1:
        return "causal"
    raise TypeError(
        f"cannot tell how to call {name}({', '.join(parameters)}): "
        f"name its style, one of {', '.join(STYLES)}"
    )


# What the flag is called that makes it causal, and what the mask.
_WORDS = {"ours": ("causal", "mask"), "sdpa": ("is_causal", "attn_mask")}


@dataclass(frozen=True)
class _Causal:
    """What a lifted function is asked for: causal, and beside that a mask or none."""

    mask: Tensor | None


class _Lifted(ExchangeableAttention):
    """A layer around a function."""

    function: Callable[..., Any]


def _allow(layer: _Lifted, t: int, s: int, mask: Tensor | None) -> Any:
    return _Causal(mask)


def lifted(
    function: Callable[..., Any],
    style: str,
    parameters: Mapping[str, inspect.Parameter],
    d_model: int,
    num_heads: int,
) -> ExchangeableAttention:
    """Give a function of queries, keys and values the projections of a layer."""
    flag, name = _WORDS[style]

    def attend(
        layer: _Lifted, q: Tensor, k: Tensor, v: Tensor, mask: Any
    ) -> tuple[Tensor, None]:
        options: dict[str, Any] = {}
        if isinstance(mask, _Causal):
            num_queries, num_keys = q.shape[-2], k.shape[-2]
            # SDPA's flag is aligned top-left, and alone; ours is neither.
            plain = mask.mask is None and num_queries == num_keys
            if flag in parameters and (style == "ours" or plain):
                options[flag] = True
                mask = mask.mask
            else:
                causal = causal_mask(num_queries, num_keys, device=q.device)
                mask = causal if mask.mask is None else causal & mask.mask
        if mask is not None:
            options[name] = mask
        before = [each.detach().clone() for each in (q, k, v)]
        output = layer.function(q, k, v, **options)
        for which, was, now in zip("qkv", before, (q, k, v), strict=True):
            if not torch.equal(was, now.detach()):
                raise ValueError(f"the function writes into the {which} it is given")
        if isinstance(output, tuple) and style == "ours":
            output = output[0]
        if not isinstance(output, Tensor) or output.shape != q.shape:
            shown = getattr(output, "shape", type(output).__name__)
            shown = tuple(shown) if isinstance(shown, torch.Size) else f"a {shown}"
            raise ValueError(f"the function gives {shown} for q of {tuple(q.shape)}")
        return output, None

    steps = Steps(allow=_allow, attend=attend)
    layer = _Lifted(d_model=d_model, num_heads=num_heads, steps=steps)
    # If it is a module it is part of the layer, and copied and switched with it.
    layer.function = function
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj):
            for each in projection.parameters():
                scale = each.shape[-1] ** -0.5
                each.copy_(torch.randn(each.shape, generator=generator) * scale)
    return layer.eval()


def masked_call(
    style: str, parameters: Mapping[str, inspect.Parameter], *, axes: int = 4
) -> _Call:
    """Make what calls a layer that takes a mask, where True is *may attend*.

    Args:
        style: ``ours`` or ``sdpa``.
        parameters: The layer's: one sequence and a mask, or three.
        axes: Of its mask: 4 for (B, 1, T, T), 3 for (B, T, T).
    """
    flag, name = _WORDS[style]
    sequences = max(1, len(wanted_of(parameters)))

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        options: dict[str, Any] = {}
        mask = None if real is None else token_mask(real)
        # Of SDPA's flag and a mask only one may be given.
        if causal and flag in parameters and (style == "ours" or mask is None):
            options[flag] = True
        elif causal:
            triangle = causal_mask(x.shape[1], device=x.device)
            triangle = triangle.expand(len(x), 1, -1, -1)
            mask = triangle if mask is None else triangle & mask
        if mask is not None:
            options[name] = mask if axes == 4 else mask.squeeze(1)
        return layer(*[x] * sequences, **options)

    return call


def call_ours(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
    """Call a layer as this library's is called."""
    mask = None if real is None else token_mask(real)
    return layer(x, mask=mask, causal=causal)


def call_causal(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
    """Call a layer that is causal by itself and takes no mask."""
    return layer(x)


def call_mha(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
    """Call a layer as PyTorch's is called, with masks that say what to ignore."""
    ignored = ~causal_mask(x.shape[1], device=x.device) if causal else None
    return _ask_mha(layer, x, x, ignored, None if real is None else ~real)


def _ask_mha(
    layer: Any, x: Tensor, context: Tensor, ignored: Tensor | None, pad: Tensor | None
) -> Any:
    first = getattr(layer, "batch_first", True)
    q, kv = (x, context) if first else (x.transpose(0, 1), context.transpose(0, 1))
    output = layer(q, kv, kv, attn_mask=ignored, key_padding_mask=pad)
    output = output[0] if isinstance(output, tuple) else output
    return output if first else output.transpose(0, 1)


def read_ours(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Read pieces with a cache."""
    kv_heads, head_dim = layer.num_kv_heads, layer.head_dim
    shape = x.shape[0], kv_heads, x.shape[1], head_dim
    cache = LayerCache(x.new_zeros(shape), x.new_zeros(shape))
    pieces = x.split([*sizes], dim=1)
    return torch.cat([layer(each, causal=True, cache=cache) for each in pieces], dim=1)


def read_mha(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Read pieces, each with all that came before it as keys and values."""
    outputs: list[Tensor] = []
    end = 0
    for size in sizes:
        end += size
        ignored = ~causal_mask(size, end, device=x.device)
        new, seen = x[:, end - size : end], x[:, :end]
        outputs.append(_ask_mha(layer, new, seen, ignored, None))
    return torch.cat(outputs, dim=1)
