"""Find out by trying what the masks of a layer mean, and which shapes they have.

Each function takes a subject as its style calls it, and returns how to call it with a
mask that makes it causal or hides padding, with a note or a doubt about the meaning.
"""

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tested_transformer.checking.styles import (
    MASKS,
    MEANINGS,
    READ,
    Lifted,
    Parameters,
    flag_call,
    is_mask,
    key_call,
    mask_and_flag,
    masked_call,
    meant_call,
    mha_call,
    mha_reader,
    plain_call,
    sequences_of,
    wanted,
)
from tested_transformer.checking.subject import Call, Subject, copied, moving

__all__ = [
    "HIDES_NOTHING",
    "as_it_adds",
    "as_it_hides",
    "as_it_takes_either",
    "as_it_takes_masks",
    "as_masks_mean",
    "as_padding_means",
    "main_mask",
    "of_context",
    "other_masks",
    "says_causal",
]

# Parts of the usual names of masks in which True means ignore.
_IGNORED = re.compile("pad|ignore|hid|block|exclu|forbid")
# Which of four rows, two on each side of a token, change with it; see ``moving``.
_CAUSAL, _BOTH = [False, False, True, True], [True, True, True, True]
# The same rows if a layer's own mask ends too late, or is inverted.
_SLIPPED = [False, True, True, True], [True, True, False, False]
# The meanings of the other kind of mask: numbers, or True and False.
_OTHER_KIND = {
    **dict.fromkeys(("attend", "ignore"), ("add", "ones")),
    **dict.fromkeys(("add", "ones"), ("attend", "ignore")),
}
_ADDED_ONES = (
    "in {}, True adds 1 to a score, and only numbers hide a token: give "
    "mask_means='add' if masks are always numbers; otherwise it is wrong as in "
    "chapters/the-bug-museum/#added-ones"
)
HIDES_NOTHING = (
    "no form of {} that was tried hides a token: if you never pass it, check a "
    "function that calls the layer without it"
)
_LOST = (
    "with {} that hides nothing, its output is another than without: does it lose its "
    "window, or what else it forbids?"
)
_MASK_ALONE = "Given {}, it hides later tokens only if the mask does."
_SOME_HIDDEN = (
    "given {} that hides nothing, it hides some of the later tokens, but not all"
)
_KINDS = dict.fromkeys(("attend", "ignore"), "True and False") | dict.fromkeys(
    ("add", "ones"), "numbers"
)
_ONE_KIND = "In {}, only {} make it causal: {}."
_APART = "In {}, numbers and True and False give different outputs; {}."


def as_masks_mean(
    subject: Subject, parameters: Parameters, meaning: str | None
) -> list[Subject]:
    """Find the meaning and the shape of a mask that make a layer causal.

    The mask may also be one of keys, or a flag. If nothing makes the layer causal,
    perhaps because of a bug, return all ways to call it that run.
    """
    name = main_mask(parameters)
    count = max(1, len(sequences_of(parameters)))
    others = {
        each: None for each in wanted(parameters) if is_mask(each) and each != name
    }
    said = meaning is not None
    plain = replace(subject, call=plain_call(count), opens=False, pads=False)
    alone = parameters[name].default is not inspect.Parameter.empty and not said
    if alone and _seen(plain) in (_CAUSAL, *_SLIPPED):
        return [as_it_hides(plain, parameters, meaning)]
    tried = [meaning] if meaning is not None else [*MEANINGS]
    running: list[Subject] = []
    for axes, each in itertools.product((4, 3, 2), tried):
        call = meant_call(count, name, axes, each, others)
        asked = replace(subject, call=call, opens=True, pads=axes > 2)
        quiet = asked.without_dropout()
        try:
            if _is_causal(quiet):
                # Run it with more sequences than tokens: some slice the first axes.
                quiet.run(torch.ones(4, 2, subject.width, dtype=subject.dtype))
                if each == "add" and not _adds(
                    quiet, partial(meant_call, count, name, axes, others=others)
                ):
                    continue
                opens = list(moving(quiet, causal=False)) != _CAUSAL
                asked = _with_meaning(replace(asked, opens=opens), name, each, said)
                if alone and (own := _own_mask(subject)):
                    doubt = f"{own}, and uses only the mask it is given"
                    asked = replace(asked, doubts=(*asked.doubts, doubt))
                if said:
                    return [asked]
                return _as_either_means(asked, name, each, count, others)
            _run_in_all_shapes(asked)
        except (TypeError, ValueError):
            continue
        running.append(asked)
    if keys := as_padding_means(subject, name, count, tried, others):
        if says_causal(subject):  # it hides later tokens by itself, or should
            keys = replace(keys, causal=True, style=subject.style)
        return [keys]
    if parameters[name].default is False:
        asked = replace(subject, call=flag_call(count, name), opens=True)
        with suppress(TypeError, ValueError):
            if list(moving(asked.without_dropout())) == _CAUSAL:
                return [asked]
    if oddity := _oddity(subject, name, count, tried, others):
        raise ValueError(oddity)
    with_it = f" with mask_means={meaning!r}" if said else ""
    give = (
        "give " if said else f"give its meaning, mask_means={'|'.join(MEANINGS)}, or "
    )
    refusal = (
        f"{subject.name} takes {name}, and no mask that was tried{with_it} makes it "
        f"causal or hides a token: {give}style='causal' or 'both' if it needs no mask"
    )
    if running:
        refusal = "" if said or name in MASKS else refusal
    else:
        # If it fails without a mask too, call it so, for the error of an ordinary call.
        optional = parameters[name].default is not inspect.Parameter.empty
        fails = optional and not _seen(plain)
        call = meant_call(count, name, 4, tried[0], others)
        running = [replace(subject, call=plain.call if fails else call, pads=True)]
        refusal = "" if fails else refusal
        running += _with_keys_alone(subject, name, count, tried, others)
    return [replace(each, refusal=refusal) for each in running]


def _run_in_all_shapes(subject: Subject) -> None:
    """Raise an error if a layer does not run in all shapes that the checks use.

    With 5 tokens it may take heads for tokens, or slice the first axes of its mask. If
    it uses its mask only while training, it runs with any mask otherwise.
    """
    for training, (batch, length) in product((False, True), ((3, 7), (4, 2))):
        quiet = subject.without_dropout(training=training)
        quiet.run(torch.ones(batch, length, subject.width, dtype=subject.dtype))


def _with_keys_alone(
    subject: Subject,
    name: str,
    count: int,
    tried: Sequence[str],
    others: Mapping[str, Any],
) -> list[Subject]:
    """Return the ways to call a layer with a mask of keys that has an effect.

    No such mask hides a token, so a layer without a bug means something else by it.
    """
    found: list[Subject] = []
    for axes, each in product((2, 3, 4), tried):
        call = key_call(count, name, axes, each, others)
        asked = replace(subject, call=call, opens=False, pads=True)
        with suppress(TypeError, ValueError):
            _run_in_all_shapes(asked)
            quiet = asked.without_dropout()
            shown = list(moving(quiet)) == _CAUSAL
            asked = replace(asked, causal=shown, style=asked.style if shown else "both")
            if _has_effect(asked.without_dropout()):
                found.append(asked)
    return found


def _has_effect(quiet: Subject) -> bool:
    """Return whether the output for tokens that are real depends on which are."""
    x = torch.randn(2, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    x, real = x.to(quiet.dtype), torch.arange(5) != 2
    rows = [quiet.run(x, real=each) for each in (None, real.expand(2, -1))]
    one, other = (each[:, real] for each in rows)
    return not torch.allclose(one, other, equal_nan=True)


def main_mask(parameters: Parameters) -> str:
    """Return the name of the first mask that seems to be for more than padding."""
    return next(each for each in parameters if is_mask(each) and "pad" not in each)


def _as_either_means(
    asked: Subject, name: str, meaning: str, count: int, others: Mapping[str, Any]
) -> list[Subject]:
    """Ask also about the other kind of mask, if a layer treats the two differently.

    A layer with code for True and False and code for numbers can have a bug in one of
    them. If none of the other kind makes it causal, return the ways to call it with it;
    if some do and all change its output, ask about the first of them as well.

    Args:
        asked: The layer, called with the kind that hides tokens.
        name: The name of its mask.
        meaning: What that kind means.
        count: The number of sequences.
        others: Its other masks.
    """

    def called(axes: int, meaning: str) -> Subject:
        return replace(asked, call=meant_call(count, name, axes, meaning, others))

    kind = _OTHER_KIND[meaning]
    if not any(_reads_kind(called(axes, "attend")) for axes in (4, 3, 2)):
        return [asked]
    wrong: list[Subject] = []
    apart: list[Subject] = []
    for axes, each in product((4, 3, 2), kind):
        other = called(axes, each)
        quiet = other.without_dropout()
        try:
            if _is_causal(quiet):
                if _agree(quiet, asked.without_dropout()):
                    return [asked]
                note = _APART.format(name, MEANINGS[each])
                apart.append(replace(other, notes=(note,)))
                continue
            quiet.run(torch.ones(3, 7, asked.width, dtype=asked.dtype))
        except (TypeError, ValueError):
            continue
        if meaning == "add" and _adds_ones(partial(called, axes)):
            return [replace(asked, doubts=(*asked.doubts, _ADDED_ONES.format(name)))]
        note = _ONE_KIND.format(name, _KINDS[meaning], MEANINGS[meaning])
        wrong.append(replace(other, notes=(note,)))
    if apart:
        return [replace(asked, otherwise=apart[0])]
    if not wrong or as_padding_means(asked, name, count, kind, others):
        return [asked]
    return wrong


def as_it_takes_either(subject: Subject, parameters: Parameters) -> Subject:
    """Ask an attention about numbers, if its code asks which kind a mask is."""
    (name, _), real = mask_and_flag(subject.style, parameters), torch.arange(5) != 2
    with suppress(TypeError, ValueError):
        quiet = subject.without_dropout()
        if any(moving(quiet, real=real)) or not _reads_kind(quiet):
            return subject
        for meaning in ("ones", "add"):
            other = _given_numbers(subject, parameters, meaning)
            beside = other.without_dropout()
            if any(moving(beside, real=real)):
                continue
            if _agree(quiet, beside, real=real):
                return subject
            note = _APART.format(name, MEANINGS[meaning])
            other = replace(other, notes=(*other.notes, note))
            return replace(subject, otherwise=other)
        note = f"In {name}, only True and False hide padding."
        return replace(other, notes=(*other.notes, note))
    return subject


def _given_numbers(subject: Subject, parameters: Parameters, meaning: str) -> Subject:
    """Return an attention with a flag, called with masks of numbers."""
    if isinstance(subject.layer, Lifted):
        layer = copied(subject.layer)
        vars(layer)["meaning"] = meaning
        return replace(subject, layer=layer)
    _, flag = mask_and_flag(subject.style, parameters)
    masks_alone = {key: each for key, each in parameters.items() if key != flag}
    call = masked_call(subject.style, masks_alone, meaning=meaning)
    return replace(subject, call=call)


def _is_causal(quiet: Subject) -> bool:
    """Return whether tokens read themselves and earlier ones.

    A token that reads nothing, as in a mask without its diagonal, would get NaN.
    """
    x = torch.randn(2, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    finite = quiet.run(x.to(quiet.dtype)).isfinite().all()
    return bool(finite) and list(moving(quiet)) == _CAUSAL


def _agree(
    one: Subject, other: Subject, *, real: Bool[Tensor, " T"] | None = None
) -> bool:
    """Return whether two ways to call a layer give the same causal output."""
    x = torch.randn(2, 5, one.width, generator=torch.Generator().manual_seed(13))
    x, mask = x.to(one.dtype), None if real is None else real.expand(2, -1)
    first, second = (each.run(x, real=mask) for each in (one, other))
    return torch.allclose(first, second, equal_nan=True)


def _adds_ones(called: Callable[[str], Subject]) -> bool:
    """Return whether a layer, called with masks of a meaning, takes True for 1."""
    quiet, other = (called(each).without_dropout() for each in ("attend", "ones"))
    x = torch.randn(2, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    x = x.to(quiet.dtype)
    return torch.equal(quiet.run(x), other.run(x))


class _Reads(TorchFunctionMode):
    """Notes whether the dtype of a mask of True and False is read."""

    found = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        asked = getattr(func, "__self__", None) is torch.Tensor.dtype
        self.found |= asked and out is torch.bool
        asked = getattr(func, "__name__", "") == "is_floating_point"
        self.found |= asked and args[0].dtype == torch.bool
        return out


def _reads_kind(quiet: Subject) -> bool:
    """Return whether a layer asks which kind of mask it is given."""
    reads = _Reads()

    def layer(*sequences: Any, **options: Any) -> Any:
        with reads:
            return quiet.layer(*sequences, **options)

    layer.__dict__["batch_first"] = getattr(quiet.layer, "batch_first", True)
    x = torch.ones(2, 5, quiet.width, dtype=quiet.dtype)
    with suppress(TypeError, ValueError):
        real = (torch.arange(5) != 2).expand(2, -1) if quiet.pads else None
        replace(quiet, layer=layer).run(x, real=real)
    return reads.found


def as_it_takes_masks(subject: Subject, parameters: Parameters) -> Subject:
    """Find out how many axes masks need, and whether it is causal without a mask."""
    ones = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    real = torch.ones(2, 5, dtype=torch.bool)
    for axes in (4, 3):
        call = masked_call(subject.style, parameters, axes=axes)
        asked = replace(subject, call=call)
        try:
            asked.run(ones, real=real if asked.pads else None)
        except (TypeError, ValueError):
            continue
        flag = parameters.get(mask_and_flag(subject.style, parameters)[1])
        if flag is not None and flag.default is not True:
            try:
                asked.run(ones, causal=False)
            except ValueError:  # it is always causal
                return replace(asked, opens=False)
            return asked
        quiet = asked.without_dropout()
        changed = torch.cat([ones[:, :3], 2 * ones[:, 3:].cumsum(dim=-1)], dim=1)
        before, after = (quiet.run(x, causal=False)[:, :3] for x in (ones, changed))
        return replace(asked, opens=not torch.equal(before, after))
    return subject  # a check will run it, and raise the error


def as_it_adds(subject: Subject, parameters: Parameters, *, said: bool) -> Subject:
    """Find out whether a layer adds its ``attn_mask`` to the scores.

    If nobody said so, add a doubt: PyTorch's layer also takes a mask of True and False.
    """

    def called(meaning: str) -> Subject:
        others = other_masks(parameters)
        return replace(
            subject,
            call=mha_call(others, meaning),
            pieces=subject.pieces and mha_reader(others, meaning),
        )

    if not subject.opens:
        return subject
    asked = {each: called(each) for each in ("ignore", "add")}
    seen = {each: _seen(asked[each]) for each in asked}
    causal = [each for each in asked if seen[each] == _CAUSAL]
    if len(causal) == 1 and all(seen.values()) and not said and _reads_kind(subject):
        (meaning,) = causal
        if meaning != "add" or not _adds_ones(called):
            (wrong,) = {*asked} - {meaning}
            note = _ONE_KIND.format("attn_mask", _KINDS[meaning], MEANINGS[meaning])
            return replace(asked[wrong], notes=(note,))
    if len(causal) == 2 and not said and _reads_kind(subject):
        ignores, adds = (each.without_dropout() for each in asked.values())
        if not _agree(ignores, adds):
            note = _APART.format("attn_mask", MEANINGS["add"])
            return replace(subject, otherwise=replace(asked["add"], notes=(note,)))
    if causal != ["add"]:
        return subject
    note = f"In attn_mask, {MEANINGS['add']}: that makes it causal."
    doubt = (
        f"in attn_mask, {MEANINGS['add']}: give mask_means='add' if that is meant; if "
        "True should mean ignore, it is wrong as in "
        "chapters/the-bug-museum/#added-ones"
    )
    doubts = () if said else (doubt,)
    return replace(asked["add"], notes=(note,), doubts=(*subject.doubts, *doubts))


def other_masks(parameters: Parameters) -> dict[str, None]:
    """Return the masks that a layer requires besides the two of the style ``mha``."""
    known = "attn_mask", "key_padding_mask"
    names = [each for each in wanted(parameters) if is_mask(each)]
    return {each: None for each in names if each not in known}


def as_it_hides(
    subject: Subject, parameters: Parameters, meaning: str | None
) -> Subject:
    """Find out how to hide padding from a layer that needs no mask but takes one.

    If no form of the mask hides a token, add a doubt, since that may be a bug.
    """
    masks = [
        name
        for name, each in parameters.items()
        if is_mask(name) and "head" not in name and each.default is not each.empty
    ]
    count = max(1, len(sequences_of(parameters)))
    tried = [*MEANINGS] if meaning is None else [meaning]
    # Some layers are causal until they are given a mask, and then use only the mask. In
    # others, a triangle in the mask would hide that they see later tokens.
    triangles = [False, True] if masks and _seen(subject) == _CAUSAL else [False]

    def hiding(name: str) -> Subject | None:
        for each in triangles:
            keys = as_padding_means(subject, name, count, tried, triangle=each)
            if keys is not None:
                return _with_mask_alone(keys, name) if each else keys
        return None

    found = {name: hiding(name) for name in masks}
    idle = [
        name
        for name, keys in found.items()
        if keys is None and not of_context(name, parameters)
    ]
    hides = [keys for keys in found.values() if keys is not None]
    oddity = _oddity(subject, idle[0], count, tried) if idle and not hides else ""
    doubts = [oddity] if oddity else [HIDES_NOTHING.format(name) for name in idle]
    if not hides:
        return replace(subject, doubts=(*subject.doubts, *doubts[:1]))
    first, *rest = hides
    quiet = subject.without_dropout()
    doubts += [
        _LOST.format(name)
        for name, keys in found.items()
        if keys is not None and not _agree(quiet, keys.without_dropout())
    ]
    first = replace(first, doubts=(*first.doubts, *doubts))
    real = torch.arange(5) != 2
    for keys in rest:
        if not _agree(first.without_dropout(), keys.without_dropout(), real=real):
            return replace(first, otherwise=keys)
    return first


def _with_mask_alone(keys: Subject, name: str) -> Subject:
    """Say what a causal layer does with a mask that does not hide later tokens."""
    shown = _seen(keys, causal=False)
    if shown == _BOTH:
        return replace(keys, notes=(*keys.notes, _MASK_ALONE.format(name)))
    if shown in ([], _CAUSAL):
        return keys
    return replace(keys, doubts=(*keys.doubts, _SOME_HIDDEN.format(name)))


def of_context(name: str, parameters: Parameters) -> bool:
    """Return whether a mask seems to be one of a context that need not be given."""
    first = name.partition("_")[0]
    return READ.search(first) is not None and any(
        each.partition("_")[0] == first and not is_mask(each)
        for each in {*parameters} - {*wanted(parameters)}
    )


def as_padding_means(
    subject: Subject,
    name: str,
    count: int,
    tried: Sequence[str] = tuple(MEANINGS),
    others: Mapping[str, Any] = MappingProxyType({}),
    *,
    triangle: bool = True,
) -> Subject | None:
    """Find the meaning of a padding mask, of keys or of queries and keys.

    Without ``triangle``, the mask hides padding alone.
    """
    seen = [_CAUSAL] * subject.causal + [_BOTH] * subject.unmasked
    for make, axes, each in product((key_call, meant_call), (4, 3, 2), tried):
        if make is meant_call and axes == 2:  # it would be the same in all sequences
            continue
        hides = subject.causal and triangle
        call = _as_it_attends(make(count, name, axes, each, others), hides)
        asked = replace(subject, call=call, opens=False, pads=True)
        quiet = asked.without_dropout()
        try:
            hidden = list(moving(quiet, real=torch.arange(5) != 2))
            shown = list(moving(quiet))
        except (TypeError, ValueError):
            continue
        softly = partial(make, count, name, axes, others=others)
        if each == "add" and not any(hidden) and not _adds(quiet, softly, hides=hides):
            continue
        if not any(hidden) and shown in seen:
            asked = replace(asked, causal=shown == _CAUSAL)
            asked = _with_meaning(asked, name, each, len(tried) == 1)
            if "pad" in name:  # PyTorch's and flash-attn's mean the opposite
                note = f"In {name}, {MEANINGS[each]}."
                asked = replace(asked, notes=(*asked.notes, note))
            return replace(asked, style=subject.style if asked.causal else "both")
    return None


def _adds(quiet: Subject, softly: Callable[..., Call], *, hides: bool = True) -> bool:
    """Return whether the numbers of a mask are added to the scores as they are.

    Then a key whose number is smaller by one has e times less weight. A layer that
    multiplies the numbers may hide padding with the largest alone, and not with those
    that it is given in use.

    Args:
        quiet: The layer, without dropout, with a mask of the largest numbers.
        softly: Returns a call with a mask of the number ``meaning``.
        hides: Whether the mask hides later tokens.
    """
    x = torch.randn(2, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    x, real = x.to(quiet.dtype), (torch.arange(5) != 2).expand(2, -1)
    hidden = quiet.run(x, real=real if quiet.pads else None)
    near, far = (
        replace(quiet, call=_as_it_attends(softly(meaning=each), hides))
        .run(x, real=real if quiet.pads else None)
        .sub(hidden)
        .abs()
        .max()
        for each in (-8.0, -9.0)
    )
    return bool(near < 3.1 * far)


def _as_it_attends(call: Call, hides: bool) -> Call:
    """Return a call whose mask hides later tokens only if ``hides``."""

    def called(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return call(layer, x, causal and hides, real)

    return called


def _oddity(
    subject: Subject,
    name: str,
    count: int,
    tried: Sequence[str],
    others: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return what makes a layer odd with any mask, if anything does.

    It may draw random numbers, write into what it is given, or remember earlier calls.
    """
    generator = torch.Generator().manual_seed(13)
    x = torch.randn(2, 5, subject.width, generator=generator).to(subject.dtype)
    real = torch.arange(5) < torch.tensor([[5], [3]])
    for make, axes, each in product((key_call, meant_call), (2, 3, 4), tried):
        asked = replace(subject, call=make(count, name, axes, each, others))
        quiet, fresh = asked.without_dropout(), asked.without_dropout()
        try:
            one, other = (quiet.run(x, causal=False, real=real) for _ in range(2))
            after, anew = (some.run(x, causal=False) for some in (quiet, fresh))
        except (TypeError, ValueError) as error:
            if "writes into" in str(error):
                return str(error)
            continue
        if not torch.allclose(one, other, equal_nan=True):
            return subject.error_of_chance
        if not torch.allclose(after, anew, equal_nan=True):
            return f"{subject.name} remembers earlier calls: does it keep a mask?"
    return ""


def _seen(plain: Subject, *, causal: bool = True) -> list[bool]:
    """Return ``moving``, or nothing if a subject cannot be called so."""
    with suppress(TypeError, ValueError):
        return list(moving(plain.without_dropout(), causal=causal))
    return []


def _with_meaning(subject: Subject, name: str, meaning: str, said: bool) -> Subject:
    """Add a note about the meaning of a mask, and a doubt if it is unusual."""
    if meaning == "attend" and (name in MASKS or not subject.opens):
        return subject
    if subject.opens:
        note = f"In {name}, {MEANINGS[meaning]}: that makes it causal."
        subject = replace(subject, notes=(note,))
    if said or _is_usual(name, meaning):
        return subject
    like = "inverted-mask" if meaning == "ignore" else "added-ones"
    doubt = (
        f"in {name}, {MEANINGS[meaning]}: give mask_means={meaning!r} if that is "
        "meant; if True should mean may attend, it is wrong as in "
        f"chapters/the-bug-museum/#{like}"
    )
    return replace(subject, doubts=(*subject.doubts, doubt))


def _is_usual(name: str, meaning: str) -> bool:
    """Return whether masks of this name usually have this meaning."""
    if meaning == "ignore":
        return bool(_IGNORED.search(name))
    return name not in MASKS or (meaning == "add" and "att" in name)


def says_causal(subject: Subject) -> bool:
    """Return whether a name, an attribute or a buffer of a layer says it is causal."""
    if subject.module is None:
        return False
    modules = [*subject.module.modules()]
    return (
        any(getattr(each, "is_causal", None) is True for each in modules)
        or any("causal" in type(each).__name__.lower() for each in modules)
        or _has_triangle(subject)
    )


def _own_mask(subject: Subject) -> str:
    """Return what shows that a layer should be causal by itself, or an empty text."""
    if _has_triangle(subject):
        return "it has a causal mask"
    modules = () if subject.module is None else subject.module.modules()
    said = any(getattr(each, "causal", None) is True for each in modules)
    return "it has an attribute causal=True" if said else ""


def _has_triangle(subject: Subject) -> bool:
    buffers = () if subject.module is None else subject.module.buffers()
    return any(map(_is_triangle, buffers))


def _is_triangle(buffer: Tensor) -> bool:
    """Return whether two opposite corners of a square buffer differ."""
    rows, columns = buffer.shape[-2:] if buffer.ndim > 1 else (0, 0)
    if rows != columns or rows < 3 or not buffer.numel():
        return False
    square = buffer.reshape(-1, rows, columns)[0]
    return bool(square[0, -1] != square[-1, 0])
