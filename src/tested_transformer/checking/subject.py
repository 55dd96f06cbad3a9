"""What comes in: any attention, called as one layer from features to features.

A function of queries, keys and values is given projections; a layer is called by the
names of its arguments, in one of four styles. ``check_attention`` says which.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.cache import LayerCache
from tested_transformer.checking.exhibits.layer import ExchangeableAttention
from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.projections import find_width, oracles
from tested_transformer.checking.weights import draw_anew
from tested_transformer.masks import causal_mask, token_mask

__all__ = ["Reader", "Subject", "make_subject"]

_Features = Float[Tensor, "B T D"]
_Parameters = Mapping[str, inspect.Parameter]
_Call = Callable[[Any, Tensor, bool, Tensor | None], Any]
Reader = Callable[[Any, Tensor, Sequence[int]], Tensor]
"""Reads features in pieces of given sizes with a layer's cache."""

# For each style that takes a mask of True = may attend, its name and that of the flag
# for causal attention.
_MASKED = {"ours": ("mask", "causal"), "sdpa": ("attn_mask", "is_causal")}
_MASKS = {name for name, _ in _MASKED.values()}
_STYLES = (*_MASKED, "mha", "causal")
_DROPOUTS = ("dropout", "dropout_p", "attn_dropout", "attention_dropout", "drop", "p")
_REFUSALS = (RuntimeError, TypeError, IndexError, AssertionError)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An attention that can be asked, as a layer from features to features.

    Args:
        name: What to call it in a report.
        style: How it is called; see ``check_attention``.
        layer: The layer; what was a function has been given projections.
        call: Calls the layer: features, whether causal, which tokens are real.
        width: D.
        dtype: The type of the features.
        num_heads: The number of heads, if it was given.
        opens: Whether it can attend to both sides.
        pads: Whether it takes a padding mask.
        pieces: Reads features in pieces with a cache; ``None`` if it cannot.
        known: A function that computes what the layer should, if one was given.
        has_modes: Whether it knows training from evaluating.
        drawn: The weights that were drawn anew; see ``draw_anew``.
    """

    name: str
    style: str
    layer: Callable[..., Any]
    call: _Call
    width: int
    dtype: torch.dtype
    num_heads: int | None = None
    opens: bool = False
    pads: bool = False
    pieces: Reader | None = None
    known: Callable[[Tensor], Tensor] | None = None
    has_modes: bool = False
    drawn: tuple[str, ...] = ()

    def run(
        self,
        x: _Features,
        *,
        causal: bool = True,
        real: Bool[Tensor, "B T"] | None = None,
    ) -> _Features:
        """Attend.

        Args:
            x: The sequences.
            causal: Whether later positions are forbidden.
            real: ``True`` where there is a token, ``False`` where there is padding.

        Raises:
            TypeError: If it returns something that is no tensor.
            ValueError: If it cannot be called so, writes into what it is given, or
                returns another shape.
        """
        x = x.contiguous()  # as layers are used, and some insist
        given = x.detach().clone()
        try:
            output = self.call(self.layer, x, causal, real)
        except _REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot be called with x of {tuple(x.shape)} in the style "
                f"{self.style!r}, and style= may name another: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not torch.equal(given, x.detach()):
            raise ValueError(f"{self.name} writes into the x that it is given")
        return self._checked(output, x)

    def read(self, x: _Features, sizes: Sequence[int]) -> _Features:
        """Read ``x`` in pieces of these sizes, with a cache.

        Raises:
            ValueError: If it cannot.
        """
        assert self.pieces is not None
        try:
            with torch.no_grad():
                output = self.pieces(self.layer, x, sizes)
        except _REFUSALS as error:
            raise ValueError(
                f"{self.name} cannot read pieces of {tuple(sizes)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return self._checked(output, x)

    def _checked(self, output: object, x: Tensor) -> Tensor:
        if isinstance(output, tuple):
            raise TypeError(
                f"{self.name} returns a tuple of {len(output)}: hand over a module "
                "around it, or a function, that returns the output alone"
            )
        if not isinstance(output, Tensor):
            raise TypeError(f"{self.name} returns a {type(output).__name__}")
        if output.shape != x.shape:
            raise ValueError(
                f"{self.name} gives {tuple(output.shape)} for {tuple(x.shape)}: "
                "attention keeps the shape of what it is given"
            )
        return output

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    def oracles(self) -> list[ExchangeableAttention]:
        """Return layers with the weights of this one that take the right steps."""
        if self.module is None:
            return []
        return [
            layer.to(torch.float64) for layer in oracles(self.module, self.num_heads)
        ]

    def without_dropout(self, *, training: bool = False) -> "Subject":
        """Copy it with all dropout switched off, to train or to evaluate."""
        if self.module is None:
            return self
        module = _copied(self.module).train(training)
        for each in module.modules():
            for name in ("p",) if isinstance(each, nn.Dropout) else _DROPOUTS:
                if isinstance(getattr(each, name, None), float):
                    setattr(each, name, 0.0)
        return replace(self, layer=module)

    @property
    def dropout(self) -> float:
        """The highest probability of dropping anything that its modules name."""
        values = [
            getattr(each, name, None)
            for each in (self.module.modules() if self.module else ())
            for name in _DROPOUTS
        ]
        return max((p for p in values if isinstance(p, float) and p < 1), default=0.0)

    def to(self, dtype: torch.dtype) -> "Subject":
        """Copy it with parameters and features of another type."""
        if self.module is None:
            return replace(self, dtype=dtype)
        # What is asked with is on the CPU; not every device has float64.
        module = _copied(self.module).to("cpu").to(dtype)
        return replace(self, layer=module, dtype=dtype)


def _copied(module: nn.Module) -> nn.Module:
    """Copy a module, even one that keeps its latest weights to be looked at."""
    kept = [value for each in module.modules() for value in vars(each).values()]
    tensors = [each for each in kept if isinstance(each, Tensor) and not each.is_leaf]
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in tensors})


def make_subject(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    known: Callable[[Tensor], Tensor] | None = None,
    pieces: Reader | None = None,
    anew: bool = True,
) -> Subject:
    """Find out how to call an attention; see ``check_attention``.

    Unless told otherwise, weights that would hide a mistake are drawn ``anew``.

    Raises:
        TypeError: If it cannot be called, or its style cannot be told.
        ValueError: If there is no such ``style``, or its width cannot be told.
    """
    if not callable(attention):
        raise TypeError(
            f"attention must be a function or a module, not {type(attention).__name__}"
        )
    name = getattr(attention, "__name__", type(attention).__name__)
    parameters = _parameters_of(attention)
    attention = with_its_modules(attention)
    style = _style_of(name, parameters) if style is None else style
    if style not in _STYLES:
        raise ValueError(f"style={style!r} must be one of {', '.join(_STYLES)}")
    names = {*parameters}
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    # Three sequences of features for a module with projections, three of heads else.
    one = style not in _MASKED or len(_wanted(parameters)) == 1
    is_layer = one or width is not None
    layer: Callable[..., Any] = attention
    reader: Reader | None = None
    if not is_layer:
        num_heads, width = num_heads or 4, d_model or 24
        layer = _Lifted(attention, style, parameters, width, num_heads)
        call, reader = _masked_call("ours", _parameters_of(layer)), _read_ours
    else:
        width = width if d_model is None else d_model
        if width is None:
            raise ValueError(f"the width of {name} cannot be told: give d_model")
        if style == "mha":
            call, reader = _call_mha, _read_mha
        elif style == "causal":
            call = _call_causal
        else:
            call = _masked_call(style, parameters)
            reader = _read_ours if {"cache", "causal"} <= names else None
    if dtype is None:
        movable = isinstance(layer, nn.Module)
        dtype = torch.float64 if movable else torch.float32
    subject = Subject(
        name=name,
        style=style,
        layer=layer,
        call=call,
        width=width,
        dtype=dtype,
        num_heads=num_heads,
        opens=style != "causal",
        pads=style == "mha" or (style in _MASKED and bool(names & _MASKS)),
        pieces=reader if pieces is None else pieces,
        known=known,
        has_modes=isinstance(attention, nn.Module),
    ).to(dtype)
    if anew and subject.module is not None and known is None:
        subject = replace(subject, drawn=draw_anew(subject.module))
    if is_layer and style in _MASKED:
        return _as_it_takes_masks(subject, parameters)
    return subject


def _as_it_takes_masks(subject: Subject, parameters: _Parameters) -> Subject:
    """Find out how many axes its masks have, and if it is causal without any."""
    ones = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    real = torch.ones(2, 5, dtype=torch.bool)
    for axes in (4, 3):
        call = _masked_call(subject.style, parameters, axes=axes)
        asked = replace(subject, call=call)
        try:
            asked.run(ones, real=real if asked.pads else None)
        except (TypeError, ValueError):
            continue
        flag = parameters.get(_MASKED[subject.style][1])
        if flag is not None and flag.default is not True:
            return asked
        quiet = asked.without_dropout()
        changed = torch.cat([ones[:, :3], 2 * ones[:, 3:].cumsum(dim=-1)], dim=1)
        before, after = (quiet.run(x, causal=False)[:, :3] for x in (ones, changed))
        return replace(asked, opens=not torch.equal(before, after))
    return subject  # which will say what is wrong, when it is asked


def _parameters_of(attention: Callable[..., Any]) -> _Parameters:
    """Return the parameters by name. PyTorch's own function does not tell them."""
    if attention is F.scaled_dot_product_attention:
        return inspect.signature(_like_sdpa).parameters
    # What torch.compile makes keeps what it was made of, and takes what that takes.
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


def _wanted(parameters: _Parameters) -> list[str]:
    """Return the names of those that have to be given in their places."""
    places = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        name
        for name, each in parameters.items()
        if each.default is each.empty and each.kind in places
    ]


def _style_of(name: str, parameters: _Parameters) -> str:
    """Tell the style from the names of the arguments.

    Raises:
        TypeError: If they are those of no style, or of a mask of unknown meaning.
    """
    names, count = {*parameters}, len(_wanted(parameters))
    if names & {"key_padding_mask", "need_weights"}:
        return "mha"
    if count in (1, 3):
        strange = [each for each in parameters if "mask" in each and each not in _MASKS]
        if strange:
            raise TypeError(
                f"{name} takes {', '.join(strange)}, and what True means there is not "
                "known: say style='causal' if it is causal without a mask, or hand "
                "over a module around it whose forward takes attn_mask, True = may "
                "attend"
            )
        for style in ("sdpa", "ours"):
            if names.intersection(_MASKED[style]):
                return style
    if count == 1:
        return "causal"
    raise TypeError(
        f"cannot tell how to call {name}({', '.join(parameters)}): "
        f"name its style, one of {', '.join(_STYLES)}"
    )


def _masked_call(style: str, parameters: _Parameters, *, axes: int = 4) -> _Call:
    """Return what calls a layer that takes a mask, where True is *may attend*.

    Args:
        style: ``ours`` or ``sdpa``.
        parameters: The layer's: one sequence and a mask, or three.
        axes: Of its mask: 4 for (B, 1, T, T), 3 for (B, T, T).
    """
    sequences = max(1, len(_wanted(parameters)))

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        mask = None if real is None else token_mask(real)
        options = _masks(style, {*parameters}, x, x, causal, mask)
        if (name := _MASKED[style][0]) in options:
            full = options[name].expand(len(x), 1, -1, -1)
            options[name] = full if axes == 4 else full.squeeze(1)
        return layer(*[x] * sequences, **options)

    return call


def _masks(
    style: str,
    names: set[str],
    q: Tensor,
    k: Tensor,
    causal: bool,
    mask: Tensor | None,
) -> dict[str, Any]:
    """Return the arguments, of those with these names, that say who may read whom."""
    name, flag = _MASKED[style]
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    # SDPA's flag is aligned top-left, and excludes a mask; ours does neither.
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


def _call_causal(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
    return layer(x)


def _call_mha(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
    """Call a layer as PyTorch's is called, with masks that say what to ignore."""
    ignored = ~causal_mask(x.shape[1], device=x.device) if causal else None
    return _attend_mha(layer, x, x, ignored, None if real is None else ~real)


def _attend_mha(
    layer: Any, x: Tensor, context: Tensor, ignored: Tensor | None, pad: Tensor | None
) -> Any:
    first = getattr(layer, "batch_first", True)
    q, kv = (x, context) if first else (x.transpose(0, 1), context.transpose(0, 1))
    output = layer(q, kv, kv, attn_mask=ignored, key_padding_mask=pad)
    output = output[0] if isinstance(output, tuple) else output
    return output if first else output.transpose(0, 1)


def _read_mha(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Read pieces, each with all that came before it as keys and values."""
    outputs: list[Tensor] = []
    end = 0
    for size in sizes:
        end += size
        ignored = ~causal_mask(size, end, device=x.device)
        new, seen = x[:, end - size : end], x[:, :end]
        outputs.append(_attend_mha(layer, new, seen, ignored, None))
    return torch.cat(outputs, dim=1)


def _read_ours(layer: Any, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Read pieces with a cache of this library's."""
    if hasattr(layer, "new_cache"):  # it keeps something else than keys and values
        cache = layer.new_cache(x.shape[0], x.shape[1])
    else:
        shape = x.shape[0], layer.num_kv_heads, x.shape[1], layer.head_dim
        cache = LayerCache(x.new_zeros(shape), x.new_zeros(shape))
    pieces = x.split([*sizes], dim=1)
    return torch.cat([layer(each, causal=True, cache=cache) for each in pieces], dim=1)


class _Lifted(nn.Module):
    """A layer around a function of queries, keys and values."""

    def __init__(
        self,
        function: Callable[..., Any],
        style: str,
        parameters: _Parameters,
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
        # If it is a module it is part of the layer, and copied and switched with it.
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
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if cache is not None:
            k, v = cache.append(k, v)
        options = _masks(self.style, self.names, q, k, causal, mask)
        before = [each.detach().clone() for each in (q, k, v)]
        output = self.function(q, k, v, **options)
        for which, was, now in zip("qkv", before, (q, k, v), strict=True):
            if not torch.equal(was, now.detach()):
                raise ValueError(f"the function writes into the {which} it is given")
        if isinstance(output, tuple) and self.style == "ours":
            output = output[0]
        if not isinstance(output, Tensor) or output.shape != q.shape:
            shown = getattr(output, "shape", type(output).__name__)
            shown = tuple(shown) if isinstance(shown, torch.Size) else f"a {shown}"
            raise ValueError(f"the function gives {shown} for q of {tuple(q.shape)}")
        return self.o_proj(output.transpose(1, 2).flatten(2))
