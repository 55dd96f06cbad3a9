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
from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.cache import LayerCache
from tested_transformer.checking.functions import with_its_modules
from tested_transformer.checking.projections import (
    find_width,
    number_of_heads,
    oracles_of,
)
from tested_transformer.checking.settings import Settings
from tested_transformer.checking.subject import (
    REFUSALS,
    Call,
    Reader,
    Subject,
    moving,
)
from tested_transformer.checking.supplying import Supplied, supplied
from tested_transformer.checking.weights import draw_anew
from tested_transformer.masks import causal_mask, token_mask

__all__ = ["MEANINGS", "make_subject", "make_subjects"]

_Parameters = Mapping[str, inspect.Parameter]

# For each style that takes a mask of True = may attend, its name and that of the flag
# for causal attention.
_MASKED = {"ours": ("mask", "causal"), "sdpa": ("attn_mask", "is_causal")}
_MASKS = {name for name, _ in _MASKED.values()}
_STYLES = (*_MASKED, "mha", "mask", "causal", "both")
MEANINGS = {
    "attend": "True means may attend",
    "ignore": "True means ignore",
    "ones": "1 means may attend",
    "add": "numbers are added to the scores",
}
# Names of the sequence that another one reads.
_READ = re.compile(r"context|cond|memory|kv|key|enc|source|src|^(y|c)$")
# Which of four rows around a token move with it.
_CAUSAL, _BOTH = [False, False, True, True], [True, True, True, True]


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
    parameters = _parameters_of(attention)
    attention = with_its_modules(attention)
    width = find_width(attention) if isinstance(attention, nn.Module) else None
    width = width if d_model is None else d_model
    if not isinstance(attention, nn.Module) or width is None:
        return _subjects_of(name, attention, parameters, d_model=d_model, **options)
    heads = options.get("num_heads") or number_of_heads(attention) or 1
    head_dim = getattr(attention, "head_dim", None) or width // heads
    widths = Settings(attention).said_widths(head_dim) or [head_dim]
    without, given = (
        [*supplied(attention, parameters, widths, with_tables=with_tables)]
        for with_tables in (False, True)
    )
    ways = [(attention, "")]
    if not without == given == [attention]:
        # What may be left out is, if it can be.
        ways = _that_run(without, parameters, width) or _that_run(
            given, parameters, width
        )
    found: list[Subject] = []
    errors: list[Exception] = []
    for way, doubt in ways or [(each, "") for each in (without or given)[:1]]:
        left = way.left if isinstance(way, Supplied) else parameters
        try:
            subjects = _subjects_of(name, way, left, d_model=d_model, **options)
        except (TypeError, ValueError) as error:
            errors.append(error)
            continue
        doubts = (doubt,) if doubt else ()
        found += [replace(each, doubts=(*each.doubts, *doubts)) for each in subjects]
    if not found:
        raise errors[0]
    return found


def _that_run(
    ways: Sequence[nn.Module], parameters: _Parameters, width: int
) -> list[tuple[nn.Module, str]]:
    """Return those of several ways to call a layer that run, with what is odd of them.

    Of those that do the same there is one.
    """
    x = torch.randn(3, 7, width, generator=torch.Generator().manual_seed(13))
    found: list[tuple[nn.Module, Tensor]] = []
    odd = False
    for way in ways:
        left = way.left if isinstance(way, Supplied) else parameters
        output = _plain_output(way, left, x)
        if output is None:
            continue
        alike = [torch.allclose(output, each, atol=1e-5) for _, each in found]
        forms = [each.form if isinstance(each, Supplied) else -1 for each, _ in found]
        if isinstance(way, Supplied) and way.form in forms:
            odd |= not alike[forms.index(way.form)]
        if not any(alike):
            found.append((way, output))
    doubt = "what it computes depends on the shape of the tables it is given"
    return [(way, doubt if odd else "") for way, _ in found]


@torch.no_grad()
def _plain_output(way: nn.Module, left: _Parameters, x: Tensor) -> Tensor | None:
    """Return what a layer gives if no mask hides anything, if it can be called."""
    weight = next(way.parameters(), x)
    x = x.to(weight)
    length = x.shape[1]
    masks = [name for name in _wanted(left) if "mask" in name]
    flags = [name for name in ("causal", "is_causal") if name in left]
    training = way.training
    all_shown = torch.ones(1, 1, length, length, dtype=torch.bool)
    # Some attend to the past alone, and refuse to be asked for anything else.
    for shown, causal in product((None, all_shown, x[0] * 0), ((), flags)):
        options = dict.fromkeys(masks, shown) | dict.fromkeys(causal, True)
        with suppress(*REFUSALS, ValueError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a table that is of another kind
            output = way.eval()(*[x] * max(1, len(_sequences(left))), **options)
            output = output[0] if isinstance(output, (tuple, list)) else output
            way.train(training)
            if isinstance(output, Tensor) and output.shape == x.shape:
                return output.float()
    way.train(training)
    return None


def _subjects_of(
    name: str,
    attention: Callable[..., Any],
    parameters: _Parameters,
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
        crosses=_cross_call(parameters) if is_layer and style != "mha" else None,
    )
    subject = subject.to(subject.dtype)
    if anew and subject.module is not None and known is None:
        subject = replace(subject, drawn=draw_anew(subject.module))
    if projections and subject.module is not None:
        found = oracles_of(subject.module, projections, num_heads)
        layers = [each.double().train(subject.module.training) for each in found]
        subject = replace(subject, guessed=tuple(layers))
    subjects = [subject]
    flags = {flag for _, flag in _MASKED.values()}
    if is_layer and style in ("mask", *_MASKED) and (mask_means or not names & flags):
        if any("mask" in each and "pad" not in each for each in names):
            subjects = _as_masks_mean(subject, parameters, mask_means)
    elif is_layer and style in _MASKED:
        subjects = [_as_it_takes_masks(subject, parameters)]
    elif style == "causal" and not said:
        subjects = _as_it_sees(subject, len(_sequences(parameters)))
    if dtype is not None or not movable:
        return subjects
    return [_as_it_rounds(each) for each in subjects]


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
    subject: Subject, parameters: _Parameters, meaning: str | None
) -> list[Subject]:
    """Find out what a mask means, and what shape it has: what makes it causal.

    A mask may also be of keys alone, or a flag. If nothing is seen to work, because
    of a bug perhaps, return all that can be called so.

    Raises:
        TypeError: If there is none.
    """
    name = next(each for each in parameters if "mask" in each and "pad" not in each)
    count = max(1, len(_sequences(parameters)))
    others = {
        each: None for each in _wanted(parameters) if "mask" in each and each != name
    }
    said = meaning is not None
    plain = replace(subject, call=_plain_call(count), opens=False, pads=False)
    alone = parameters[name].default is not inspect.Parameter.empty and not said
    if alone and _is_causal(plain):
        keys = _as_padding_means(plain, name, count)
        return [keys if keys is not None and keys.causal else plain]
    tried = [meaning] if meaning is not None else [*MEANINGS]
    running: list[Subject] = []
    for axes, each in itertools.product((4, 3, 2), tried):
        call = _meant_call(count, name, axes, each, others)
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
        return [keys]
    if parameters[name].default is False:
        asked = replace(subject, call=_flag_call(count, name), opens=True)
        with suppress(TypeError, ValueError):
            if list(moving(asked.without_dropout())) == _CAUSAL:
                return [asked]
    if not running:  # As it is said to be called; the checks will see.
        call = _meant_call(count, name, 4, tried[0], others)
        running = [replace(subject, call=call, opens=True, pads=True)]
    refusal = (
        f"{subject.name} takes {name}, and no mask that was tried makes it causal: say "
        f"what it means, with mask_means={'|'.join(MEANINGS)}, or style='causal' or "
        "'both' if it needs none"
    )
    refusal = "" if said or name in _MASKS else refusal
    return [replace(each, refusal=refusal) for each in running]


def _is_causal(plain: Subject) -> bool:
    """Return whether what is given no mask is causal."""
    with suppress(TypeError, ValueError):
        return list(moving(plain.without_dropout())) == _CAUSAL
    return False


def _as_padding_means(
    subject: Subject,
    name: str,
    count: int,
    tried: Sequence[str] = tuple(MEANINGS),
    others: Mapping[str, Any] = MappingProxyType({}),
) -> Subject | None:
    """Find out what a mask of keys alone means, and what shape it has."""
    for axes, each in itertools.product((4, 3, 2), tried):
        call = _key_call(count, name, axes, each, others)
        asked = replace(subject, call=call, opens=False, pads=True)
        quiet = asked.without_dropout()
        try:
            hidden = list(moving(quiet, real=torch.arange(5) != 2))
            shown = list(moving(quiet))
        except (TypeError, ValueError):
            continue
        if not any(hidden) and shown in (_CAUSAL, _BOTH):
            asked = replace(asked, causal=shown == _CAUSAL)
            return replace(asked, style=subject.style if asked.causal else "both")
    return None


def _with_meaning(subject: Subject, name: str, meaning: str, said: bool) -> Subject:
    """Say what was found out about a mask, and whether that can be meant."""
    if meaning == "attend" and name in _MASKS:
        return subject
    note = f"In {name}, {MEANINGS[meaning]}: that makes it causal."
    subject = replace(subject, notes=(note,))
    usual = name not in _MASKS and (meaning != "add" or "att" in name)
    if said or usual:
        return subject
    like = "inverted-mask" if meaning == "ignore" else "added-ones"
    doubt = (
        f"in {name}, {MEANINGS[meaning]}: say mask_means={meaning!r} if that is meant; "
        "if True should mean may attend, it is wrong as in "
        f"chapters/the-bug-museum/#{like}"
    )
    return replace(subject, doubts=(*subject.doubts, doubt))


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
    if count in (1, 2, 3):
        for style in ("sdpa", "ours"):
            if names.intersection(_MASKED[style]):
                return style
        masks = [each for each in parameters if "mask" in each and "pad" not in each]
        return "mask" if masks else "causal"
    raise TypeError(
        f"cannot tell how to call {name}({', '.join(parameters)}): "
        f"name its style, one of {', '.join(_STYLES)}"
    )


def _masked_call(style: str, parameters: _Parameters, *, axes: int = 4) -> Call:
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


def _plain_call(sequences: int) -> Call:
    """Return what calls a layer that takes no mask."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return layer(*[x] * sequences)

    return call


def _as_meant(mask: Tensor, meaning: str, dtype: torch.dtype) -> Tensor:
    """Return a mask of what may be attended to as another means it."""
    if meaning == "ignore":
        return ~mask
    if meaning == "ones":
        return mask.to(dtype)
    if meaning == "add":
        lowest = torch.finfo(dtype).min
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, lowest)
    return mask


def _key_call(
    sequences: int, name: str, axes: int, meaning: str, others: Mapping[str, Any]
) -> Call:
    """Return what calls a layer with a mask of keys that has a meaning."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        shown = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        mask = _as_meant(shown if real is None else real, meaning, x.dtype)
        shaped = {4: mask[:, None, None], 3: mask[:, None], 2: mask}[axes]
        return layer(*[x] * sequences, **{name: shaped}, **others)

    return call


def _flag_call(sequences: int, name: str) -> Call:
    """Return what calls a layer whose mask is made by itself, if it is told to."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return layer(*[x] * sequences, **{name: causal})

    return call


def _meant_call(
    sequences: int, name: str, axes: int, meaning: str, others: Mapping[str, Any]
) -> Call:
    """Return what calls a layer with a mask that has a meaning."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device)
        mask = causal_mask(length, device=x.device) if causal else mask
        mask = mask if real is None else mask & token_mask(real)
        mask = mask.expand(len(x), 1, length, length)
        mask = _as_meant(mask, meaning, x.dtype)
        shaped = {4: mask, 3: mask[:, 0], 2: mask[0, 0]}[axes]
        return layer(*[x] * sequences, **{name: shaped}, **others)

    return call


def _cross_call(
    parameters: _Parameters,
) -> Callable[[Any, Tensor, Tensor], Any] | None:
    """Return what calls a layer with a sequence to read, if names say which it is."""
    names = _sequences(parameters)
    queries = [name[0].lower() == "q" for name in names]
    if any("mask" in name for name in _wanted(parameters)):
        return None
    if len(names) == 3 and sum(queries) == 1:
        return partial(_call_cross, tuple(queries))
    if len(names) == 2 and _READ.search(names[1]) and not queries[1]:
        return partial(_call_cross, (True, False))
    return None


def _call_cross(
    queries: tuple[bool, ...], layer: Any, x: Tensor, context: Tensor
) -> Any:
    return layer(*[x if each else context for each in queries])


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
