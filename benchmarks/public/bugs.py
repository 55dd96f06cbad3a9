"""Draw the bugs that are put into a module, from all places where a rule applies.

A change counts as a bug unless the module then crashes, when it is made or called as in
its project, or still computes the same. A seed draws some of the bugs.
"""

import copy
import inspect
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.public.modules import Module, Trees, call_of, make, take
from benchmarks.public.rules import RULES, Rule, rewritten

__all__ = ["SEED", "Bug", "Call", "calls", "draw_bugs", "make_with", "same"]

SEED = 0
DRAWN, OF_ONE_RULE = 10, 2
_LENGTHS = (3, 11)
_TOLERANCE = 1e-9

Call = Callable[[Any, Tensor], Tensor]
"""Calls a layer, or its adapter, with features."""


@dataclass(frozen=True)
class Bug:
    """A bug in a module.

    Args:
        rule: The rule that makes it.
        place: The index of the place, among those where the rule applies.
        trees: The source with the bug.
    """

    rule: Rule
    place: int
    trees: Trees = field(hash=False, compare=False, repr=False)


def draw_bugs(
    name: str, module: Module, folder: Path, *, count: int = DRAWN
) -> list[Bug]:
    """Return bugs for a module, drawn at random, at most two of one rule.

    Args:
        name: The name of the module, which seeds the draw.
        module: The module.
        folder: The folder with the checkouts.
        count: The number of bugs; fewer are returned if there are not enough.
    """
    candidates = [*_candidates(take(module, folder))]
    random.Random(f"{SEED} {name}").shuffle(candidates)
    layer, names = make(module, folder)
    right = call_of(module, layer.double(), names)
    ways = calls(module, right)
    found: list[Bug] = []
    drawn: Counter[str] = Counter()
    for bug in candidates:
        if len(found) == count:
            break
        if drawn[bug.rule.name] < OF_ONE_RULE and _is_bug(module, folder, bug, ways):
            found.append(bug)
            drawn[bug.rule.name] += 1
    return found


def make_with(
    module: Module, folder: Path, trees: Trees | None = None, *, adapted: bool = True
) -> Callable[..., Any]:
    """Make the layer of a module, with the same weights with and without a bug.

    Args:
        module: The module.
        folder: The folder with the checkouts.
        trees: Its source with a bug; by default without.
        adapted: Whether to return its adapter, if it has one, instead of the layer.
    """
    layer, names = make(module, folder, trees)
    if trees is not None:
        right = dict(make(module, folder)[0].named_parameters())
        with torch.no_grad():
            for name, each in layer.named_parameters():
                each.copy_(right[name])
    return call_of(module, layer, names) if adapted else layer


def _candidates(trees: Trees) -> Iterator[Bug]:
    for rule in RULES.values():
        place = 0
        for file, tree in trees.items():
            for at, part in enumerate(tree.body):
                for new in rewritten(rule, part):
                    changed = copy.copy(tree)
                    changed.body = [*tree.body[:at], new, *tree.body[at + 1 :]]
                    yield Bug(rule, place, {**trees, file: changed})
                    place += 1


def _is_bug(module: Module, folder: Path, bug: Bug, ways: Sequence[Call]) -> bool:
    """Return whether a changed module runs, and computes something else."""
    try:
        right, wrong = (
            _doubled(make_with(module, folder, trees)) for trees in (None, bug.trees)
        )
        return not all(
            same(way, right, wrong, length, module.d_model, training=training)
            for way in ways
            for length in _LENGTHS
            for training in (False, True)
        )
    except Exception:  # an author would have noticed any error
        return False


def _doubled(attention: Callable[..., Any]) -> Callable[..., Any]:
    _layer_of(attention).double()
    return attention


def _layer_of(attention: Callable[..., Any]) -> nn.Module:
    if isinstance(attention, nn.Module):
        return attention
    inside = inspect.getclosurevars(attention).nonlocals.values()
    return next(each for each in inside if isinstance(each, nn.Module))


def same(
    way: Call,
    right: Callable[..., Any],
    wrong: Callable[..., Any],
    length: int,
    width: int,
    *,
    training: bool,
) -> bool:
    """Return whether two attentions have equal outputs and gradients."""
    found: list[tuple[Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(length)
    x, kept = torch.randn(2, 2, length, width, generator=generator).double()
    for attention in (right, wrong):
        _layer_of(attention).train(training)
        torch.manual_seed(5)
        leaf = x.clone().requires_grad_()
        output = way(attention, leaf)
        (gradient,) = torch.autograd.grad((output.double() * kept).sum(), leaf)
        found.append((output.detach(), gradient))
    return all(
        torch.allclose(one, other, rtol=0, atol=_TOLERANCE, equal_nan=True)
        for one, other in zip(*found, strict=True)
    )


def calls(module: Module, attention: Callable[..., Any]) -> list[Call]:
    """Return the ways in which a project can call its module.

    They are the plain call, a call with a mask that makes the module causal, and one
    with a mask that hides padding, in the first form of a mask that works.
    """
    _layer_of(attention).eval()
    first = module.arguments.get("batch_first") is not False
    forward = attention.forward if isinstance(attention, nn.Module) else attention
    parameters = inspect.signature(forward).parameters
    sequences = _sequences([*parameters.values()])
    found: list[Call] = []
    plain = _call(sequences, {}, first=first)
    if _works(plain, attention, module.d_model):
        found.append(plain)
    masks = [name for name in parameters if "mask" in name or "causal" in name]
    for wanted in (_is_causal, _hides_padding):
        for way in _masked(sequences, masks, first=first):
            if _works(way, attention, module.d_model) and (
                wanted(way, attention, module.d_model)
            ):
                if not (wanted is _is_causal and module.mask == "causal"):
                    found.append(way)
                break
    if not found:
        raise ValueError(f"{module.repository} cannot be called in any way tried")
    return found


def _sequences(parameters: Sequence[inspect.Parameter]) -> int:
    """Return how many sequences of features a layer takes."""
    count = 0
    for each in parameters[:3]:
        if "mask" in each.name or each.kind is each.VAR_KEYWORD:
            break
        named = re.fullmatch("k|v|keys?|values?", each.name, re.IGNORECASE)
        if each.default is not each.empty and not named:
            break
        count += 1
    return 3 if count == 3 else 1


def _call(
    sequences: int, options: dict[str, Callable[[Tensor], Any]], *, first: bool
) -> Call:
    def way(attention: Callable[..., Any], x: Tensor) -> Tensor:
        given = {name: each(x) for name, each in options.items()}
        features = x if first else x.transpose(0, 1)
        output = attention(*[features] * sequences, **given)
        if isinstance(output, tuple | list):
            output = output[0]
        return output if first else output.transpose(0, 1)

    return way


def _masked(sequences: int, masks: Sequence[str], *, first: bool) -> Iterator[Call]:
    """Yield calls with causal masks and with padding masks, in all forms."""
    for name in masks:
        yield _call(sequences, {name: lambda x: True}, first=first)
        for allowed in (_triangle, _real):
            for shape in (_as_four, _as_three, _as_two, _as_keys):
                for meaning in (_attend, _ignore, _add):
                    for others in ([], [each for each in masks if each != name]):
                        options = {name: _mask(allowed, shape, meaning)}
                        options |= dict.fromkeys(others, lambda x: None)
                        yield _call(sequences, options, first=first)


def _mask(
    allowed: Callable[[Tensor], Tensor],
    shape: Callable[[Tensor], Tensor],
    meaning: Callable[[Tensor], Tensor],
) -> Callable[[Tensor], Tensor]:
    return lambda x: meaning(shape(allowed(x)))


def _triangle(x: Tensor) -> Tensor:
    return torch.ones(len(x), x.shape[1], x.shape[1]).tril().bool()


def _real(x: Tensor) -> Tensor:
    """Return a mask that hides the last token of the second sequence."""
    mask = torch.ones(len(x), x.shape[1], x.shape[1]).bool()
    mask[1, :, -1] = False
    return mask


def _as_four(mask: Tensor) -> Tensor:
    return mask[:, None]


def _as_three(mask: Tensor) -> Tensor:
    return mask


def _as_two(mask: Tensor) -> Tensor:
    return mask[0]


def _as_keys(mask: Tensor) -> Tensor:
    return mask[:, 0]


def _attend(mask: Tensor) -> Tensor:
    return mask


def _ignore(mask: Tensor) -> Tensor:
    return ~mask


def _add(mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).masked_fill(~mask, -1e30).double()


def _works(way: Call, attention: Callable[..., Any], width: int) -> bool:
    with suppress(Exception):
        for length in _LENGTHS:
            x = torch.ones(2, length, width).double().cumsum(-1).sin()
            output = way(attention, x)
            if output.shape != x.shape or not output.isfinite().all():
                return False
        return True
    return False


def _is_causal(way: Call, attention: Callable[..., Any], width: int) -> bool:
    """Return whether outputs depend on earlier tokens, but not on later ones."""
    x = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(0)).double()
    later, earlier = x.clone(), x.clone()
    later[:, 3], earlier[:, 0] = x[:, 4], x[:, 4]
    right = way(attention, x)
    still = torch.allclose(right[:, :3], way(attention, later)[:, :3])
    return still and not torch.allclose(right[:, 1:], way(attention, earlier)[:, 1:])


def _hides_padding(way: Call, attention: Callable[..., Any], width: int) -> bool:
    """Return whether the last token is hidden in the second sequence only."""
    x = torch.randn(2, 5, width, generator=torch.Generator().manual_seed(0)).double()
    changed = x.clone()
    changed[:, -1] = x[:, 0]
    right, after = way(attention, x)[:, :4], way(attention, changed)[:, :4]
    return torch.allclose(right[1], after[1]) and not torch.allclose(right[0], after[0])
