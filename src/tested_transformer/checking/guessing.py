"""Guess which projection is which, if their names do not say, by shape and effect.

The output is linear in the weights of the values and of the last projection, and not in
those of queries and keys. Everything else is tried. A guess counts only if the layer
then turns out to compute attention, or attention with a known bug.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations, product, tee

import torch
from torch import Tensor, nn

from tested_transformer.checking.checks import close, sample
from tested_transformer.checking.diagnosis import Likeness, alike
from tested_transformer.checking.forms import FormedAttention
from tested_transformer.checking.projections import (
    Projection,
    cut,
    cuts,
    joined,
    make_layer,
    meant_as,
    norm_weights,
    number_of_heads,
)
from tested_transformer.checking.recognizing import Recognizer
from tested_transformer.checking.subject import Subject

__all__ = ["diagnosed", "explained", "recognized"]


@dataclass(frozen=True)
class _Weights:
    """The weights of one projection, which may be split into heads."""

    parameters: tuple[nn.Parameter, ...]
    alternatives: tuple[Projection, ...]  # the ways to read them as a matrix


def explained(subject: Subject) -> Subject | None:
    """Return a subject with an oracle that agrees with it, if one is found."""
    if not _can_have_oracle(subject):
        return None
    recognizer = Recognizer(subject)
    return _explained(subject, recognizer, _meant(subject, recognizer))


def recognized(subject: Subject) -> tuple[Subject, Likeness | None]:
    """Find the oracle of a subject: its projections and its form.

    Returns:
        The subject, with its oracle if one is found; and the known bugs that explain
        how it differs from the oracle, or ``None`` if it need not be explained.
    """
    if not _can_have_oracle(subject):
        return subject, None
    recognizer = Recognizer(subject)
    # There may be hundreds of guesses, so make each group at most once.
    groups, again = tee(_meant(subject, recognizer))
    found = _explained(subject, recognizer, groups)
    return _diagnosed(subject, recognizer, again) if found is None else (found, None)


def diagnosed(subject: Subject) -> tuple[Subject, Likeness | None]:
    """Find the oracle of a subject that none explains, beside known bugs.

    The result is that of ``recognized``.
    """
    if not _can_have_oracle(subject):
        return subject, None
    recognizer = Recognizer(subject)
    return _diagnosed(subject, recognizer, _meant(subject, recognizer))


def _can_have_oracle(subject: Subject) -> bool:
    return subject.module is not None and subject.dtype != torch.float16


def _explained(
    subject: Subject, recognizer: Recognizer, groups: Iterator[list[FormedAttention]]
) -> Subject | None:
    # Guesses after what names say would hide that keys and values were exchanged.
    for layer in next(filter(None, groups), []):
        if recognizer.explains(layer):
            return replace(subject, guessed=(layer,))
    return None


def _diagnosed(
    subject: Subject, recognizer: Recognizer, groups: Iterator[list[FormedAttention]]
) -> tuple[Subject, Likeness | None]:
    for group in filter(None, groups):
        like = alike(replace(subject, guessed=tuple(group)))
        if like.layer is None:
            continue
        exchanged = ["keys-and-values-exchanged"]
        if [each.name for each in like.exhibits] == exchanged:
            # In groups of heads, queries, values, keys is an order that is used.
            found = _split_in_groups(subject, recognizer, 2)
            if found is not None:
                return found, None
        return replace(subject, guessed=(like.layer,)), like
    found = _split_in_groups(subject, recognizer, 1)
    return (subject, Likeness()) if found is None else (found, None)


def _split_in_groups(
    subject: Subject, recognizer: Recognizer, least: int
) -> Subject | None:
    """Return a subject whose one projection is split by groups of heads, in any order.

    Args:
        subject: The attention to explain.
        recognizer: Its recognizer.
        least: The smallest number of groups.
    """
    for layer, count, order in _split_otherwise(subject):
        if count >= least and recognizer.explains(layer):
            doubt = (
                f"its one projection returns {order} of {count} groups of heads: right "
                "if it was trained so"
            )
            doubts = (*subject.doubts, doubt)
            return replace(subject, guessed=(layer,), doubts=doubts)
    return None


def _split_otherwise(subject: Subject) -> Iterator[tuple[FormedAttention, int, str]]:
    """Yield oracles that split one projection by groups of heads, in any order.

    With each, return the number of groups and the order in a group.
    """
    assert subject.module is not None
    first = next(iter(subject.oracles()), None)
    widths = {each for x in subject.module.parameters() for each in x.shape}
    if first is None or 3 * len(first.q_proj.weight) not in widths:
        return
    three = first.q_proj, first.k_proj, first.v_proj
    groups = [n for n in range(1, first.num_heads + 1) if first.num_heads % n == 0]
    kinds = "queries", "keys", "values"
    for count, order in product(groups, permutations(range(3))):
        layer = copy.deepcopy(first)
        for name in ("weight", "bias"):
            whole = torch.cat([getattr(each, name).detach() for each in three])
            parts = whole.unflatten(0, (count, 3, -1)).unbind(1)
            for part, kind in zip(parts, order, strict=True):
                target = (layer.q_proj, layer.k_proj, layer.v_proj)[kind]
                setattr(target, name, nn.Parameter(part.flatten(0, 1)))
        yield layer, count, ", ".join(kinds[each] for each in order)


def _meant(subject: Subject, recognizer: Recognizer) -> Iterator[list[FormedAttention]]:
    """Yield groups of oracles with a subject's weights, the likeliest group first."""
    if layers := subject.oracles():
        yield layers
        return
    yield subject.oracles(beside=True)
    assert subject.module is not None
    if not (subject.num_heads or number_of_heads(subject.module)):
        told = (replace(subject, num_heads=each) for each in _divisors(subject.width))
        layers = [*chain.from_iterable(each.oracles(beside=True) for each in told)]
        if layers:
            yield layers
            return
    # One token gets its own value, whatever is wrong with the scores.
    guesses = [*_guesses(subject)]
    fitting = [each for each, _ in guesses if recognizer.around(each) is not None]
    left = [(each, usual) for each, usual in guesses if each not in fitting]
    # If keys are used as values, only an unusual order seems to fit.
    yield [each for each, usual in left if usual] + fitting
    yield [each for each, usual in left if not usual]


def _guesses(subject: Subject) -> Iterator[tuple[FormedAttention, bool]]:
    """Yield the oracles that a layer's weights could belong to.

    With each, return whether parts of one projection are in the usual order.
    """
    assert subject.module is not None
    for inputs, usual in _inputs(subject, _weights(subject.module)):
        queries = inputs[0]
        assert queries is not None
        for num_heads in _heads(subject, queries):
            layer = make_layer(inputs, num_heads)
            if layer is not None and len(layer.q_proj.weight) == subject.width:
                yield layer, usual


def _heads(subject: Subject, q: Projection) -> Sequence[int]:
    assert subject.module is not None
    known = subject.num_heads or number_of_heads(subject.module)
    return [known] if known else _divisors(len(q[0]))


def _divisors(width: int) -> list[int]:
    return [n for n in range(1, width) if width % n == 0]


def _weights(module: nn.Module) -> list[_Weights]:
    """Return all projections of a module in order, or none if it has other weights."""
    found: list[tuple[str, _Weights]] = []
    taken: set[nn.Parameter] = set()
    for name, each in chain(module.named_modules(), module.named_parameters()):
        own = each.parameters(recurse=False) if isinstance(each, nn.Module) else [each]
        parameters = tuple(own)
        if alternatives := () if taken & {*parameters} else tuple(meant_as(each)):
            found.append((name, _Weights(parameters, alternatives)))
            taken.update(parameters)
    beside = {*module.parameters()} - taken
    return _by_kind(found) if beside <= norm_weights(module) else []


def _by_kind(found: Sequence[tuple[str, _Weights]]) -> list[_Weights]:
    """Join the projections of single heads, whose names differ only in a number."""
    kinds: dict[tuple[str, ...], list[_Weights]] = {}
    for name, weights in found:
        parts_of_name = [each for each in name.split(".") if not each.isdigit()]
        kinds.setdefault((*parts_of_name,), []).append(weights)
    joint: list[_Weights] = []
    for each in kinds.values():
        shapes = {weights.alternatives[0][0].shape for weights in each}
        ((rows, columns),) = shapes if len(shapes) == 1 else ((1, 0),)
        if len(each) == 1 or rows >= columns:  # too wide to be single heads
            joint += each
            continue
        parameters = tuple(chain.from_iterable(one.parameters for one in each))
        columns_of = zip(*[one.alternatives for one in each], strict=True)
        joint.append(_Weights(parameters, tuple(map(joined, columns_of))))
    return joint


def _inputs(
    subject: Subject, weights: Sequence[_Weights]
) -> Iterator[tuple[list[Projection | None], bool]]:
    """Yield candidates for the projections to queries, keys and values and the last.

    With each, return whether parts of one projection are in the usual order.
    """
    if not 1 <= len(weights) <= 4:
        return
    straight = [_is_linear(subject, each.parameters) for each in weights]
    for order in permutations(range(len(weights))):
        # s: the output is linear (straight) in the weights; b: it is not (bent).
        # Queries and keys, which are not, come first.
        kinds = "".join("s" if straight[at] else "b" for at in order)
        for chosen in product(*[weights[at].alternatives for at in order]):
            if kinds == "bbss":
                yield [*chosen], False
            if kinds == "bbs":
                yield [*chosen, None], False
            last = chosen[-1] if kinds[-1] == "s" else None
            if kinds in ("bbs", "bb"):  # one projection to keys and values
                half = len(chosen[1][0]) // 2
                parts = cut(*chosen[1], [half, len(chosen[1][0]) - half])
                yield [chosen[0], *parts, last], True
                yield [chosen[0], *reversed(parts), last], False
            if kinds in ("bs", "b"):  # one projection to all
                yield from _stacked(subject, chosen[0], last)


def _stacked(
    subject: Subject, whole: Projection, last: Projection | None
) -> Iterator[tuple[list[Projection | None], bool]]:
    inner = len(whole[0]) // 3 if last is None else last[0].shape[1]
    for num_heads in _heads(subject, (whole[0][:inner], None)):
        for each in cuts(*whole, num_heads, inner):
            for at, order in enumerate(permutations(each)):
                yield [*order, last], at == 0


def _is_linear(subject: Subject, parameters: Sequence[nn.Parameter]) -> bool:
    """Return whether the output is linear in some weights."""
    quiet = subject.without_dropout()
    assert quiet.module is not None
    assert subject.module is not None
    names = {each: name for name, each in subject.module.named_parameters()}
    own = dict(quiet.module.named_parameters())
    x, outputs = sample(quiet), list[Tensor]()
    with torch.no_grad():
        for factor in (1.0, 2.0, 1.5):  # 1, 2 and 3 times the weights
            for each in parameters:
                own[names[each]].mul_(factor)
            outputs.append(quiet.run(x).nan_to_num())
    one, two, three = outputs
    return bool(close(quiet, three - two, two - one))
