"""What comes in: any attention, called as one layer from features to features.

A function of queries, keys and values is given projections; a layer is called by the
names of its arguments, in one of four styles. ``check_attention`` says which.
"""

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.cache import LayerCache
from tested_transformer.checking.forms import FormedAttention
from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.projections import find_width, oracles, oracles_of
from tested_transformer.checking.weights import draw_anew
from tested_transformer.masks import causal_mask, token_mask

__all__ = ["MEANINGS", "Reader", "Subject", "make_subject", "moving"]

_Features = Float[Tensor, "B T D"]
_Parameters = Mapping[str, inspect.Parameter]
_Call = Callable[[Any, Tensor, bool, Tensor | None], Any]
Reader = Callable[[Any, Tensor, Sequence[int]], Tensor]
"""Reads features in pieces of given sizes with a layer's cache."""

# For each style that takes a mask of True = may attend, its name and that of the flag
# for causal attention.
_MASKED = {"ours": ("mask", "causal"), "sdpa": ("attn_mask", "is_causal")}
_MASKS = {name for name, _ in _MASKED.values()}
_STYLES = (*_MASKED, "mha", "mask", "causal", "both")
MEANINGS = {
    "attend": "True means may attend",
    "ignore": "True means ignore",
    "add": "numbers are added to the scores",
}
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
        opens: Whether it can be asked to attend to both sides.
        causal: Whether it can be asked to attend to the past alone.
        pads: Whether it takes a padding mask.
        pieces: Reads features in pieces with a cache; ``None`` if it cannot.
        known: A function that computes what the layer should, if one was given.
        has_modes: Whether it knows training from evaluating.
        batch_first: Whether it takes (B, T, D), and not (T, B, D).
        drawn: The weights that were drawn anew; see ``draw_anew``.
        doubts: Why it may not be what it was taken for.
        notes: What was found out about how it is called.
        guessed: Oracles that were found by trying: of projections without a name that
            is known, or with positions and norms.
    """

    name: str
    style: str
    layer: Callable[..., Any]
    call: _Call
    width: int
    dtype: torch.dtype
    num_heads: int | None = None
    opens: bool = False
    causal: bool = True
    pads: bool = False
    pieces: Reader | None = None
    known: Callable[[Tensor], Tensor] | None = None
    has_modes: bool = False
    batch_first: bool = True
    drawn: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    guessed: tuple[FormedAttention, ...] = ()

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
            layer = self.layer if self.batch_first else _sequence_first(self.layer)
            output = self.call(layer, x, causal, real)
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
        if isinstance(output, tuple):  # with its weights, a cache, or both
            tensors = [each for each in output if isinstance(each, Tensor)]
            alike = [each for each in tensors if each.shape == x.shape]
            output = (alike or tensors or [output])[0]
        if not isinstance(output, Tensor):
            raise TypeError(f"{self.name} returns a {type(output).__name__}")
        if output.shape != x.shape:
            raise ValueError(
                f"{self.name} gives {tuple(output.shape)} for {tuple(x.shape)}: "
                "attention keeps the shape of what it is given"
            )
        return output

    @property
    def unmasked(self) -> bool:
        """Whether it attends to both sides, at least if it is asked to."""
        return self.opens or not self.causal

    @property
    def module(self) -> nn.Module | None:
        """The layer, if it is a module."""
        return self.layer if isinstance(self.layer, nn.Module) else None

    @property
    def slack(self) -> float:
        """How far apart answers may be that tables of angles were made for."""
        return max((each.form.slack for each in self.guessed), default=0.0)

    def oracles(self, *, beside: bool = False) -> list[FormedAttention]:
        """Return layers with the weights of this one that take the right steps.

        They may leave norms out that it has ``beside`` its projections.
        """
        if self.module is None:
            return []
        if self.guessed:
            return [*self.guessed]
        named = oracles(self.module, self.num_heads, beside=beside)
        return [each.to(torch.float64) for each in named]

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
    mask_means: str | None = None,
    batch_first: bool | None = None,
    projections: Sequence[str] = (),
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
    said = style is not None
    style = _style_of(name, parameters) if style is None else style
    if style not in _STYLES:
        raise ValueError(f"style={style!r} must be one of {', '.join(_STYLES)}")
    if mask_means is not None and mask_means not in MEANINGS:
        known_means = ", ".join(MEANINGS)
        raise ValueError(f"mask_means={mask_means!r} must be one of {known_means}")
    names = {*parameters}
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    # Three sequences of features for a module with projections, three of heads else.
    one = style == "mha" or len(_sequences(parameters)) < 3
    is_layer = one or width is not None
    layer: Callable[..., Any] = attention
    reader: Reader | None = None
    if not is_layer:
        num_heads, width = num_heads or 4, d_model or 24
        layer = _Lifted(attention, style, parameters, width, num_heads)
        call = _masked_call("ours", _parameters_of(layer))
        reader = _read_ours if style in _MASKED else None
    else:
        width = width if d_model is None else d_model
        if width is None:
            raise ValueError(f"the width of {name} cannot be told: give d_model")
        if style == "mha":
            call, reader = _call_mha, _read_mha
        elif style in _MASKED:
            call = _masked_call(style, parameters)
            reader = _read_ours if {"cache", "causal"} <= names else None
        else:
            call = _plain_call(max(1, len(_sequences(parameters))))
    masked = style == "mha" or (style in _MASKED and bool(names & _MASKS))
    if batch_first is None:
        batch_first = style == "mha" or getattr(attention, "batch_first", True)
    movable = isinstance(layer, nn.Module)
    subject = Subject(
        name=name,
        style=style,
        layer=layer,
        call=call,
        width=width,
        dtype=dtype or (torch.float64 if movable else torch.float32),
        num_heads=num_heads,
        opens=style not in ("causal", "both"),
        causal=style != "both",
        pads=masked,
        pieces=reader if pieces is None else pieces,
        known=known,
        has_modes=isinstance(attention, nn.Module),
        batch_first=batch_first,
    )
    subject = subject.to(subject.dtype)
    if anew and subject.module is not None and known is None:
        subject = replace(subject, drawn=draw_anew(subject.module))
    if projections and subject.module is not None:
        found = oracles_of(subject.module, projections, num_heads)
        layers = [each.double().train(subject.module.training) for each in found]
        subject = replace(subject, guessed=tuple(layers))
    if is_layer and (style == "mask" or (mask_means and style in _MASKED)):
        subject = _as_masks_mean(subject, parameters, mask_means)
    elif is_layer and style in _MASKED:
        subject = _as_it_takes_masks(subject, parameters)
    elif style == "causal" and not said:
        subject = _as_it_sees(subject)
    return _as_it_rounds(subject) if dtype is None and movable else subject


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


def _as_masks_mean(
    subject: Subject, parameters: _Parameters, meaning: str | None
) -> Subject:
    """Find out what a mask means, and how many axes it has: what makes it causal.

    Raises:
        TypeError: If nothing does.
    """
    name = next(each for each in parameters if "mask" in each and "pad" not in each)
    count = max(1, len(_sequences(parameters)))
    tried = MEANINGS if meaning is None else [meaning]
    for axes, each in itertools.product((4, 3, 2), tried):
        call = _meant_call(count, name, axes, each)
        asked = replace(subject, call=call, opens=True, pads=axes > 2)
        try:
            if list(moving(asked.without_dropout())) == [False, False, True, True]:
                note = f"In {name}, {MEANINGS[each]}: that makes it causal."
                return replace(asked, notes=(note,))
        except (TypeError, ValueError):
            continue
    if meaning is not None:  # As it was said to be called; the checks will see.
        call = _meant_call(count, name, 4, meaning)
        return replace(subject, call=call, opens=True, pads=True)
    raise TypeError(
        f"{subject.name} takes {name}, and no mask that was tried makes it causal: say "
        f"what it means, with mask_means={'|'.join(MEANINGS)}, or style='causal' or "
        "'both' if it needs none"
    )


def moving(subject: Subject) -> Iterator[bool]:
    """Yield which of four rows around a token move when this token is changed."""
    generator = torch.Generator().manual_seed(13)
    shape = 2, 2, 5, subject.width
    x, other = torch.randn(shape, generator=generator).to(subject.dtype)
    changed = torch.cat([x[:, :2], other[:, 2:3], x[:, 3:]], dim=1)
    before, after = (subject.run(each).detach().double() for each in (x, changed))
    for row in (0, 1, 3, 4):
        apart = (after[:, row] - before[:, row]).abs().max()
        yield bool(apart > 1e-6 * (1 + before.abs().max()))


def _as_it_sees(subject: Subject) -> Subject:
    """Find out if what takes no mask attends to both sides.

    It does if tokens can be moved, and their rows move with them; and nothing about it
    says that it should be causal.
    """
    modules = [] if subject.module is None else [*subject.module.modules()]
    said = [getattr(each, "is_causal", None) for each in modules]
    buffers = [] if subject.module is None else [*subject.module.buffers()]
    if True in said or any(map(_is_triangle, buffers)):
        return subject
    order = [3, 0, 4, 2, 1]
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(2, 5, subject.width, generator=generator).to(subject.dtype)
    for training in (False, True):
        quiet = subject.without_dropout(training=training)
        before, after = quiet.run(x), quiet.run(x[:, order])
        if not torch.allclose(after, before[:, order], atol=1e-5) or not all(
            moving(quiet)
        ):
            return subject
    doubt = (
        "it attends to both sides: say style='causal' if it should not, and as in "
        "chapters/the-bug-museum/#no-causal-mask lacks a mask, or style='both'"
    )
    doubts = () if False in said else (doubt,)
    return replace(subject, style="both", causal=False, doubts=doubts)


def _is_triangle(buffer: Tensor) -> bool:
    """Return whether one half of a square buffer differs from the other."""
    square = buffer.reshape(-1, *buffer.shape[-2:])[0] if buffer.ndim > 1 else buffer
    if square.ndim < 2 or len(square) != len(square.mT) or len(square) < 3:
        return False
    corners = square[0, -1], square[-1, 0]
    return bool(corners[0] != corners[1])


def _as_it_rounds(subject: Subject) -> Subject:
    """Ask in single precision what computes in it, whatever it is given."""
    generator = torch.Generator().manual_seed(13)
    x, step = torch.randn(2, 3, 5, subject.width, generator=generator).double()
    quiet = subject.without_dropout()
    try:
        with torch.no_grad():
            steps = (x - 1e-7 * step, x, x + 1e-7 * step)
            before, here, after = (quiet.run(each).double() for each in steps)
    except (TypeError, ValueError):
        bent = torch.tensor(1e-7)
    else:
        # What is smooth bends by the square of a step.
        bent = (before - 2 * here + after).abs().max() / (1 + here.abs().max())
    if not 1e-11 < bent < 1e-5:
        return subject
    note = "It computes in float32 inside, and was asked in float32."
    single = subject.to(torch.float32)
    return replace(single, notes=(*subject.notes, note))


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


def _sequences(parameters: _Parameters) -> list[str]:
    """Return the names of those that are sequences, and no masks."""
    return [name for name in _wanted(parameters) if "mask" not in name]


def _style_of(name: str, parameters: _Parameters) -> str:
    """Tell the style from the names of the arguments.

    Raises:
        TypeError: If they are those of no style.
    """
    names, count = {*parameters}, len(_sequences(parameters))
    if names & {"key_padding_mask", "need_weights"}:
        return "mha"
    if count in (1, 3):
        for style in ("sdpa", "ours"):
            if names.intersection(_MASKED[style]):
                return style
        masks = [each for each in parameters if "mask" in each and "pad" not in each]
        return "mask" if masks else "causal"
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
    sequences = max(1, len(_sequences(parameters)))
    name = _MASKED[style][0]

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        mask = None if real is None else token_mask(real)
        options = _masks(style, {*parameters}, x, x, causal, mask)
        if name in _wanted(parameters):  # It has to be given.
            ones = torch.ones(1, 1, x.shape[1], x.shape[1], device=x.device).bool()
            options.setdefault(name, ones)
        if name in options:
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


def _plain_call(sequences: int) -> _Call:
    """Return what calls a layer that takes no mask."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return layer(*[x] * sequences)

    return call


def _meant_call(sequences: int, name: str, axes: int, meaning: str) -> _Call:
    """Return what calls a layer with a mask that has a meaning."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device)
        mask = causal_mask(length, device=x.device) if causal else mask
        mask = mask if real is None else mask & token_mask(real)
        mask = mask.expand(len(x), 1, length, length)
        if meaning == "ignore":
            mask = ~mask
        elif meaning == "add":
            lowest = torch.finfo(x.dtype).min
            mask = torch.zeros(mask.shape, dtype=x.dtype).masked_fill(~mask, lowest)
        shaped = {4: mask, 3: mask[:, 0], 2: mask[0, 0]}[axes]
        return layer(*[x] * sequences, **{name: shaped})

    return call


def _sequence_first(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer of (B, T, D) around one of (T, B, D)."""

    def called(*sequences: Tensor, **options: Any) -> Any:
        output = layer(*[each.transpose(0, 1) for each in sequences], **options)
        output = output[0] if isinstance(output, tuple) else output
        return output.transpose(0, 1) if isinstance(output, Tensor) else output

    return called


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
        options: dict[str, Any] = {}
        if self.style in _MASKED:
            options = _masks(self.style, self.names, q, k, causal, mask)
        before = [each.detach().clone() for each in (q, k, v)]
        output = self.function(q, k, v, **options)
        for which, was, now in zip("qkv", before, (q, k, v), strict=True):
            if not torch.equal(was, now.detach()):
                raise ValueError(f"the function writes into the {which} it is given")
        if isinstance(output, tuple):
            output = output[0]
        if not isinstance(output, Tensor) or output.shape != q.shape:
            shown = getattr(output, "shape", type(output).__name__)
            shown = tuple(shown) if isinstance(shown, torch.Size) else f"a {shown}"
            raise ValueError(f"the function gives {shown} for q of {tuple(q.shape)}")
        return self.o_proj(output.transpose(1, 2).flatten(2))
