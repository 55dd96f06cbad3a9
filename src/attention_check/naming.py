"""Which known bug gives the answers that a layer gives?

A known bug is put into the reference attention. If the two then agree in every use, the
layer has that bug, or one that cannot be told from it.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attention_check.checks import CHECKS, LIMITS, PARTS, SINGLE, apart, gradients
from attention_check.exhibits import KNOWN, Exhibit
from attention_check.reference import Reference
from attention_check.steps import Steps
from attention_check.subject import (
    Adapted,
    Dropout,
    NotAskedError,
    Subject,
    Use,
    paddings,
)

__all__ = ["Naming"]

# A factor of the scores is looked for among these, times the right one.
_FACTORS = 2.0 ** torch.arange(-8, 8.5, 0.5, dtype=torch.float64)


def _with_steps(reference: Reference, **steps: Any) -> Reference:
    """Return a reference with the same parameters that takes some other steps."""
    twin = copy.copy(reference)
    twin.steps = replace(reference.steps, **steps)
    return twin


def _once(project: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that projects the same features only once in a row.

    References with a bug share their parameters, so most of them project alike.
    """
    last: list[Any] = []

    def projected(layer: Reference, x: Tensor, context: Tensor) -> Any:
        if torch.is_grad_enabled():
            return project(layer, x, context)
        if not (last and torch.equal(last[0], x) and torch.equal(last[1], context)):
            last[:] = x, context, project(layer, x, context)
        return last[2]

    return projected


def _keep(weights: Tensor, p: float, training: bool) -> Tensor:
    return weights


def _forms(exhibit: Exhibit, own: Steps) -> list[dict[str, Any]]:
    """Return the steps that a bug replaces, in the forms that it comes in.

    First plain. With a finite fill a query that may attend to nothing gets even
    weights, which is the second form. Heads that are split without the transpose may be
    merged without it, too.
    """
    plain = {exhibit.step: exhibit.function}
    forms = [plain, {**plain, "weigh": _Even(plain.get("weigh", own.weigh))}]
    if exhibit.step == "weigh":
        forms.append({**plain, "weigh": _filled(exhibit.function)})
    if exhibit.step == "split":
        merge = KNOWN["merge-without-transpose"].function
        forms.append({**plain, "merge": merge})
    return forms


def _filled(weigh: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def weighed(scores: Tensor, mask: Tensor | None) -> Tensor:
        return weigh(scores if mask is None else scores.masked_fill(~mask, -1e9), None)

    return weighed


class _Even:
    """Weigh, but evenly where a query may attend to nothing.

    Attributes:
        used: Whether there has been such a query.
    """

    def __init__(self, weigh: Callable[..., Tensor]) -> None:
        self.weigh, self.used = weigh, False

    def __call__(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        weights = self.weigh(scores, mask)
        empty = ~(weights.nan_to_num(0.0).abs().sum(dim=-1, keepdim=True) > 0)
        self.used = self.used or bool(empty.any())
        return weights.masked_fill(empty, 1 / weights.shape[-1])


class Naming:
    """Compares the answers of a layer with those of references that have a bug.

    Args:
        subject: The layer; what it should compute is a ``Reference``.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        assert isinstance(subject.like, Reference)
        self.right = _with_steps(
            subject.like, project=_once(subject.like.steps.project)
        )

    @cached_property
    def uses(self) -> list[Use]:
        """The uses that are compared, the cheap and telling ones first."""
        subject, uses = self.subject, [*self.subject.uses()]
        x, causal = uses[0].x, subject.modes[0]
        uses.insert(1, Use(x, causal, training=True))
        if subject.pads:
            uses.insert(2, Use(x, causal, paddings(x)[1], training=True))
        if subject.pieces is not None:
            for length in subject.lengths:
                parts = PARTS.get(length, (length - 2, 1, 1))
                uses.append(Use(subject.sample(length), causal=True, parts=parts))
        return uses

    @cached_property
    def answers(self) -> dict[Use, Tensor | None]:
        """What the layer answers in each use; ``None`` where it fails."""
        with torch.no_grad():
            return {use: _answer(self.subject.answer, use) for use in self.uses}

    @property
    def all_answers(self) -> list[Tensor | None]:
        """The answers in all uses."""
        return [*self.answers.values()]

    @cached_property
    def gradient(self) -> Tensor | None:
        """The gradient of the layer in one use; ``None`` if it is cut off."""
        assert self.finite is not None
        try:
            return gradients(self.subject.answer, self.finite, self._kept)[0]
        except RuntimeError:
            return None

    @cached_property
    def finite(self) -> Use | None:
        """The first use in which all that counts is finite."""
        for use, got in self.answers.items():
            if got is not None and got[use.rows].isfinite().all() and not use.parts:
                return use
        return None

    @cached_property
    def dropout(self) -> float:
        """The probability with which the layer drops weights while training."""
        with torch.no_grad(), Dropout(off=True) as seen:
            self.subject.answer(replace(self.uses[0], training=True), drop=True)
        return seen.largest

    @property
    def _kept(self) -> Tensor:
        assert self.finite is not None
        return self.subject.sample(self.finite.x.shape[1], seed=4)

    def gap(self, twin: Reference, use: Use) -> float:
        """Return how far a reference and the layer are apart in a use."""
        got = self.answers[use]
        with torch.no_grad():
            right = _answer(replace(self.subject, like=twin).right, use)
        if got is None or right is None:
            return 0.0 if got is right else float("inf")
        finite = got[use.rows].isfinite()
        return apart(got[use.rows][finite], right[use.rows][finite])

    def agrees(
        self,
        twin: Reference,
        uses: Iterable[Use] | None = None,
        known: dict[Use, float] | None = None,
    ) -> float | None:
        """Return how far a reference and the layer are apart; ``None`` if too far.

        Args:
            twin: The reference, with a bug in it, say.
            uses: The uses to compare; all by default.
            known: What has been compared before, to which is added.
        """
        known = {} if known is None else known
        uses = self.uses if uses is None else uses
        if not any(x is not None and x.isfinite().any() for x in self.all_answers):
            return None  # what is never finite agrees with everything
        for use in uses:
            if use not in known:
                known[use] = self.gap(twin, use)
            if not known[use] <= self.bound:
                return None
        largest = max(known[use] for use in uses)
        if self.finite is not None and self.finite in uses:
            right = replace(self.subject, like=twin).right
            if self.gradient is None:
                return None
            (gradient,) = gradients(right, self.finite, self._kept)[:1]
            largest = max(largest, apart(self.gradient, gradient))
        return largest if largest <= self.bound else None

    @property
    def bound(self) -> float:
        """How far apart answers may be that count as the same."""
        return max(SINGLE, 10 * self.subject.slack)

    def bugs(self) -> tuple[list[Exhibit], str]:
        """Return the bugs that give the same answers, and where: "" is everywhere.

        What a layer does with padding or a cache may be another code path, and what a
        query gets that may attend to nothing is a question of its own: if no bug agrees
        in all uses, those are left out.
        """
        full = [use for use in self.uses if not (use.causal and use.begins_padded)]
        plain = [use for use in self.uses if use.real is None]
        uncut = [use for use in plain if not use.parts]
        for scope, uses in (
            ("", self.uses),
            ("without padding in front", full),
            ("without padding", plain),
            ("without padding and in one piece", uncut),
        ):
            if self.agrees(self.right, uses, self._of_right) is not None:
                break
            if bugs := self._agreeing(uses):
                return bugs, scope
        return [], ""

    def _agreeing(self, uses: list[Use]) -> list[Exhibit]:
        gaps: dict[str, float] = {}
        usual: set[str] = set()
        for name, which, twin, known in self._twins:
            if name not in gaps:
                gap = self.agrees(twin, uses, known)
                gaps |= {} if gap is None else {name: gap}
                usual |= {name} if gap is not None and not which else set()
        # A bug in its usual form rules out the rarer forms of others.
        gaps = {name: gaps[name] for name in gaps if name in usual or not usual}
        # What agrees to rounding rules out what agrees to single precision.
        exact = min(gaps.values(), default=0.0) <= 1e-9
        names = [name for name, gap in gaps.items() if gap <= 1e-9 or not exact]
        return [KNOWN[name] for name in names]

    @cached_property
    def _of_right(self) -> dict[Use, float]:
        return {}

    @cached_property
    def _twins(self) -> list[tuple[str, int, Reference, dict[Use, float]]]:
        """The references with a bug that agree in the first use: all scopes have it.

        Returns:
            Of each the name of its bug, its form, and how far it is apart in a use.
        """
        use, kept = self.uses[0], []
        for name, exhibit in KNOWN.items():
            if exhibit.reach or exhibit.step == "drop":
                continue
            forms = _forms(exhibit, self.right.steps)
            twins = [self._twin(**steps) for steps in forms]
            even = self.gap(twins[1], use)
            # Without an empty row or padding, the other forms answer alike.
            plain = self.gap(twins[0], use) if forms[1]["weigh"].used else even
            for which, twin in enumerate(twins):
                gap = even if which == 1 else plain
                if which > 1:
                    gap = self.gap(twin, use)
                kept += [(name, which, twin, {use: gap})] * (gap <= self.bound)
        return kept

    def _twin(self, **steps: Any) -> Reference:
        # Layers are asked without their dropout.
        twin = _with_steps(self.right, **{"drop": _keep, **steps})
        twin.dropout = self.dropout
        return twin

    def factor(self) -> tuple[float, float] | None:
        """Return what multiplies the scores, and what should, if only that differs."""
        if callable(self.right.scale) or isinstance(self.right.scale, Tensor):
            return None
        # One sequence is enough to find it; all uses are compared in the end.
        x, context = self.uses[0].x[:1], self.uses[0].context
        context = None if context is None else context[:1]
        use = replace(self.uses[0], x=x, context=context)
        with torch.no_grad():
            q = self.right.project_q(x)
            width = q.shape[-1] // self.right.num_heads
            scale = self.right.scale
            due = float(width**-0.5 if scale is None else scale)
            if (got := self.answers[self.uses[0]]) is None:
                return None
            got = got[:1].double()

            def miss(logarithm: Tensor) -> Tensor:
                twin = copy.copy(self.right)
                twin.scale = float(logarithm.exp()) * due
                right = replace(self.subject, like=twin).right(use)
                return (right - got).flatten()

            best = min(_FACTORS.log(), key=lambda log: float(miss(log).norm()))
            for _ in range(12):
                here = miss(best)
                slope = (miss(best + 1e-6) - here) / 1e-6
                if not float(slope.norm()):
                    return None
                step = (slope @ here) / (slope @ slope)
                best = best - step.clamp(-1, 1)
        twin = copy.copy(self.right)
        twin.scale = float(best.exp()) * due
        same = abs(float(best)) < 1e-6
        return None if same or self.agrees(twin) is None else (twin.scale, due)

    def limits(self, failed: Mapping[str, str]) -> list[Exhibit]:
        """Return the known limits that fail the same checks, and in the same way."""
        exhibits: list[Exhibit] = []
        if not _fails(_as_layer(self.subject, self.right), {}):
            return exhibits  # what fails is not a step of attention
        for exhibit in KNOWN.values():
            if exhibit.reach:
                steps = {exhibit.step: exhibit.function}
                twin = _with_steps(self.right, drop=_keep, **steps)
                twin.dropout = 0.0
                if _fails(_as_layer(self.subject, twin), failed):
                    exhibits.append(exhibit)
        return exhibits


def _answer(answer: Callable[[Use], Tensor], use: Use) -> Tensor | None:
    """Return an answer, or ``None`` if there is none: a bug may also crash."""
    try:
        output = answer(use)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return output if output.shape == use.x.shape else None


def _as_layer(subject: Subject, twin: Reference) -> Subject:
    """Return a reference as a subject that is called as another one."""

    def run(layer: Reference, x: Tensor, **options: Any) -> Tensor:
        return layer(x, **{"causal": subject.causal, **options})

    call = Adapted(run, tuple(subject.declared.items()))
    return replace(subject, layer=twin, call=call, pieces=None, dtype=torch.float64)


def _fails(subject: Subject, failed: Mapping[str, str]) -> bool:
    """Return whether a subject fails the same checks of limits, and in the same way."""
    for name in LIMITS:
        try:
            reason = CHECKS[name](subject)
        except (NotAskedError, ValueError, RuntimeError):
            reason = None
        if _way(name, reason) != _way(name, failed.get(name)):
            return False
    return True


def _way(name: str, reason: str | None) -> str | None:
    """Return a failure without the words of errors, which differ from code to code."""
    if reason is None or name != "half precision":
        return reason
    return str("overflow" in reason)
