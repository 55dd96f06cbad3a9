"""Recognize the form of a layer, such as positions, norms or a window, by trying.

The candidates come from the layer: its tables of angles, its settings, its norms, and
whether the order of the tokens matters. A form counts as found if reference attention
with this form returns the layer's outputs.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.checks import (
    LENGTH,
    close,
    permutation,
    sample,
)
from tested_transformer.checking.exhibits import KNOWN, Exhibit
from tested_transformer.checking.forms import (
    LOWEST,
    ROUNDING,
    Added,
    Factor,
    Form,
    FormedAttention,
    Gate,
    Mixing,
    Norm,
    Rotary,
    Terms,
    alibi_slopes_of,
)
from tested_transformer.checking.measuring import (
    asked_for_terms,
    measured,
    other_parameters,
)
from tested_transformer.checking.naming import own_name
from tested_transformer.checking.projections import Projection, meant_as, norm_weights
from tested_transformer.checking.reading import angles_in, reads, run_with_scores
from tested_transformer.checking.settings import BASES, EPS, Settings
from tested_transformer.checking.subject import Subject
from tested_transformer.positions import PAIRINGS

__all__ = ["Recognizer", "doubts_about", "explains_one_token"]

_FILLS = (
    *((-torch.inf, False), (-1e9, False), (-1e9, True)),
    *((-1e4, False), (-1e4, True), (LOWEST, True)),
)
# The bugs that change the output of a token that attends only to itself.
_OF_ONE_TOKEN = [
    each
    for each in KNOWN.values()
    if each.step in ("project", "attend", "weigh", "merge", "mix")
]
# The bugs beside which terms can be measured.
_STEPS = ("project", "split", "attend", "weigh")
_BESIDE_TERMS = [each for each in KNOWN.values() if each.step in _STEPS]
# The tolerance for answers that differ only in the eps of a norm.
_ROUGHLY = 1e-3


class Recognizer:
    """Finds the form of a subject, given layers with its projections.

    Args:
        subject: The attention to explain.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject.without_dropout()
        self.settings = Settings(subject.module, angles_in(self.subject))
        module = self.subject.module
        norms = set() if module is None else norm_weights(module)
        own = [] if module is None else [*module.parameters()]
        self.parameters = [each for each in own if each not in norms]
        self.others: dict[FormedAttention, list[nn.Parameter]] = {}
        self.outer_norms = self.settings.outer_norms(subject.width)
        self.x = sample(self.subject).double()
        # Without its oracles, so that the check applies whatever they know of order.
        asked = replace(self.subject, guessed=(), known=None)
        self.order_matters = permutation(asked) is not None
        self.window = _window(self.subject)
        ways = (True,) * subject.causal + (False,) * subject.unmasked
        self.answers = {way: self._run(self.x, way) for way in ways}
        # One token of one sequence, so that no softmax over another axis matters.
        self.alone, score = run_with_scores(lambda: self._run(self.x[:1, :1], ways[0]))
        # A score of zero says nothing: it may be what is left after its maximum.
        self.score = score if score is not None and score.any() else None

    def _run(self, x: Tensor, causal: bool) -> Tensor:
        return self.subject.run(x.to(self.subject.dtype), causal=causal).detach()

    @torch.no_grad()
    def around(
        self, layer: FormedAttention, bugs: Sequence[Exhibit | None] = (None,)
    ) -> Form | None:
        """Return the residual and outer norms that explain the output of one token.

        One token attends only to itself, so its output does not depend on scores.

        Args:
            layer: A layer with the subject's projections. It keeps its form.
            bugs: The exhibits to try in it; ``None`` is a layer without a bug.
        """
        layer, form = layer.eval(), layer.form
        try:
            return self._around(layer, bugs)
        finally:
            layer.take(form)

    def _around(
        self, layer: FormedAttention, bugs: Sequence[Exhibit | None]
    ) -> Form | None:
        norms = [None, *self.outer_norms]
        gates, mixings = self._gates(layer), [None, *self._mixings(layer)]
        first, last = [*norms, *self._added(layer)], [*norms, *self._of_output(layer)]
        x, outputs = self.x[:1, :1], dict[Any, Tensor | None]()
        for bug, residual, before, after, gate, mixing in product(
            bugs, (False, True), first, last, [None, *gates], mixings
        ):
            form = Form(before=before, gate=gate, weights_mixed=mixing)
            # Residuals and norms after it need no further run of the layer.
            run = bug and bug.name, id(before), id(gate), id(mixing)
            if run not in outputs:
                layer.take(form, bug)
                outputs[run] = self._tried(layer, x)
            output, form = outputs[run], replace(form, residual=residual, after=after)
            if output is not None and close(
                self.subject, self.alone, form.outside(x, output)
            ):
                return form
        return None

    def _tried(
        self, layer: FormedAttention, x: Tensor, *, causal: bool = False
    ) -> Tensor | None:
        """Return the output of a layer, or nothing if its shapes do not match."""
        with suppress(RuntimeError, ValueError):
            output = layer(x, causal=causal)
            return output if output.shape == x.shape else None
        return None

    @torch.no_grad()
    def explains_alone(self, layer: FormedAttention, slack: float) -> bool:
        """Return whether a layer, masked as the subject, agrees about one token.

        NaN agrees with NaN: a mask can hide the token from itself.
        """
        output = self._tried(layer, self.x[:1, :1], causal=next(iter(self.answers)))
        if output is None or not torch.equal(output.isnan(), self.alone.isnan()):
            return False
        alone, output = self.alone.nan_to_num(), output.nan_to_num()
        return bool(close(self.subject, alone, output, slack))

    def _others(self, layer: FormedAttention) -> list[nn.Parameter]:
        """Return the subject's parameters that are neither in a layer nor of norms."""
        if layer not in self.others:
            self.others[layer] = other_parameters(self.parameters, layer)
        return self.others[layer]

    def _projections(self, layer: FormedAttention) -> list[Projection]:
        """Return the projections of the subject that a layer does not have."""
        module, left = self.subject.module, {*self._others(layer)}
        if module is None or not left:
            return []
        found: list[Projection] = []
        for each in [*module.modules(), *left]:
            own = (
                {each} if isinstance(each, nn.Parameter) else {*each.parameters(False)}
            )
            if own and own <= left:
                found += meant_as(each)
        # Detached, so that a layer with them in its form can be copied.
        return [
            (weight.detach(), None if bias is None else bias.detach())
            for weight, bias in found
        ]

    def _gates(self, layer: FormedAttention) -> list[Gate]:
        """Return the gates that a layer could have."""
        sizes = len(layer.q_proj.weight), layer.num_heads
        return [
            Gate(kind=kind, weight=weight, bias=bias)
            for weight, bias in self._projections(layer)
            for kind in ("sigmoid", "silu")
            if weight.shape[1] == self.subject.width and len(weight) in sizes
        ]

    def _mixings(self, layer: FormedAttention) -> list[Mixing]:
        """Return the ways in which a layer could mix its heads."""
        shape = layer.num_heads, layer.num_heads
        found = self._projections(layer) if layer.num_heads > 1 else []
        return [each for each in found if each[0].shape == shape]

    def _added(self, layer: FormedAttention) -> list[Added]:
        """Return the tables of positions that a layer could add to its features."""
        module, width = self.subject.module, self.subject.width
        if module is None:
            return []
        found = [*self._others(layer), *module.buffers()]
        tables = [each.detach() for each in found if each.is_floating_point()]
        return [
            Added(table=each.reshape(-1, width))
            for each in tables
            if each.ndim > 1
            and each.shape[-1] == width
            and each.shape[-2] * width == each.numel() >= LENGTH * width
        ]

    def _of_output(self, layer: FormedAttention) -> list[Factor]:
        """Return the factors by which a layer could multiply its output."""
        return [
            Factor(weight=each.detach().flatten())
            for each in self._others(layer)
            if each.numel() == self.subject.width
        ]

    def explains(self, layer: FormedAttention) -> bool:
        """Give a layer the form that explains the subject; return whether one does.

        If none does, the layer keeps its form.
        """
        before = layer.form
        around, roughly = self.around(layer), None
        forms = self._forms(layer, around) if around is not None else iter(())
        for form in chain(self._with_terms(layer, around), forms):
            layer.take(_within(around, form))
            exactly, nearly = self._alike(layer, form.slack, ROUNDING)
            if exactly:
                return True
            if roughly is None and nearly:
                roughly = replace(layer.form, rounded=True)
        layer.take(roughly or before)
        return roughly is not None

    def is_explained_by(self, layer: FormedAttention) -> bool:
        """Return whether a layer as it is has the subject's outputs."""
        layer.eval()
        return any(self._alike(layer, ROUNDING))

    @torch.no_grad()
    def _gap(self, layer: FormedAttention, form: Form) -> float:
        layer.take(form)
        causal, answer = next(iter(self.answers.items()))
        return float((layer(self.x, causal=causal) - answer).abs().max())

    @torch.no_grad()
    def _alike(self, layer: FormedAttention, *slacks: float) -> list[bool]:
        """Return whether a layer has the subject's outputs, for each slack.

        It is run in the next way only if it may still have them.
        """
        alike = [True for _ in slacks]
        for causal, answer in self.answers.items():
            if any(alike):
                output = layer(self.x, causal=causal)
                near = [close(self.subject, answer, output, each) for each in slacks]
                alike = [
                    bool(one and two) for one, two in zip(alike, near, strict=True)
                ]
        return alike

    def likely(self, layer: FormedAttention) -> list[Form]:
        """Return the forms that a layer with a bug was likely meant to have."""
        settings, around = self.settings, self.around(layer)
        inside = self.outer_norms or self._others(layer)
        if around is None and inside:  # a bug may hide what is around it
            around = self.around(layer, _OF_ONE_TOKEN)
        outer = around is not None and (around.before or around.after)
        found = () if outer else settings.norms(layer)
        # If one of the two norms is missing, it was likely meant to be like the other.
        norms = [(one or other, other or one) for one, other in found] or [None]
        orders = (True, False) if norms != [None] else (True,)
        # Try rotary positions even if the order does not seem to matter: a bug, such
        # as rotating queries but not keys, can hide it.
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
        rests = self._rests(layer)
        given: list[dict[str, Any]] = [
            {"norms": both, **each, **rest, "norms_first": first}
            for both, rest, first, each in product(norms, rests, orders, positions)
        ]
        forms = [_within(around, Form(**each)) for each in given]
        forms = [*self._with_terms(layer, around, (None, *_BESIDE_TERMS)), *forms]
        # Also try forms that fill forbidden scores with a number: a bug in a later
        # step can depend on it.
        return forms + [
            replace(form, fill=fill, filled_by_adding=adding)
            for form in (forms[:1] if not settings.bases else forms[:3])
            for fill, adding in _FILLS
        ]

    def _with_terms(
        self,
        layer: FormedAttention,
        around: Form | None,
        bugs: Sequence[Exhibit | None] = (None,),
    ) -> Iterator[Form]:
        """Yield the form with the terms that are measured, if there are any.

        Args:
            layer: A layer with the subject's projections.
            around: The form that explains one token.
            bugs: The exhibits to try in it; ``None`` is a layer without a bug.
        """
        if not self.order_matters:
            return
        asked = asked_for_terms(self.subject, layer, self._others(layer))
        if asked is None:
            return
        for scale in dict.fromkeys((self.settings.scale, None)):
            form = Form(scale=scale)
            found: list[Terms] = []
            for bug in bugs:
                layer.take(_within(around, form), bug)
                with suppress(RuntimeError, ValueError):  # shapes do not match
                    terms = measured(self.subject, layer, asked, surely=bugs == (None,))
                    if terms is not None and terms[1]:
                        found = [terms[0]]
                        break
                    found += [terms[0]] if terms is not None else []
            yield from (replace(form, terms=each) for each in found[:1])

    def is_sure(self, form: Form) -> bool:
        """Return whether the layer's settings confirm a form's rotary positions."""
        turned = form.rotary is not None
        return not turned or bool(self.settings.bases)

    def _rests(self, layer: FormedAttention) -> list[dict[str, Any]]:
        """Return the windows, caps, scales and mixed scores that a layer could have."""
        settings = self.settings
        rest = {"window": self.window, "cap": settings.cap, "scale": settings.scale}
        size = layer.head_dim
        ones = torch.full((size,), size**-0.5, dtype=torch.float64)
        unit = Norm(kind="rms", eps=EPS[0], weight=ones)  # to vectors of length one
        scales = [
            {**rest, "scale": each, **norms}
            for each in self._factors(layer)
            for norms in ({}, {"norms": (unit, unit)})
        ]
        mixed = [{**rest, "scores_mixed": each} for each in self._mixings(layer)]
        return [rest, *mixed, *scales]

    def _factors(self, layer: FormedAttention) -> list[tuple[float, ...]]:
        """Return the factors of scores that parameters of the subject could stand for.

        They are numbers, for all heads or for each, or the logarithms of numbers.
        """
        found = [
            each.detach().double().flatten()
            for each in self._others(layer)
            if each.numel() in (1, layer.num_heads)
        ]
        largest = math.log(100)  # as in Swin
        made = [(each, each.exp(), each.clamp_max(largest).exp()) for each in found]
        # A factor of 1 may stand for something else, and hide that there is no scale.
        return [
            tuple(each.tolist())
            for each in chain.from_iterable(made)
            if not (each == 1).any()
        ]

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
        """Yield the forms that a layer could have, the likeliest first."""
        places = [*self._positions(layer)]
        plain = [Form(**each) for each in self._rests(layer)]
        norms = [each for each in self.settings.norms(layer) if all(each)]
        for norm, first in product(norms, (True, False)):
            formed = [replace(each, norms=norm, norms_first=first) for each in plain]
            yield from self._placed(layer, around, formed, places)
        yield from self._placed(layer, around, plain, places)
        if norms:
            return
        # A norm without parameters: find its kind roughly first, and then its eps.
        for kind, by_head, first in product(
            ("rms", "layer"), (True, False), (True, False)
        ):
            if kind == "rms" and not first:
                continue  # a rotation keeps the length, so the order does not matter
            norm = Norm(kind=kind, eps=EPS[0], by_head=by_head)
            both = {"norms": (norm, norm), "norms_first": first}
            formed = [replace(each, **both) for each in plain]
            for form in self._placed(layer, around, formed, places):
                layer.take(_within(around, form))
                if not any(self._alike(layer, _ROUGHLY)):
                    continue
                norms = [(replace(norm, eps=eps),) * 2 for eps in EPS]
                forms = [replace(form, norms=each) for each in norms]
                yield min(forms, key=lambda each: self._gap(layer, each))

    def _placed(
        self,
        layer: FormedAttention,
        around: Form,
        forms: Sequence[Form],
        places: Sequence[dict[str, Any]],
    ) -> Iterator[Form]:
        """Yield forms with the positions that the score of one token allows.

        The distance is zero, so it has no rotation; but slopes may count from one.
        """
        for form in forms:
            may = self._may_score(layer, _within(around, form))
            for each in places:
                if may or "slopes" in each:
                    yield replace(form, **each)

    def _may_score(self, layer: FormedAttention, form: Form) -> bool:
        """Return whether one token may have roughly the score that a form gives it."""
        if self.score is None:
            return True
        layer.take(form)
        _, score = run_with_scores(lambda: layer(self.x[:1, :1]))
        if score is None or score.shape != self.score.shape:
            return True
        return bool(close(self.subject, self.score, score, _ROUGHLY))


def explains_one_token(subject: Subject) -> bool:
    """Return whether an oracle explains the output of one token, perhaps with a bug."""
    recognizer, bugs = Recognizer(subject), (None, *_OF_ONE_TOKEN)
    return any(recognizer.around(each, bugs) is not None for each in subject.oracles())


def _within(around: Form | None, form: Form) -> Form:
    """Return a form with what another has that does not depend on scores."""
    if around is None:
        return form
    outer = ("residual", "before", "after", "gate", "weights_mixed")
    return replace(form, **{name: getattr(around, name) for name in outer})


def _window(subject: Subject) -> int | None:
    """Return the size of the window, if the subject has one."""
    if not subject.causal:
        return None
    found = reads(subject)
    for window in range(2, LENGTH):
        if torch.equal(found.tril(), torch.ones_like(found).tril().triu(1 - window)):
            return window
    return None


def doubts_about(subject: Subject, form: Form) -> Iterator[str]:
    """Yield what is unusual about a form that explains a layer, and may be a bug."""
    settings = Settings(subject.module)
    if form.rotary is not None:
        if form.rotary.backwards:
            yield (
                "it rotates queries and keys the other way than most: right if it was "
                "trained so, wrong with weights from elsewhere"
            )
        if form.rotary.base not in {*BASES, *settings.said_bases}:
            base = form.rotary.base
            yield f"its angles have the base {base:g}, and no attribute of it says so"
    elif settings.tables and form.slopes is None:
        table = settings.tables[0]
        name = table if subject.module is None else own_name(subject.module, table)
        yield f"it has {name or table}, but attends without positions"
    if form.window is not None and not settings.says_window(form.window):
        yield (
            f"it reads only the last {form.window} tokens, and no attribute of it "
            "says so"
        )
