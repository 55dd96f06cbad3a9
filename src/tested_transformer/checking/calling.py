"""Find out how to call an attention, from its arguments and by trying.

A function of queries, keys and values gets projections around it. A layer is called in
one of six styles, according to the names of its arguments; see ``check_attention``.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.checks import LENGTH
from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.meanings import (
    as_it_adds,
    as_it_hides,
    as_it_takes_either,
    as_it_takes_masks,
    as_masks_mean,
    main_mask,
    other_masks,
    says_causal,
)
from tested_transformer.checking.naming import own_name
from tested_transformer.checking.projections import (
    find_width,
    number_of_heads,
    oracles_of,
)
from tested_transformer.checking.settings import Settings
from tested_transformer.checking.several_masks import as_masks_agree
from tested_transformer.checking.styles import (
    FLAGS,
    MASKED,
    MASKS,
    MEANINGS,
    STYLES,
    Lifted,
    Parameters,
    causal_flag_in,
    context_in,
    cross_call,
    flag_call,
    is_mask,
    mask_and_flag,
    masked_call,
    mha_call,
    mha_reader,
    parameters_of,
    plain_call,
    read_ours,
    sequences_of,
    wanted,
    without_options,
)
from tested_transformer.checking.subject import (
    REFUSALS,
    Reader,
    Subject,
    copied,
    moving,
    tensors_in,
)
from tested_transformer.checking.supplying import (
    IMAGES,
    LAYOUTS,
    LEVELS,
    Supplied,
    supplied,
)
from tested_transformer.checking.weights import draw_anew

__all__ = ["about_lengths", "make_subject", "make_subjects"]

_LAYOUT = (
    "it reads along the first axis: give batch_first=False if it takes (T, B, D), or "
    "batch_first=True if it takes (B, T, D), wrong then as in "
    "chapters/the-bug-museum/#attention-across-batch"
)
_HEADS = (
    "its tokens read each other only in (B, T, H, d_k): give heads_first=False if it "
    "takes that, or heads_first=True if it takes (B, H, T, d_k)"
)
# The lengths of the texts that the checks use; and others that a layer may be made for:
# squares of patches, with or without a token for the whole, and powers of two.
_ASKED = range(1, LENGTH + 1)
_SQUARES = {side**2 + more for side in range(3, 17) for more in (0, 1)}
_LENGTHS = sorted({*_ASKED, *_SQUARES, 8, 32, 128, 512, 1024})


def make_subject(attention: Callable[..., Any], **options: Any) -> Subject:
    """Return the first way to call an attention; see ``make_subjects``."""
    return make_subjects(attention, **options)[0]


def make_subjects(
    attention: Callable[..., Any], *, d_model: int | None = None, **options: Any
) -> list[Subject]:
    """Return the ways to call an attention; see ``check_attention`` for the options.

    There are several if an argument could have several shapes or meanings. Weights that
    would hide a mistake are drawn again, except with ``anew=False``.

    Raises:
        TypeError: If it is not callable, or its style cannot be inferred.
        ValueError: If ``style`` is unknown, or its width cannot be inferred.
    """
    if not callable(attention):
        raise TypeError(
            f"attention must be a function or a module, not {type(attention).__name__}"
        )
    name = getattr(attention, "__name__", type(attention).__name__)
    if isinstance(attention, type):
        raise TypeError(f"attention must be a layer, not its class: write {name}(...)")
    parameters = without_options(parameters_of(attention))
    attention = with_its_modules(attention)
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    width = width if d_model is None else d_model
    if not isinstance(attention, nn.Module) or width is None:
        return _subjects_of(name, attention, parameters, d_model=d_model, **options)
    ways = _ways(attention, parameters, width, options.get("num_heads"))
    found = _asked_in(ways, name, parameters, d_model=d_model, **options)
    if options.get("batch_first") is None and not hasattr(attention, "batch_first"):
        doubts = [_LAYOUT] if any(map(_reads_across, found)) else []
        if doubts or not any(map(_runs, found)):
            options["batch_first"] = False
            turned = _asked_in(ways, name, parameters, d_model=d_model, **options)
            if any(map(_runs, turned)):
                note = "It takes (T, B, D): the features were rearranged."
                return [
                    replace(
                        each,
                        notes=(*each.notes, note),
                        doubts=(*each.doubts, *doubts),
                    )
                    for each in turned
                ]
            del options["batch_first"]
    if options.get("dtype") is None and not any(map(_runs, found)):
        # Some layers compute in float32 inside, and accept nothing else.
        options["dtype"] = torch.float32
        single = _asked_in(ways, name, parameters, d_model=d_model, **options)
        if any(map(_runs, single)):
            note = "It cannot compute in float64, so it was checked in float32."
            return [replace(each, notes=(*each.notes, note)) for each in single]
    if not found:  # call it once more, for an error that says why
        way = ways[0]
        try:
            return _subjects_of(name, way.layer, way.left, d_model=d_model, **options)
        except ValueError as error:
            told = about_lengths(error, name, way.layer, width)
            raise told from error.__cause__
    return found


def about_lengths(
    error: ValueError, name: str, layer: Callable[..., Any], width: int
) -> ValueError:
    """Return an error that says which lengths a layer takes, if that may be the cause.

    Args:
        error: What was raised instead of an error of the layer's own.
        name: The layer's name.
        layer: The layer.
        width: D.
    """
    cause = error.__cause__
    if not isinstance(layer, nn.Module) or not isinstance(cause, REFUSALS):
        return error
    left = layer.left if isinstance(layer, Supplied) else parameters_of(layer)
    way = _Way(layer, left)
    taken = {
        length: _plain_output(way, torch.ones(3, length, width)) is not None
        for length in _LENGTHS
    }
    takes = [length for length, runs in taken.items() if runs]
    lacks = [length for length in _ASKED if not taken[length]]
    if not takes or not lacks:
        return error
    return ValueError(
        f"{name} runs with {takes[0]} tokens, but not with {lacks[0]}: the checks use "
        f"texts of {_ASKED[0]} to {_ASKED[-1]} tokens, so check a layer that takes "
        f"them, or a function around it that does ({type(cause).__name__}: {cause})"
    )


def _runs(subject: Subject) -> bool:
    """Return whether a subject runs at all."""
    with suppress(TypeError, ValueError):
        subject.run(torch.ones(2, 5, subject.width, dtype=subject.dtype))
        return not subject.refusal
    return False


def _reads_across(subject: Subject) -> bool:
    """Return whether a token reads its place in other sequences, and no other place.

    Layers with a flag for causal attention take (B, T, D).
    """
    if subject.style in MASKED:
        return False
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(3, 7, subject.width, generator=generator).to(subject.dtype)
    changed = x.clone()
    changed[0, 2] = x[1, 5]
    quiet = subject.without_dropout()
    with suppress(TypeError, ValueError), torch.no_grad():
        moved = (quiet.run(x) != quiet.run(changed)).any(dim=-1)
        return bool(moved[1:, 2].any()) and not moved[:, [0, 1, 3, 4, 5, 6]].any()
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
    """A way to call a layer, with notes for the report and reasons for doubt."""

    layer: nn.Module
    left: Parameters
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def _ways(
    attention: nn.Module, parameters: Parameters, width: int, num_heads: int | None
) -> list[_Way]:
    """Return the ways to call a layer.

    They leave out all optional arguments and take features (B, T, D), if such a way
    runs.
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
        notes = (f"It takes {layout}: the features were rearranged.",) if layout else ()
        ways = [
            _Way(each, each.left if isinstance(each, Supplied) else parameters, notes)
            for each in tried
        ]
        if found := _that_run(ways, width):
            return found
        first = first or ways[:1]
    return first or [_Way(attention, parameters)]


def _that_run(ways: Sequence[_Way], width: int) -> list[_Way]:
    """Return the ways to call a layer that run, without repeating an output."""
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
    doubt = "its output depends on the shape of the tables that it gets"
    return [replace(way, doubts=(doubt,) if odd else ()) for way, _ in found]


@torch.no_grad()
def _plain_output(way: _Way, x: Tensor) -> Tensor | None:
    """Return the output of a layer whose mask hides nothing, if it can be called."""
    layer, left = way.layer, way.left
    layer.eval()  # in some it returns nothing
    weight = next(layer.parameters(), x)
    x = x.to(weight)
    masks = [name for name in wanted(left) if is_mask(name)]
    flags = [name for name in ("causal", "is_causal") if name in left]
    four = torch.ones(len(x), 1, x.shape[1], x.shape[1], dtype=torch.bool)
    shapes = four, four[:, 0], four[0, 0]
    shown = [None, *shapes, *(torch.zeros_like(each, dtype=x.dtype) for each in shapes)]
    # Some layers are always causal, and accept no other request.
    for mask, causal in product(shown if masks else shown[:1], ((), flags)):
        options = dict.fromkeys(masks, mask) | dict.fromkeys(causal, True)
        with suppress(*REFUSALS, ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tables of a wrong kind can cause some
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
    heads_first: bool | None = None,
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
    # Three sequences are features if a module has projections, and heads otherwise.
    one = style == "mha" or len(sequences_of(parameters)) < 3
    is_layer = one or width is not None
    if is_layer and heads_first is not None:
        raise ValueError(
            f"heads_first={heads_first} is for a function of heads, and {name} takes "
            "features"
        )
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
            raise ValueError(f"the width of {name} is not known: give d_model")
        if style == "mha":
            others = other_masks(parameters)
            call, reader = mha_call(others), mha_reader(others)
        elif style in MASKED:
            call = masked_call(style, parameters)
            ours = hasattr(attention, "new_cache") or hasattr(attention, "num_kv_heads")
            reader = read_ours if ours and {"cache", "causal"} <= names else None
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
        context=context_in(parameters) if is_layer and style != "mha" else "",
    )
    subject = subject.to(subject.dtype)
    if isinstance(layer, Lifted):
        subject = _with_heads_placed(subject, layer, heads_first)
        subject = _as_it_opens(subject, parameters)
    if anew and subject.module is not None and known is None:
        drawn = [own_name(subject.module, x) for x in draw_anew(subject.module)]
        subject = replace(subject, drawn=tuple(filter(None, drawn)))
    if projections and subject.module is not None:
        found = oracles_of(subject.module, projections, num_heads)
        layers = [each.train(subject.module.training) for each in found]
        held = [name for name, _ in subject.module.named_parameters()]
        own = filter(None, (own_name(subject.module, name) for name in held))
        others = [
            name
            for name in own
            if not any(f".{each}." in f".{name}." for each in projections)
        ]
        subject = replace(subject, guessed=tuple(layers), beside=tuple(others))
    subjects = [subject]
    if is_layer and style in ("mask", *MASKED) and (mask_means or not names & FLAGS):
        if any(is_mask(each) and "pad" not in each for each in names):
            subjects = as_masks_mean(subject, parameters, mask_means)
    elif is_layer and style in MASKED:
        subjects = [as_it_takes_masks(subject, parameters)]
    elif style == "mha" and mask_means in (None, "add"):
        subject = (
            subject if pieces or _reads(subject) else replace(subject, pieces=None)
        )
        subjects = [as_it_adds(subject, parameters, said=mask_means is not None)]
    elif style == "causal":
        count = len(sequences_of(parameters))
        flag = causal_flag_in(parameters)
        call = flag_call(max(1, count), flag)
        flagged = replace(subject, call=call, opens=True)
        if flag and _runs(flagged):
            subjects = [flagged]
        elif not said:
            subjects = _as_it_sees(subject, count)
    if is_layer and style in ("causal", "both"):
        subjects = [as_it_hides(each, parameters, mask_means) for each in subjects]
    if style in MASKED and not mask_means and (not is_layer or names & FLAGS):
        subjects = [as_it_takes_either(each, parameters) for each in subjects]
    if is_layer and style in ("mask", *MASKED) and len(subjects) == 1:
        flagged = bool(names & FLAGS)
        main = mask_and_flag(style, names)[0] if flagged else main_mask(parameters)
        subjects = [as_masks_agree(subjects[0], parameters, main, mask_means)]
    if dtype is not None or not movable:
        return subjects
    return [_as_it_rounds(each) for each in subjects]


def _reads(subject: Subject) -> bool:
    """Return whether a layer takes fewer queries than keys."""
    with suppress(ValueError):
        subject.read(torch.ones(2, 3, subject.width, dtype=subject.dtype), (2, 1))
        return True
    return False


def _with_heads_placed(
    subject: Subject, layer: Lifted, heads_first: bool | None
) -> Subject:
    """Give a function (B, T, H, d_k) if that is said, or if tokens then read others.

    If nobody said so, add a doubt: it may attend over heads by mistake.
    """
    if heads_first:
        return subject
    layer = copied(layer).to(subject.dtype)
    layer.heads_last = True
    turned = replace(subject, layer=layer)
    if heads_first is False:
        return turned
    if _mixes(subject) or not _mixes(turned):
        return subject
    return replace(turned, doubts=(*turned.doubts, _HEADS))


def _as_it_opens(subject: Subject, parameters: Parameters) -> Subject:
    """Find out whether a function that is causal by default may be anything else."""
    x = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    if any(parameters[each].default is True for each in FLAGS & {*parameters}):
        try:
            subject.run(x, causal=False)
        except ValueError:
            return replace(subject, opens=False)
    return subject


def _mixes(subject: Subject) -> bool:
    """Return whether tokens read each other."""
    with suppress(TypeError, ValueError):
        return any(moving(subject.without_dropout()))
    return False


def _as_it_sees(subject: Subject, sequences: int) -> list[Subject]:
    """Find out whether a layer without a mask attends to both sides.

    It does if every row changes with a token, unless it says that it is causal. Without
    positions, reordering the tokens then reorders the rows. If it does not, the layer
    may have positions, or should be causal and has a bug.
    """
    if says_causal(subject):
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
        "it attends to both sides: give style='both' if that is meant, or "
        "style='causal' if it lacks a mask, as in "
        "chapters/the-bug-museum/#no-causal-mask"
    )
    modules = [] if subject.module is None else [*subject.module.modules()]
    said = any(getattr(each, "is_causal", None) is False for each in modules)
    # A layer of images, or one that also takes a context, need not be causal.
    images = getattr(subject.layer, "layout", "") == IMAGES
    doubts = () if said or images or sequences > 1 else (doubt,)
    both = replace(subject, style="both", causal=False, doubts=doubts)
    return [both] if sure else [both, subject]


def _as_it_rounds(subject: Subject) -> Subject:
    """Return the subject in float32 if it computes in float32 inside."""
    generator = torch.Generator().manual_seed(13)
    x, step = torch.randn(2, 3, 5, subject.width, generator=generator).double()
    quiet = subject.without_dropout()
    try:
        with torch.no_grad():
            steps = (x - 1e-7 * step, x, x + 1e-7 * step)
            before, here, after = (quiet.run(each).double() for each in steps)
    except (TypeError, ValueError):
        return subject  # it is tried in float32 if it cannot run
    # A smooth output bends by the square of a step, far less than float32 rounds.
    bent = (before - 2 * here + after).abs().max() / (1 + here.abs().max())
    if not 1e-11 < bent < 1e-5:
        return subject
    note = "It computes in float32 inside, so it was checked in float32."
    single = subject.to(torch.float32)
    otherwise = subject.otherwise and _as_it_rounds(subject.otherwise)
    return replace(single, notes=(*subject.notes, note), otherwise=otherwise)


def _style_of(name: str, parameters: Parameters) -> str:
    """Return the style that the names of the arguments suggest.

    Raises:
        TypeError: If they suggest none.
    """
    names, count = {*parameters}, len(sequences_of(parameters))
    if names & {"key_padding_mask", "need_weights"} and _takes_mha(parameters):
        return "mha"
    if count in (1, 2, 3):
        for style in ("sdpa", "ours"):
            if names.intersection(MASKED[style]):
                return style
        masks = [each for each in parameters if is_mask(each) and "pad" not in each]
        return "mask" if masks else "causal"
    raise TypeError(
        f"cannot infer how to call {name}({', '.join(parameters)}): "
        f"give style=, one of {', '.join(STYLES)}"
    )


def _takes_mha(parameters: Parameters) -> bool:
    """Return whether a call like that of ``nn.MultiheadAttention`` fits.

    It does not if only ``**kwargs`` takes its mask, which may then be ignored.
    """
    if "attn_mask" not in parameters:
        return False
    masks = {name for name in wanted(parameters)[3:] if is_mask(name)}
    options = dict.fromkeys(masks | {"attn_mask", "key_padding_mask"})
    with suppress(TypeError, ValueError):
        inspect.Signature([*parameters.values()]).bind(None, None, None, **options)
        return True
    return False
