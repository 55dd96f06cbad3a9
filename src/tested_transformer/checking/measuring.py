"""Measure what a layer adds to its scores for each pair of a query and a key.

Learned relative positions come in many forms: a number for each distance, a vector that
is multiplied by the query or the key, or both. All of them are linear in the query and
in the key, while attention itself multiplies the two. So a linear fit of the scores
tells them apart, whatever the layer calls them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.checks import LENGTH, close
from tested_transformer.checking.forms import FormedAttention, Terms
from tested_transformer.checking.projections import meant_as
from tested_transformer.checking.reading import scores_of
from tested_transformer.checking.subject import Subject

__all__ = ["Asked", "asked_for_terms", "measured", "other_parameters"]

_ROUNDING = 1e-8


def other_parameters(
    parameters: Sequence[nn.Parameter], layer: FormedAttention
) -> list[nn.Parameter]:
    """Return the parameters that are not among the projections of a layer.

    Args:
        parameters: The parameters of somebody else's layer, without those of its norms.
        layer: A layer with its projections.
    """
    held = torch.cat([each.detach().flatten() for each in layer.parameters()])
    return [
        each
        for each in parameters
        if each.numel() and not (held == each.detach().double().flatten()[0]).any()
    ]


@dataclass(frozen=True)
class _Steps:
    """What an oracle computes on the way to its output."""

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor


@dataclass(frozen=True)
class Asked:
    """What the terms of a subject are measured with.

    Args:
        x: Sequences.
        causal: Whether later positions were forbidden.
        scores: The subject's scores, (B, H, T, T).
        learned: The parameters that the terms may come from.
    """

    x: Tensor
    causal: bool
    scores: Tensor
    learned: Sequence[nn.Parameter]


@torch.no_grad()
def asked_for_terms(
    subject: Subject, layer: FormedAttention, learned: Sequence[nn.Parameter]
) -> Asked | None:
    """Return the scores of a subject, unless it cannot have terms.

    Args:
        subject: The attention, without dropout.
        layer: A layer with its projections.
        learned: The subject's other parameters.
    """
    if not learned:
        return None
    # A number of sequences that is no number of heads, and enough for a fit.
    count = 2 * layer.head_dim + layer.num_heads + 2 * LENGTH
    generator = torch.Generator().manual_seed(19)
    x = torch.randn(count, LENGTH, subject.width, generator=generator).double()
    causal = not subject.unmasked
    scores = scores_of(subject, x, layer.num_heads, causal=causal)
    return None if scores is None else Asked(x, causal, scores, learned)


@torch.no_grad()
def measured(
    subject: Subject, layer: FormedAttention, asked: Asked, *, surely: bool = True
) -> tuple[Terms, bool] | None:
    """Return the terms that explain how a subject's scores differ from a layer's.

    They depend on nothing but the distance between query and key. With them, return
    whether they also explain the output.

    Args:
        subject: The attention, without dropout.
        layer: A layer with its projections, and a form without terms.
        asked: The result of ``asked_for_terms``.
        surely: Whether the terms have to be as large as parameters that are not among
            the layer's say.
    """
    x, causal, scores = asked.x, asked.causal, asked.scores
    steps = _steps_of(layer, x, causal)
    if scores.shape != steps.scores.shape:
        return None
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    seen = seen.tril() if causal else seen
    terms = _fitted(subject, steps, scores, seen)
    if terms is None or not terms or not _is_relative(terms, seen):
        return None
    weights = layer.steps.weigh(scores, seen)
    mixed = layer.steps.mix(layer, layer.steps.merge(weights @ steps.v))
    apart = subject.run(x.to(subject.dtype), causal=causal).double() - mixed
    whole = bool(apart.abs().max() < _ROUNDING)
    if not whole and apart.isfinite().all():
        added = replace(terms, of_values=_of_values(layer, weights, apart))
        whole = _is_relative(added, seen)
        terms = added if whole else terms
    if surely and not _come_from(asked.learned, terms, seen):
        return None
    return terms, whole


def _steps_of(layer: FormedAttention, x: Tensor, causal: bool) -> _Steps:
    """Return what a layer computes on the way to its output."""
    kept: dict[str, Tensor] = {}
    steps = layer.steps

    def score(q: Tensor, k: Tensor) -> Tensor:
        kept.update(q=q, k=k, scores=steps.score(q, k))
        return kept["scores"]

    def attend(layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Any:
        kept.update(v=v)
        return steps.attend(layer, q, k, v, mask)

    layer.steps = replace(steps, score=score, attend=attend)
    layer(x, causal=causal)
    layer.steps = steps
    return _Steps(**kept)


def _fitted(
    subject: Subject, steps: _Steps, scores: Tensor, seen: Tensor
) -> Terms | None:
    """Return the terms in some scores, or ``None`` if a linear fit does not find them.

    Args:
        subject: The attention.
        steps: What the layer computes without terms.
        scores: The subject's scores, (B, H, T, S).
        seen: Which keys a query may read, (T, S).
    """
    size, length = steps.q.shape[-1], len(seen)
    parts = [
        steps.scores[..., None],
        steps.q[..., :, None, :].expand(-1, -1, -1, length, -1),
        steps.k[..., None, :, :].expand(-1, -1, length, -1, -1),
        torch.ones_like(scores)[..., None],
    ]
    known = torch.cat(parts, dim=-1)[:, :, seen].permute(1, 2, 0, 3)
    wanted = scores[:, :, seen].permute(1, 2, 0)[..., None]
    if not wanted.isfinite().all():
        return None
    # If no numbers fit the last query and the first key in one head, none fit all.
    for one, other in ((known[:1, -length], wanted[:1, -length]), (known, wanted)):
        found = torch.linalg.lstsq(one, other).solution
        if not close(subject, one @ found, other):
            return None
    of_queries, of_keys, alone = (
        found.new_zeros(len(found), length, length, each) for each in (size, size, 1)
    )
    parts = found[..., 0].split([1, size, size, 1], dim=-1)
    for whole, part in zip((of_queries, of_keys, alone), parts[1:], strict=True):
        whole[:, seen] = part
    return Terms(of_queries=of_queries, of_keys=of_keys, alone=alone[..., 0])


def _of_values(layer: FormedAttention, weights: Tensor, apart: Tensor) -> Tensor:
    """Return what is added to the values, given how far the output is apart."""
    last = layer.o_proj.weight
    heads = torch.linalg.lstsq(last, apart.flatten(0, 1).mT).solution.mT
    heads = heads.reshape(*apart.shape[:2], layer.num_heads, -1)
    heads = heads.permute(2, 1, 0, 3)
    return torch.linalg.lstsq(weights.permute(1, 2, 0, 3), heads).solution


def _come_from(learned: Sequence[nn.Parameter], terms: Terms, seen: Tensor) -> bool:
    """Return whether terms are as large as some parameters say.

    What is multiplied by queries or keys is divided by the root of the head's width,
    like all products. It is a parameter, or a projection of sines and cosines, half of
    whose squares sum to half their number. What is added to the scores is a parameter,
    or a parameter times what is multiplied by queries.
    """
    size = terms.of_queries.shape[-1]
    numbers = torch.cat([each.double().flatten() for each in learned])
    numbers = torch.cat([numbers, numbers.new_zeros(1)]).sort().values
    of_queries, of_keys = (
        each[:, seen] * size**0.5 for each in (terms.of_queries, terms.of_keys)
    )
    alone = terms.alone[:, seen]
    return (
        (_among(numbers, of_queries) or _of_sines(learned, of_queries))
        and _among(numbers, of_keys)
        and (_among(numbers, alone) or _products(learned, terms, seen))
        and (terms.of_values is None or _among(numbers, terms.of_values[:, seen]))
    )


def _among(numbers: Tensor, found: Tensor) -> bool:
    """Return whether all that was found is among some sorted numbers."""
    found = found.flatten()
    after = torch.searchsorted(numbers, found).clamp(1, len(numbers) - 1)
    near = [(numbers[at] - found).abs() for at in (after - 1, after)]
    return bool((torch.minimum(*near) < _ROUNDING * (1 + found.abs())).all())


def _of_sines(learned: Sequence[nn.Parameter], found: Tensor) -> bool:
    """Return whether vectors for pairs are projections of sines and cosines.

    Args:
        learned: Parameters, of which one may be the projection.
        found: A vector for each head and each pair of tokens, (H, P, d_k).
    """
    whole = found.transpose(0, 1).flatten(1).mT
    size = len(whole)
    biases = [each.double().flatten() for each in learned if each.numel() == size]
    weights = [weight.double() for each in learned for weight, _ in meant_as(each)]
    for weight, bias in product(weights, [whole.new_zeros(size), *biases]):
        if len(weight) != size:
            continue
        wanted = whole - bias[:, None]
        sines = torch.linalg.lstsq(weight, wanted).solution
        squares = 2 / len(sines) * sines.square().sum(dim=0)
        fits = torch.allclose(weight @ sines, wanted, atol=_ROUNDING)
        if fits and torch.allclose(squares, torch.ones_like(squares), atol=1e-4):
            return True
    return False


def _products(learned: Sequence[nn.Parameter], terms: Terms, seen: Tensor) -> bool:
    """Return whether terms are a parameter times what is multiplied by queries."""
    shape = len(terms.of_queries), terms.of_queries.shape[-1]
    return any(
        torch.allclose(
            torch.einsum("htsd,hd->hts", terms.of_queries, each.double().view(shape))[
                :, seen
            ],
            terms.alone[:, seen],
            atol=_ROUNDING,
        )
        for each in learned
        if each.numel() == shape[0] * shape[1]
    )


def _is_relative(terms: Terms, seen: Tensor) -> bool:
    """Return whether terms depend on nothing but the distance of query and key.

    A number that all keys of a query share has no effect.
    """
    return all(
        torch.allclose(one[..., both, :], other[..., both, :], atol=_ROUNDING)
        for one, other, both in _shifted(terms, seen)
    )


def _shifted(terms: Terms, seen: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the terms of all pairs, those of pairs one token later, and which count."""
    both = seen[:-1, :-1] & seen[1:, 1:]
    for each in (terms.of_queries, terms.of_keys, terms.alone[..., None]):
        own = each.diagonal(dim1=1, dim2=2).mT[:, :, None]
        yield (each - own)[:, :-1, :-1], (each - own)[:, 1:, 1:], both
    if terms.of_values is not None:
        yield terms.of_values[:, :-1, :-1], terms.of_values[:, 1:, 1:], both
