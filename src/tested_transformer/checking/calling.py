"""How to call an attention: found out from its arguments, and by trying.

A function of queries, keys and values is given projections; a layer is called by the
names of its arguments, in one of six styles. ``check_attention`` says which.
"""

import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.projections import (
    find_width,
    number_of_heads,
    oracles_of,
)
from tested_transformer.checking.settings import Settings
from tested_transformer.checking.styles import (
    MASKED,
    MASKS,
    MEANINGS,
    STYLES,
    Lifted,
    Parameters,
    call_mha,
    cross_call,
    flag_call,
    is_mask,
    key_call,
    masked_call,
    meant_call,
    parameters_of,
    plain_call,
    read_mha,
    read_ours,
    sequences_of,
    wanted,
)
from tested_transformer.checking.subject import (
    REFUSALS,
    Call,
    Reader,
    Subject,
    copied,
    moving,
    tensors_in,
)
from tested_transformer.checking.supplying import LAYOUTS, LEVELS, Supplied, supplied
from tested_transformer.checking.weights import draw_anew

__all__ = ["make_subject", "make_subjects"]

# What masks are called in which True means ignore.
_IGNORED = re.compile("pad|ignore|hid|block|exclu|forbid")
# Which of four rows around a token move with it.
_CAUSAL, _BOTH = [False, False, True, True], [True, True, True, True]
# As they do if a mask that a layer makes for itself ends too late, or is inverted.
_SLIPPED = [False, True, True, True], [True, True, False, False]


def make_subject(attention: Callable[..., Any], **options: Any) -> Subject:
    """Find out how to call an attention, the first way; see ``make_subjects``."""
    return make_subjects(attention, **options)[0]


def make_subjects(
    attention: Callable[..., Any], *, d_model: int | None = None, **options: Any
) -> list[Subject]:
    """Find out how an attention can be called; see ``check_attention``.

    There may be several ways, if what it wants could have several shapes or meanings.
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
    parameters = parameters_of(attention)
    attention = with_its_modules(attention)
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    width = width if d_model is None else d_model
    if not isinstance(attention, nn.Module) or width is None:
        return _subjects_of(name, attention, parameters, d_model=d_model, **options)
    ways = _ways(attention, parameters, width, options.get("num_heads"))
    found = _asked_in(ways, name, parameters, d_model=d_model, **options)
    if options.get("dtype") is None and not any(map(_runs, found)):
        # Some compute in float32 inside, and refuse anything else.
        options["dtype"] = torch.float32
        single = _asked_in(ways, name, parameters, d_model=d_model, **options)
        if any(map(_runs, single)):
            note = "It cannot compute in float64, and was asked in float32."
            return [replace(each, notes=(*each.notes, note)) for each in single]
    if not found:  # the error says why
        way = ways[0]
        return _subjects_of(name, way.layer, way.left, d_model=d_model, **options)
    return found


def _runs(subject: Subject) -> bool:
    """Return whether a subject can be asked at all."""
    with suppress(TypeError, ValueError):
        subject.run(torch.ones(2, 5, subject.width, dtype=subject.dtype))
        return not subject.refusal
    return False


def _asked_in(
    ways: Sequence["_Way"], name: str, parameters: Parameters, **options: Any
) -> list[Subject]:
    """Return the subjects of several ways to call a layer."""
    found: list[Subject] = []
    for way in ways:
        with suppress(TypeError, ValueError):
            found += [
                replace(
                    each,
                    notes=(*each.notes, *way.notes),
                    doubts=(*each.doubts, *way.doubts),
                )
                for each in _subjects_of(name, way.layer, way.left, **options)
            ]
    return found


@dataclass(frozen=True)
class _Way:
    """A way to call a layer, with what is to be said of it, and what is odd."""

    layer: nn.Module
    left: Parameters
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def _ways(
    attention: nn.Module, parameters: Parameters, width: int, num_heads: int | None
) -> list[_Way]:
    """Return ways to call a layer.

    What may be left out is, if it can be, and features are (B, T, D), if they can be.
    """
    attention = copied(attention)
    num_heads = num_heads or number_of_heads(attention) or 1
    head_dim = getattr(attention, "head_dim", None) or width // num_heads
    widths = Settings(attention).said_widths(head_dim) or [head_dim]
    first: list[_Way] = []
    for layout, level in product(LAYOUTS, LEVELS):
        tried = supplied(
            attention,
            parameters,
            widths,
            level=level,
            layout=layout,
            num_heads=num_heads,
        )
        notes = (
            (f"It takes {layout}: the features were turned for it.",) if layout else ()
        )
        ways = [
            _Way(each, each.left if isinstance(each, Supplied) else parameters, notes)
            for each in tried
        ]
        if found := _that_run(ways, width):
            return found
        first = first or ways[:1]
    return first or [_Way(attention, parameters)]


def _that_run(ways: Sequence[_Way], width: int) -> list[_Way]:
    """Return those of several ways to call a layer that run.

    Of those that do the same there is one.
    """
    x = torch.randn(3, 7, width, generator=torch.Generator().manual_seed(13))
    found: list[tuple[_Way, Tensor]] = []
    odd = False
    for way in ways:
        output = _plain_output(way, x)
        if output is None:
            continue
        alike = [torch.allclose(output, each, atol=1e-5) for _, each in found]
        layer = way.layer
        forms = [getattr(each.layer, "form", -1) for each, _ in found]
        if isinstance(layer, Supplied) and layer.form in forms:
            odd |= not alike[forms.index(layer.form)]
        if not any(alike):
            found.append((way, output))
    doubt = "what it computes depends on the shape of the tables it is given"
    return [replace(way, doubts=(doubt,) if odd else ()) for way, _ in found]


@torch.no_grad()
def _plain_output(way: _Way, x: Tensor) -> Tensor | None:
    """Return what a layer gives if no mask hides anything, if it can be called."""
    layer, left = way.layer.eval(), way.left
    weight = next(layer.parameters(), x)
    x = x.to(weight)
    masks = [name for name in wanted(left) if is_mask(name)]
    flags = [name for name in ("causal", "is_causal") if name in left]
    four = torch.ones(len(x), 1, x.shape[1], x.shape[1], dtype=torch.bool)
    shapes = four, four[:, 0], four[0, 0]
    shown = [None, *shapes, *(torch.zeros_like(each, dtype=x.dtype) for each in shapes)]
    # Some attend to the past alone, and refuse to be asked for anything else.
    for mask, causal in product(shown if masks else shown[:1], ((), flags)):
        options = dict.fromkeys(masks, mask) | dict.fromkeys(causal, True)
        with suppress(*REFUSALS, ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a table that is of another kind
            output = layer(*[x] * max(1, len(sequences_of(left))), **options)
            for each in tensors_in(output):
                if each.shape == x.shape:
                    return each.float()
    return None


def _subjects_of(
    name: str,
    attention: Callable[..., Any],
    parameters: Parameters,
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
) -> list[Subject]:
    said = style is not None
    style = _style_of(name, parameters) if style is None else style
    if style not in STYLES:
        raise ValueError(f"style={style!r} must be one of {', '.join(STYLES)}")
    if mask_means is not None and mask_means not in MEANINGS:
        known_means = ", ".join(MEANINGS)
        raise ValueError(f"mask_means={mask_means!r} must be one of {known_means}")
    names = {*parameters}
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    # Three sequences of features for a module with projections, three of heads else.
    one = style == "mha" or len(sequences_of(parameters)) < 3
    is_layer = one or width is not None
    layer: Callable[..., Any] = attention
    reader: Reader | None = None
    if not is_layer:
        num_heads, width = num_heads or 4, d_model or 24
        layer = Lifted(attention, style, parameters, width, num_heads)
        call = masked_call("ours", parameters_of(layer))
        reader = read_ours if style in MASKED else None
    else:
        width = width if d_model is None else d_model
        if width is None:
            raise ValueError(f"the width of {name} cannot be told: give d_model")
        if style == "mha":
            call, reader = call_mha, read_mha
        elif style in MASKED:
            call = masked_call(style, parameters)
            reader = read_ours if {"cache", "causal"} <= names else None
        else:
            call = plain_call(max(1, len(sequences_of(parameters))))
    masked = style == "mha" or (style in MASKED and bool(names & MASKS))
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
        crosses=cross_call(parameters) if is_layer and style != "mha" else None,
    )
    subject = subject.to(subject.dtype)
    if anew and subject.module is not None and known is None:
        subject = replace(subject, drawn=draw_anew(subject.module))
    if projections and subject.module is not None:
        found = oracles_of(subject.module, projections, num_heads)
        layers = [each.double().train(subject.module.training) for each in found]
        subject = replace(subject, guessed=tuple(layers))
    subjects = [subject]
    flags = {flag for _, flag in MASKED.values()}
    if is_layer and style in ("mask", *MASKED) and (mask_means or not names & flags):
        if any(is_mask(each) and "pad" not in each for each in names):
            subjects = _as_masks_mean(subject, parameters, mask_means)
    elif is_layer and style in MASKED:
        subjects = [_as_it_takes_masks(subject, parameters)]
    elif style == "causal" and not said:
        subjects = _as_it_sees(subject, len(sequences_of(parameters)))
    if is_layer and style in ("causal", "both"):
        subjects = [_as_it_hides(each, parameters, mask_means) for each in subjects]
    if dtype is not None or not movable:
        return subjects
    return [_as_it_rounds(each) for each in subjects]


def _as_it_takes_masks(subject: Subject, parameters: Parameters) -> Subject:
    """Find out how many axes its masks have, and if it is causal without any."""
    ones = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    real = torch.ones(2, 5, dtype=torch.bool)
    for axes in (4, 3):
        call = masked_call(subject.style, parameters, axes=axes)
        asked = replace(subject, call=call)
        try:
            asked.run(ones, real=real if asked.pads else None)
        except (TypeError, ValueError):
            continue
        flag = parameters.get(MASKED[subject.style][1])
        if flag is not None and flag.default is not True:
            try:
                asked.run(ones, causal=False)
            except ValueError:  # it reads the past alone, whatever it is asked
                return replace(asked, opens=False)
            return asked
        quiet = asked.without_dropout()
        changed = torch.cat([ones[:, :3], 2 * ones[:, 3:].cumsum(dim=-1)], dim=1)
        before, after = (quiet.run(x, causal=False)[:, :3] for x in (ones, changed))
        return replace(asked, opens=not torch.equal(before, after))
    return subject  # which will say what is wrong, when it is asked


def _as_masks_mean(
    subject: Subject, parameters: Parameters, meaning: str | None
) -> list[Subject]:
    """Find out what a mask means, and what shape it has: what makes it causal.

    A mask may also be of keys alone, or a flag. If nothing is seen to work, because
    of a bug perhaps, return all that can be called so.

    Raises:
        TypeError: If there is none.
    """
    name = next(each for each in parameters if is_mask(each) and "pad" not in each)
    count = max(1, len(sequences_of(parameters)))
    others = {
        each: None for each in wanted(parameters) if is_mask(each) and each != name
    }
    said = meaning is not None
    plain = replace(subject, call=plain_call(count), opens=False, pads=False)
    alone = parameters[name].default is not inspect.Parameter.empty and not said
    if alone and _seen(plain) in (_CAUSAL, *_SLIPPED):
        return [_as_it_hides(plain, parameters, meaning)]
    tried = [meaning] if meaning is not None else [*MEANINGS]
    running: list[Subject] = []
    for axes, each in itertools.product((4, 3, 2), tried):
        call = meant_call(count, name, axes, each, others)
        asked = replace(subject, call=call, opens=True, pads=axes > 2)
        quiet = asked.without_dropout()
        try:
            found = list(moving(quiet))
            if found == _CAUSAL:
                opens = list(moving(quiet, causal=False)) != _CAUSAL
                asked = _with_meaning(replace(asked, opens=opens), name, each, said)
                if alone and _has_triangle(subject):
                    doubt = "it has a triangle for a mask, and uses that given alone"
                    asked = replace(asked, doubts=(*asked.doubts, doubt))
                return [asked]
            # Five heads may be taken for five tokens, and not for seven.
            quiet.run(torch.ones(3, 7, subject.width, dtype=subject.dtype))
        except (TypeError, ValueError):
            continue
        running.append(asked)
    if keys := _as_padding_means(subject, name, count, tried, others):
        if _says_causal(subject):  # then no mask of keys can be all that it needs
            keys = replace(keys, causal=True, style=subject.style)
        return [keys]
    if parameters[name].default is False:
        asked = replace(subject, call=flag_call(count, name), opens=True)
        with suppress(TypeError, ValueError):
            if list(moving(asked.without_dropout())) == _CAUSAL:
                return [asked]
    if not running:  # As it is said to be called; the checks will see.
        call = meant_call(count, name, 4, tried[0], others)
        running = [replace(subject, call=call, opens=True, pads=True)]
    refusal = (
        f"{subject.name} takes {name}, and no mask that was tried makes it causal: say "
        f"what it means, with mask_means={'|'.join(MEANINGS)}, or style='causal' or "
        "'both' if it needs none"
    )
    refusal = "" if said or name in MASKS else refusal
    return [replace(each, refusal=refusal) for each in running]


def _seen(plain: Subject) -> list[bool]:
    """Return which rows move, see ``moving``, if no mask is given; none if it fails."""
    with suppress(TypeError, ValueError):
        return list(moving(plain.without_dropout()))
    return []


def _as_it_hides(
    subject: Subject, parameters: Parameters, meaning: str | None
) -> Subject:
    """Find out how to hide padding from what needs no mask, if it takes one.

    If no form of it is seen to hide a token, that may be a bug, and is odd.
    """
    masks = [
        name
        for name, each in parameters.items()
        if is_mask(name) and "head" not in name and each.default is not each.empty
    ]
    count = max(1, len(sequences_of(parameters)))
    for name in masks:
        tried = [*MEANINGS] if meaning is None else [meaning]
        if keys := _as_padding_means(subject, name, count, tried):
            return keys
    if not masks:
        return subject
    doubt = (
        f"no form of {masks[0]} that was tried hides a token: call it in a function "
        "without, if that is how it is used"
    )
    return replace(subject, doubts=(*subject.doubts, doubt))


def _as_padding_means(
    subject: Subject,
    name: str,
    count: int,
    tried: Sequence[str] = tuple(MEANINGS),
    others: Mapping[str, Any] = MappingProxyType({}),
) -> Subject | None:
    """Find out what a mask of padding means: one of keys, or of queries and keys."""
    seen = [_CAUSAL] * subject.causal + [_BOTH] * subject.unmasked
    for make, axes, each in product((key_call, meant_call), (4, 3, 2), tried):
        if make is meant_call and axes == 2:  # one for all sequences
            continue
        call = _as_it_attends(subject, make(count, name, axes, each, others))
        asked = replace(subject, call=call, opens=False, pads=True)
        quiet = asked.without_dropout()
        try:
            hidden = list(moving(quiet, real=torch.arange(5) != 2))
            shown = list(moving(quiet))
        except (TypeError, ValueError):
            continue
        if not any(hidden) and shown in seen:
            asked = replace(asked, causal=shown == _CAUSAL)
            asked = _with_meaning(asked, name, each, len(tried) == 1)
            return replace(asked, style=subject.style if asked.causal else "both")
    return None


def _as_it_attends(subject: Subject, call: Call) -> Call:
    """Return a call that hides later tokens only from what should not see them."""

    def called(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return call(layer, x, causal and subject.causal, real)

    return called


def _with_meaning(subject: Subject, name: str, meaning: str, said: bool) -> Subject:
    """Say what was found out about a mask, and whether that can be meant."""
    if meaning == "attend" and (name in MASKS or not subject.opens):
        return subject
    if subject.opens:
        note = f"In {name}, {MEANINGS[meaning]}: that makes it causal."
        subject = replace(subject, notes=(note,))
    if said or _is_usual(name, meaning):
        return subject
    like = "inverted-mask" if meaning == "ignore" else "added-ones"
    doubt = (
        f"in {name}, {MEANINGS[meaning]}: say mask_means={meaning!r} if that is meant; "
        "if True should mean may attend, it is wrong as in "
        f"chapters/the-bug-museum/#{like}"
    )
    return replace(subject, doubts=(*subject.doubts, doubt))


def _is_usual(name: str, meaning: str) -> bool:
    """Return whether masks of a name usually have a meaning."""
    if meaning == "ignore":
        return bool(_IGNORED.search(name))
    return name not in MASKS or (meaning == "add" and "att" in name)


def _as_it_sees(subject: Subject, sequences: int) -> list[Subject]:
    """Find out if what takes no mask attends to both sides.

    It does if all rows move with a token, and nothing about it says that it should be
    causal. Without positions its rows move as its tokens are moved; if they do not, it
    may have positions, or be causal and have a bug.
    """
    if _says_causal(subject):
        return [subject]
    order = [3, 0, 4, 2, 1]
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(2, 5, subject.width, generator=generator).to(subject.dtype)
    sure = True
    for training in (False, True):
        quiet = subject.without_dropout(training=training)
        if not all(moving(quiet)):
            return [subject]
        moved = quiet.run(x)[:, order]
        sure &= torch.allclose(quiet.run(x[:, order]), moved, atol=1e-5)
    doubt = (
        "it attends to both sides: say style='causal' if it should not, and as in "
        "chapters/the-bug-museum/#no-causal-mask lacks a mask, or style='both'"
    )
    modules = [] if subject.module is None else [*subject.module.modules()]
    said = any(getattr(each, "is_causal", None) is False for each in modules)
    # What takes the sequence that it reads beside its own is not causal by nature.
    doubts = () if said or sequences > 1 else (doubt,)
    both = replace(subject, style="both", causal=False, doubts=doubts)
    return [both] if sure else [both, subject]


def _says_causal(subject: Subject) -> bool:
    """Return whether a layer says that it is causal, by its name or what it holds."""
    if subject.module is None:
        return False
    modules = [*subject.module.modules()]
    return (
        any(getattr(each, "is_causal", None) is True for each in modules)
        or any("causal" in type(each).__name__.lower() for each in modules)
        or _has_triangle(subject)
    )


def _has_triangle(subject: Subject) -> bool:
    buffers = () if subject.module is None else subject.module.buffers()
    return any(map(_is_triangle, buffers))


def _is_triangle(buffer: Tensor) -> bool:
    """Return whether one half of a square buffer differs from the other."""
    rows, columns = buffer.shape[-2:] if buffer.ndim > 1 else (0, 0)
    if rows != columns or rows < 3 or not buffer.numel():
        return False
    square = buffer.reshape(-1, rows, columns)[0]
    return bool(square[0, -1] != square[-1, 0])


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


def _style_of(name: str, parameters: Parameters) -> str:
    """Tell the style from the names of the arguments.

    Raises:
        TypeError: If they are those of no style.
    """
    names, count = {*parameters}, len(sequences_of(parameters))
    if names & {"key_padding_mask", "need_weights"}:
        return "mha"
    if count in (1, 2, 3):
        for style in ("sdpa", "ours"):
            if names.intersection(MASKED[style]):
                return style
        masks = [each for each in parameters if is_mask(each) and "pad" not in each]
        return "mask" if masks else "causal"
    raise TypeError(
        f"cannot tell how to call {name}({', '.join(parameters)}): "
        f"name its style, one of {', '.join(STYLES)}"
    )
