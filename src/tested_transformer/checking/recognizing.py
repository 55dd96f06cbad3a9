"""Which form a layer has: positions, norms, a window, found by trying.

What is tried is read off the layer: its tables of angles, its settings, its norms, and
whether the order of what it reads matters. A form counts if attention in the open that
has it gives the layer's outputs.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checking.checks import (
    LENGTH,
    close,
    permutation,
    sample,
)
from tested_transformer.checking.forms import (
    Form,
    FormedAttention,
    Norm,
    Norms,
    Rotary,
    alibi_slopes_of,
)
from tested_transformer.checking.reading import reads
from tested_transformer.checking.settings import BASES, EPS, Settings
from tested_transformer.checking.subject import Subject
from tested_transformer.positions import PAIRINGS

__all__ = ["Recognizer", "doubts_about"]

_FILLS = (
    *((-torch.inf, False), (-1e9, False), (-1e9, True)),
    *((-1e4, False), (-1e4, True)),
)
# How far apart answers may be that differ in what a norm adds before it divides.
_ROUGHLY = 1e-3


class Recognizer:
    """Tries which form of attention, with given projections, a subject has.

    Args:
        subject: What is to be explained.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject.without_dropout()
        self.settings = Settings(subject.module)
        self.x = sample(self.subject).double()
        # Of the forms, those that matter if the order of what is read does.
        asked = replace(self.subject, guessed=())
        self.order_matters = permutation(asked) is not None
        self.window = _window(self.subject)
        ways = (True,) * subject.causal + (False,) * subject.unmasked
        self.answers = {way: self._run(self.x, way) for way in ways}
        self.alone = self._run(self.x[:, :1], ways[0])

    def _run(self, x: Tensor, causal: bool) -> Tensor:
        return self.subject.run(x.to(self.subject.dtype), causal=causal).detach()

    @torch.no_grad()
    def around(self, layer: FormedAttention) -> Form | None:
        """Return what a layer has around it, if a token alone then gets its value.

        Whatever the scores are, it does.
        """
        layer.eval()
        norms = [None, *self.settings.outer_norms(self.subject.width)]
        for residual, before, after in product((False, True), norms, norms):
            form = Form(residual=residual, before=before, after=after)
            layer.take(form)
            with suppress(RuntimeError, ValueError):  # of other shapes
                if close(self.subject, self.alone, layer(self.x[:, :1])):
                    return form
        return None

    def explains(self, layer: FormedAttention) -> bool:
        """Give a layer the form that explains the subject; return whether one does."""
        around = self.around(layer)
        for form in self._forms(layer, around) if around is not None else ():
            layer.take(_within(around, form))
            if self._alike(layer, form.slack):
                return True
        layer.take(Form())
        return False

    @torch.no_grad()
    def _gap(self, layer: FormedAttention, form: Form) -> float:
        layer.take(form)
        causal, answer = next(iter(self.answers.items()))
        return float((layer(self.x, causal=causal) - answer).abs().max())

    @torch.no_grad()
    def _alike(self, layer: FormedAttention, slack: float) -> bool:
        return all(
            close(self.subject, answer, layer(self.x, causal=causal), slack)
            for causal, answer in self.answers.items()
        )

    def likely(self, layer: FormedAttention) -> list[Form]:
        """Return the forms that a layer with a bug was probably meant to have."""
        settings, around = self.settings, self.around(layer)
        outer = around is not None and (around.before or around.after)
        found = None if outer else next(settings.norms(layer), None)
        # If one of the two is missing, it was probably meant to be like the other.
        norms: Norms | None = None
        if found is not None:
            norms = found[0] or found[1], found[1] or found[0]
        orders = (True, False) if norms else (True,)
        # Queries that are turned and keys that are not leave no trace of an order.
        bases, widths = settings.bases or BASES[:1], settings.widths(layer.head_dim)
        positions: list[dict[str, Any]] = [{}]
        positions += [
            {"rotary": Rotary(pairing=pairing, base=base, width=width)}
            for pairing, base, width in product(PAIRINGS, bases, widths[:1])
        ]
        if self.order_matters:
            positions += [
                {"slopes": each, "symmetric": self.subject.opens}
                for each in alibi_slopes_of(layer.num_heads)
            ]
        forms = [
            _within(around, Form(**each, **self._rest, norms=norms, norms_first=first))
            for first, each in product(orders, positions)
        ]
        # And where forbidden scores stay, for what comes after them to see.
        return forms + [
            replace(form, fill=fill, filled_by_adding=adding)
            for form in (forms[:1] if not settings.bases else forms[:3])
            for fill, adding in _FILLS
        ]

    def is_sure(self, form: Form) -> bool:
        """Return whether a layer says what is in a form."""
        turned = form.rotary is not None
        return not turned or bool(self.settings.bases)

    @property
    def _rest(self) -> dict[str, Any]:
        settings = self.settings
        return {"window": self.window, "cap": settings.cap, "scale": settings.scale}

    def _positions(self, layer: FormedAttention) -> Iterator[dict[str, Any]]:
        yield {}
        if not self.order_matters:
            return
        settings = self.settings
        widths = settings.widths(layer.head_dim)
        bases = [*dict.fromkeys([*settings.bases, *BASES])]
        for back, width, base, pairing in product(
            (False, True), widths, bases, PAIRINGS
        ):
            turned = Rotary(pairing=pairing, base=base, width=width, backwards=back)
            yield {"rotary": turned}
        for slopes in alibi_slopes_of(layer.num_heads):
            for symmetric in (False, True)[: 1 + self.subject.unmasked]:
                yield {"slopes": slopes, "symmetric": symmetric}

    def _forms(self, layer: FormedAttention, around: Form) -> Iterator[Form]:
        """Yield what could be the form of a layer, the likeliest first."""
        positions = [*self._positions(layer)]
        found = [*self.settings.norms(layer)]
        norms = [each for each in found if all(each)]
        for norm, first, each in product(norms, (True, False), positions):
            yield Form(**each, **self._rest, norms=norm, norms_first=first)
        for each in positions:
            yield Form(**each, **self._rest)
        if norms:
            return
        # Norms without parameters: which one, is found roughly, and then exactly.
        for kind, by_head, first in product(
            ("rms", "layer"), (True, False), (True, False)
        ):
            if kind == "rms" and not first:
                continue  # turning changes no length
            for each in positions:
                norm = Norm(kind=kind, eps=EPS[0], by_head=by_head)
                form = Form(**each, **self._rest, norms=(norm, norm), norms_first=first)
                layer.take(_within(around, form))
                if not self._alike(layer, _ROUGHLY):
                    continue
                norms = [(replace(norm, eps=eps),) * 2 for eps in EPS]
                forms = [replace(form, norms=each) for each in norms]
                yield min(forms, key=lambda each: self._gap(layer, each))


def _within(around: Form | None, form: Form) -> Form:
    """Return a form with what another has around it."""
    if around is None:
        return form
    outer = {"residual": around.residual, "before": around.before}
    return replace(form, **outer, after=around.after)


def _window(subject: Subject) -> int | None:
    """Return how many tokens are read at most, if that is fewer than there are."""
    if not subject.causal:
        return None
    found = reads(subject)
    for window in range(2, LENGTH):
        if torch.equal(found.tril(), torch.ones_like(found).tril().triu(1 - window)):
            return window
    return None


def doubts_about(subject: Subject, form: Form) -> Iterator[str]:
    """Yield what is odd about a form that explains a layer, and may be meant so."""
    settings = Settings(subject.module)
    if form.rotary is not None:
        if form.rotary.backwards:
            yield (
                "it turns queries and keys the other way than most: right if it was "
                "trained so, wrong with the weights of others"
            )
        if form.rotary.base not in {*BASES, *settings.said_bases}:
            yield f"its angles have the base {form.rotary.base:g}, which nothing says"
    elif settings.tables and form.slopes is None:
        yield f"it has {settings.tables[0]}, and attends without positions"
    if form.window is not None and not settings.says_window(form.window):
        yield (
            f"it reads the last {form.window} tokens only, and no attribute of it "
            "says so"
        )
