"""Ask a layer about the masks beside the one that it is called with, and about none."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checking.meanings import (
    HIDES_NOTHING,
    as_padding_means,
    of_context,
)
from tested_transformer.checking.styles import (
    FLAGS,
    MEANINGS,
    Parameters,
    is_mask,
    key_call,
    meant_call,
    options_of,
    plain_call,
    sequences_of,
    wanted,
)
from tested_transformer.checking.subject import Call, Subject, moving

__all__ = ["as_masks_agree"]

_OTHER_SHAPE = "in {}, a mask of {} does another thing than the same one of {}"
_FLAG_IGNORED = "Given {}, it ignores {}: the mask has to hide later tokens."

_APART = (
    "without {} its output is that of neither a causal mask nor one that hides "
    "nothing: give oracle= if that is meant"
)
_LOST = (
    "given {} and {} together, it does not hide what both hide: check a function that "
    "passes one of them if you never pass both"
)


def as_masks_agree(
    subject: Subject, parameters: Parameters, main: str, meaning: str | None
) -> Subject:
    """Add a doubt about each optional mask that does not do what a mask should.

    It should hide a token, in a usual way, alone and beside the main mask. Without a
    mask, the output should be that of a mask. Add a note if the main mask overrides a
    flag.

    Args:
        subject: The layer.
        parameters: Its parameters.
        main: The name of the mask that it is called with.
        meaning: What masks mean, if somebody said so.
    """
    count = max(1, len(sequences_of(parameters)))
    required = {each for each in wanted(parameters) if is_mask(each)}
    others = dict.fromkeys(required)
    doubts, notes = subject.doubts, subject.notes
    if main not in required and _is_another(subject, count):
        doubts += (_APART.format(main),)
    doubts += tuple(_shape_doubts(subject, main))
    # A padding mask may be one of True and False beside numbers that are added.
    tried = [meaning] if meaning in ("attend", "ignore") else [*MEANINGS]
    for name in parameters:
        asked = is_mask(name) and name != main and name not in required
        if not asked or "head" in name or of_context(name, parameters):
            continue
        keys = as_padding_means(subject, name, count, tried, others)
        if keys is not None:
            doubts += keys.doubts[len(subject.doubts) :]
            notes += keys.notes[len(subject.notes) :]
            if _one_is_lost(subject, keys, count):
                doubts += (_LOST.format(main, name),)
        elif _runs_with(subject, name, count, others):
            doubts += (HIDES_NOTHING.format(name),)
    flag = next((each for each in parameters if each in FLAGS), "")
    if flag and main in parameters and _overrides(subject, main, flag, count):
        notes += (_FLAG_IGNORED.format(main, flag),)
    return replace(subject, notes=notes, doubts=tuple(dict.fromkeys(doubts)))


def _shape_doubts(subject: Subject, main: str) -> Iterator[str]:
    """Yield doubts about a layer that takes a mask in two shapes, not in the same way.

    Their axes have different sizes, so that it runs only if it has code for both.
    """
    quiet = subject.without_dropout()
    x = torch.randn(7, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    x, real = x.to(quiet.dtype), (torch.arange(5) != 2).expand(7, -1)
    for causal in (True, False):
        with suppress(TypeError, ValueError):
            wanted = quiet.run(x, causal=causal, real=real)
            mask: Any = options_of(quiet.call, x, causal, real).get(main)
            for each in _other_shapes(mask, causal=causal):
                given = replace(quiet, call=_instead(quiet.call, main, each))
                with suppress(TypeError, ValueError):
                    output = given.run(x, causal=causal, real=real)
                    if not torch.allclose(output, wanted, equal_nan=True):
                        yield _OTHER_SHAPE.format(main, (*each.shape,), (*mask.shape,))


def _other_shapes(mask: Any, *, causal: bool) -> list[Tensor]:
    """Return a mask of (B, 1, T, S) or (B, T, S) with another number of axes."""
    if not isinstance(mask, Tensor) or mask.ndim < 3:
        return []
    three = mask[:, 0] if mask.ndim == 4 else mask
    others = [three if mask.ndim == 4 else mask[:, None]]
    if mask.dtype == torch.bool and not causal:  # it hides the same keys in all rows
        others.append(three[:, 0])
    return others


def _instead(call: Call, name: str, value: Tensor) -> Call:
    """Return a call that passes another value of one argument."""

    def called(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        def changed(*sequences: Tensor, **options: Any) -> Any:
            return layer(*sequences, **{**options, name: value})

        return call(changed, x, causal, real)

    return called


def _overrides(subject: Subject, main: str, flag: str, count: int) -> bool:
    """Return whether a flag for causal attention does nothing beside a mask."""

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        options = options_of(subject.call, x, False, torch.ones(x.shape[:2]).bool())
        return layer(*[x] * count, **{flag: True, main: options[main]})

    with suppress(KeyError, TypeError, ValueError):
        return all(moving(replace(subject, call=call).without_dropout()))
    return False


def _is_another(subject: Subject, count: int) -> bool:
    """Return whether a layer without a mask does what no mask makes it do."""
    quiet = subject.without_dropout()
    plain = replace(quiet, call=plain_call(count))
    x = torch.randn(2, 5, quiet.width, generator=torch.Generator().manual_seed(13))
    x = x.to(quiet.dtype)
    with suppress(TypeError, ValueError):
        output = plain.run(x)
        masked = [quiet.run(x, causal=each) for each in (True, False)]
        return not any(torch.allclose(output, each, equal_nan=True) for each in masked)
    return False


def _one_is_lost(subject: Subject, keys: Subject, count: int) -> bool:
    """Return whether a layer with two masks does not hide what both of them hide.

    Args:
        subject: The layer, called with its main mask.
        keys: The layer, called with the other one.
        count: The number of sequences.
    """

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        main = options_of(subject.call, x, causal, None)
        return layer(*[x] * count, **main, **options_of(keys.call, x, False, real))

    both = replace(subject, call=call).without_dropout()
    with suppress(TypeError, ValueError):
        hidden = any(moving(both, real=torch.arange(5) != 2))
        return hidden or [*moving(both)] != [*moving(subject.without_dropout())]
    return False


def _runs_with(
    subject: Subject, name: str, count: int, others: Mapping[str, Any]
) -> bool:
    """Return whether a layer runs with any form of a mask."""
    x = torch.ones(2, 5, subject.width, dtype=subject.dtype)
    for make, axes, each in product((key_call, meant_call), (4, 3, 2), MEANINGS):
        with suppress(TypeError, ValueError):
            replace(subject, call=make(count, name, axes, each, others)).run(x)
            return True
    return False
