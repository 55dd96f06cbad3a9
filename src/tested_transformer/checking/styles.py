"""The styles in which an attention is called, with a function that calls it for each.

A function of queries, keys and values becomes a layer, with projections around it.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.cache import DenseCache, LayerCache
from tested_transformer.checking.functions import FunctionModule
from tested_transformer.checking.subject import Call, Reader
from tested_transformer.masks import causal_mask, token_mask

__all__ = [
    "FLAGS",
    "MASKED",
    "MASKS",
    "MEANINGS",
    "READ",
    "STYLES",
    "Lifted",
    "Parameters",
    "causal_flag_in",
    "context_in",
    "cross_call",
    "flag_call",
    "is_mask",
    "key_call",
    "mask_and_flag",
    "masked_call",
    "meant_call",
    "mha_call",
    "mha_reader",
    "options_of",
    "parameters_of",
    "plain_call",
    "read_ours",
    "sequences_of",
    "wanted",
    "without_options",
]

Parameters = Mapping[str, inspect.Parameter]
"""The parameters of an attention, by name."""

# For each style with a mask of True = may attend, the names of the mask and of the flag
# for causal attention.
MASKED = {"ours": ("mask", "causal"), "sdpa": ("attn_mask", "is_causal")}
MASKS = {name for name, _ in MASKED.values()}
FLAGS = {flag for _, flag in MASKED.values()}
STYLES = (*MASKED, "mha", "mask", "causal", "both")
MEANINGS = {
    "attend": "True means may attend",
    "ignore": "True means ignore",
    "ones": "1 means may attend",
    "add": "numbers are added to the scores",
}
# The names of a context that need not be given.
_CONTEXTS = ("context", "encoder_hidden_states", "key_value_states", "kv", "xa")
# Parts of the names of a context.
READ = re.compile(r"context|cond|memory|kv|key|enc|source|src|^(y|c)$")


def mask_and_flag(style: str, names: Collection[str]) -> tuple[str, str]:
    """Return the names of a mask and of a flag for causal attention.

    They are those of the style, or of the other one if only those are among the names.
    """
    pairs = [MASKED[style], *MASKED.values()]
    mask, flag = (
        next((name for name in each if name in names), each[0])
        for each in zip(*pairs, strict=True)
    )
    return mask, flag


def is_mask(name: str) -> bool:
    """Return whether this is the name of a mask."""
    return "mask" in name or name in ("attn_bias", "attention_bias")


def without_options(parameters: Parameters) -> Parameters:
    """Return parameters without the masks of options that are off by default.

    For example, ``flash_mask`` does nothing beside ``use_flash=False``.
    """
    off = {
        word
        for name, each in parameters.items()
        if name.startswith("use_") and each.default is False
        for word in name.split("_")[1:]
    } - {"attention", "attn", "causal", "mask"}
    return {
        name: each
        for name, each in parameters.items()
        if not (is_mask(name) and off & {*name.split("_")})
        or each.default is each.empty
    }


def sequences_of(parameters: Parameters) -> list[str]:
    """Return the names of the required parameters that are sequences, not masks."""
    return [name for name in wanted(parameters) if not is_mask(name)]


def wanted(parameters: Parameters) -> list[str]:
    """Return the names of the required positional parameters."""
    places = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind in places
    ]


def parameters_of(attention: Callable[..., Any]) -> Parameters:
    """Return the parameters by name, also of PyTorch's own function."""
    if inspect.unwrap(attention) is F.scaled_dot_product_attention:
        return inspect.signature(_like_sdpa).parameters
    if isinstance(attention, FunctionModule):
        attention = attention.function
    if isinstance(attention, partial) and isinstance(attention.func, nn.Module):
        named = attention.keywords
        attention = partial(attention.func.forward, *attention.args, **named)
    # A compiled module keeps the original, which has the signature.
    attention = getattr(attention, "_orig_mod", attention)
    called = attention.forward if isinstance(attention, nn.Module) else attention
    try:
        return inspect.signature(called).parameters
    except ValueError:  # functions in C may have no signature
        return {}


def _like_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None: ...


def masked_call(
    style: str, parameters: Parameters, *, axes: int = 4, meaning: str = "attend"
) -> Call:
    """Return a call for a layer with a mask, and perhaps a flag for causal attention.

    Args:
        style: ``ours`` or ``sdpa``.
        parameters: Those of the layer.
        axes: The number of axes of its mask: 4 for (B, 1, T, T), 3 for (B, T, T).
        meaning: What its mask means.
    """
    sequences = max(1, len(sequences_of(parameters)))
    name, _ = mask_and_flag(style, parameters)

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        mask = None if real is None else token_mask(real)
        options = _masks(style, {*parameters}, x, x, causal, mask)
        if name in wanted(parameters):
            ones = torch.ones(1, 1, x.shape[1], x.shape[1], device=x.device).bool()
            options.setdefault(name, ones)
        if name in options:
            full = options[name].expand(len(x), 1, -1, -1)
            full = _as_meant(full, meaning, x.dtype)
            options[name] = full if axes == 4 else full.squeeze(1)
        return _call(layer, x, sequences, **options)

    return call


def _masks(
    style: str,
    names: set[str],
    q: Tensor,
    k: Tensor,
    causal: bool,
    mask: Tensor | None,
) -> dict[str, Any]:
    """Return the mask and the causal flag, as far as they are among these names."""
    name, flag = mask_and_flag(style, names)
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    # SDPA's flag is aligned top-left and cannot be combined with a mask, unlike ours.
    plain = mask is None and num_queries == num_keys
    options: dict[str, Any] = {}
    if causal and flag in names and (style == "ours" or plain):
        options[flag] = True
    elif causal:
        triangle = causal_mask(num_queries, num_keys, device=q.device)
        mask = triangle if mask is None else triangle & mask
    if mask is not None:
        options[name] = mask
    return options


def plain_call(sequences: int) -> Call:
    """Return a call for a layer without a mask."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return layer(*[x] * sequences)

    return call


def _call(layer: Any, x: Tensor, sequences: int, **options: Any) -> Any:
    """Call a layer with masks, which it may not change.

    Raises:
        ValueError: If it writes into a mask.
    """
    masks = {
        name: each.clone() for name, each in options.items() if isinstance(each, Tensor)
    }
    output = layer(*[x] * sequences, **{**options, **masks})
    for name, each in masks.items():
        if not torch.equal(each, options[name]):
            raise ValueError(f"the layer writes into the {name} that it is given")
    return output


def _as_meant(mask: Tensor, meaning: str | float, dtype: torch.dtype) -> Tensor:
    """Return a mask of True = may attend in another meaning.

    A number as the meaning is added to the scores of keys that are hidden.
    """
    if meaning == "ignore":
        return ~mask
    if meaning == "ones":
        return mask.to(dtype)
    if meaning == "add" or isinstance(meaning, float):
        lowest = torch.finfo(dtype).min if meaning == "add" else meaning
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, lowest)
    return mask


def key_call(
    sequences: int,
    name: str,
    axes: int,
    meaning: str | float,
    others: Mapping[str, Any],
) -> Call:
    """Return a call for a layer whose mask is one of keys, with this meaning."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        shown = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        mask = _as_meant(shown if real is None else real, meaning, x.dtype)
        shaped = {4: mask[:, None, None], 3: mask[:, None], 2: mask}[axes]
        return _call(layer, x, sequences, **{name: shaped}, **others)

    return call


def causal_flag_in(parameters: Parameters) -> str:
    """Return the name of a switch that seems to make a layer causal, or an empty text.

    Those of the styles ``ours`` and ``sdpa`` are left out.
    """
    return next(
        (
            name
            for name, each in parameters.items()
            if "causal" in name and name not in FLAGS and isinstance(each.default, bool)
        ),
        "",
    )


def flag_call(sequences: int, name: str) -> Call:
    """Return a call for a layer with a flag that makes it causal."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return layer(*[x] * sequences, **{name: causal})

    return call


def meant_call(
    sequences: int,
    name: str,
    axes: int,
    meaning: str | float,
    others: Mapping[str, Any],
) -> Call:
    """Return a call for a layer whose mask has this meaning."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device)
        mask = causal_mask(length, device=x.device) if causal else mask
        mask = mask if real is None else mask & token_mask(real)
        mask = mask.expand(len(x), 1, length, length)
        mask = _as_meant(mask, meaning, x.dtype)
        shaped = {4: mask, 3: mask[:, 0], 2: mask[0, 0]}[axes]
        return _call(layer, x, sequences, **{name: shaped}, **others)

    return call


def options_of(
    call: Call, x: Tensor, causal: bool, real: Tensor | None
) -> dict[str, Any]:
    """Return the keyword arguments with which a layer would be called."""
    found: dict[str, Any] = {}

    def record(*sequences: Tensor, **options: Any) -> Tensor:
        found.update(options)
        return sequences[0]

    call(record, x, causal, real)
    return found


def context_in(parameters: Parameters) -> str:
    """Return the name of a context that need not be given, or an empty text."""
    if len(sequences_of(parameters)) != 1:
        return ""
    optional = {*parameters} - {*wanted(parameters)}
    return next((name for name in _CONTEXTS if name in optional), "")


def cross_call(
    parameters: Parameters,
) -> Callable[[Any, Tensor, Tensor], Any] | None:
    """Return a call for cross-attention, if the names show which one the context is."""
    if name := context_in(parameters):
        return partial(_call_with_context, name)
    names = sequences_of(parameters)
    queries = [name[0].lower() == "q" for name in names]
    if any(map(is_mask, wanted(parameters))):
        return None
    if len(names) == 3 and sum(queries) == 1:
        return partial(_call_cross, tuple(queries))
    if len(names) == 2 and READ.search(names[1]) and not queries[1]:
        return partial(_call_cross, (True, False))
    return None


def _call_with_context(name: str, layer: Any, x: Tensor, context: Tensor) -> Any:
    return layer(x, **{name: context})


def _call_cross(
    queries: tuple[bool, ...], layer: Any, x: Tensor, context: Tensor
) -> Any:
    return layer(*[x if each else context for each in queries])


def mha_call(others: Mapping[str, Any], meaning: str = "ignore") -> Call:
    """Return a call for a layer like ``nn.MultiheadAttention``.

    Args:
        others: Its other arguments.
        meaning: What its ``attn_mask`` means.
    """

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        mask = causal_mask(x.shape[1], device=x.device) if causal else None
        pad = None if real is None else ~real
        return _attend_mha(layer, x, x, mask, meaning, key_padding_mask=pad, **others)

    return call


def _attend_mha(
    layer: Any,
    x: Tensor,
    context: Tensor,
    mask: Tensor | None,
    meaning: str,
    **others: Any,
) -> Any:
    first = getattr(layer, "batch_first", True)
    q, kv = (x, context) if first else (x.transpose(0, 1), context.transpose(0, 1))
    if mask is not None:
        mask = _as_meant(mask, meaning, x.dtype)
    output = layer(q, kv, kv, attn_mask=mask, **others)
    output = output[0] if isinstance(output, tuple) else output
    return output if first else output.transpose(0, 1)


def mha_reader(others: Mapping[str, Any], meaning: str = "ignore") -> Reader:
    """Return what reads in pieces, each with all tokens up to its end as keys."""

    def read(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
        outputs: list[Tensor] = []
        end = 0
        for size in sizes:
            end += size
            mask = causal_mask(size, end, device=x.device)
            new, seen = x[:, end - size : end], x[:, :end]
            outputs.append(
                _attend_mha(
                    layer, new, seen, mask, meaning, key_padding_mask=None, **others
                )
            )
        return torch.cat(outputs, dim=1)

    return read


def read_ours(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Read in pieces, with one of this library's caches."""
    if hasattr(layer, "new_cache"):  # it may cache something other than keys and values
        cache = layer.new_cache(x.shape[0], x.shape[1])
    else:
        shape = x.shape[0], layer.num_kv_heads, x.shape[1], layer.head_dim
        cache = DenseCache(x.new_zeros(shape), x.new_zeros(shape))
    pieces = x.split([*sizes], dim=1)
    return torch.cat([layer(each, causal=True, cache=cache) for each in pieces], dim=1)


class Lifted(nn.Module):
    """A layer around a function of queries, keys and values.

    Args:
        function: Takes heads of queries, keys and values; returns the heads' outputs.
        style: How it is called.
        parameters: Its parameters.
        d_model: D, the width of the layer.
        num_heads: H.
    """

    meaning = "attend"
    """What the function's mask means."""
    heads_last = False
    """Whether the function takes (B, T, H, d_k) rather than (B, H, T, d_k)."""

    def __init__(
        self,
        function: Callable[..., Any],
        style: str,
        parameters: Parameters,
        d_model: int,
        num_heads: int,
    ) -> None:
        super().__init__()
        self.num_heads = self.num_kv_heads = num_heads
        self.head_dim = d_model // num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        generator = torch.Generator().manual_seed(0)
        for each in self.parameters():
            drawn = torch.randn(each.shape, generator=generator)
            each.data = drawn * each.shape[-1] ** -0.5
        # A module becomes a child, so that it is copied and switches mode with this.
        self.function, self.style, self.names = function, style, {*parameters}
        self.eval()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Project, call the function, and project the result."""
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is not None:
            k, v = cache.append(k, v)
        options: dict[str, Any] = {}
        if self.style in MASKED:
            options = _masks(self.style, self.names, q, k, causal, mask)
            name, flag = mask_and_flag(self.style, self.names)
            if flag in self.names and not causal:
                options[flag] = False  # it may be causal by default
            if name in options:
                options[name] = _as_meant(options[name], self.meaning, q.dtype)
        heads = [
            each.transpose(1, 2) if self.heads_last else each for each in (q, k, v)
        ]
        before = [each.detach().clone() for each in heads]
        output = self.function(*heads, **options)
        for which, was, now in zip("qkv", before, heads, strict=True):
            if not torch.equal(was, now.detach()):
                raise ValueError(f"the function writes into the {which} it is given")
        if isinstance(output, tuple):
            output = output[0]
        wanted = heads[0].shape
        if not isinstance(output, Tensor) or output.shape != wanted:
            shown = getattr(output, "shape", type(output).__name__)
            shown = tuple(shown) if isinstance(shown, torch.Size) else f"a {shown}"
            raise ValueError(f"the function gives {shown} for q of {tuple(wanted)}")
        output = output if self.heads_last else output.transpose(1, 2)
        return self.o_proj(output.flatten(2))
