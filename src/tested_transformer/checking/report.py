"""What comes out: a verdict for each check, and which known bug it looks like."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from tested_transformer.checking.checks import PIECES, close, left_padding, sample
from tested_transformer.checking.exhibits import EXHIBITS, Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.subject import Subject, make_subject

__all__ = ["Likely", "Report", "Verdict", "likely_exhibits"]

_QUESTIONS = "chapters/25-the-kill-matrix/#the-questions"
_SHOWN = {True: "passed", False: "FAILED", None: "not asked"}


@dataclass(frozen=True)
class Verdict:
    """What one check says.

    Args:
        check: Its name.
        passed: ``True`` or ``False``; ``None`` if the question could not be put.
        reason: What went wrong, or why it was not asked.
    """

    check: str
    passed: bool | None
    reason: str = ""

    def __str__(self) -> str:
        reason = f"  {self.reason}" if self.reason else ""
        return f"{self.check:18}  {_SHOWN[self.passed]:9}{reason}".rstrip()


@dataclass(frozen=True)
class Report:
    """What the checks say of one attention. Printed, it is a table.

    Args:
        name: What was checked.
        style: How it was called.
        verdicts: One for each check.
        likely: The exhibits that compute what it computes, if any does.
        whole_only: Whether they do so for whole sequences without padding alone.
    """

    name: str
    style: str
    verdicts: tuple[Verdict, ...]
    likely: tuple[Exhibit, ...] = ()
    whole_only: bool = False

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [each.check for each in self.verdicts if each.passed is False]

    def __str__(self) -> str:
        asked = sum(each.passed is not None for each in self.verdicts)
        lines = [
            f"{self.name}, called in the style {self.style!r}: "
            f"{asked - len(self.failed)} of {asked} checks passed",
            *(f"  {each}" for each in self.verdicts),
        ]
        it = "Without padding, it" if self.whole_only else "It"
        for each in self.likely:
            lines += [
                f"{it} computes what the exhibit {each.name} computes:",
                f"  {each.mistake}",
                f"  chapters/24-the-bug-museum/#{each.name}",
            ]
        if self.failed and not self.likely:
            lines.append("What each check asks: " + _QUESTIONS)
        return "\n".join(lines)


class Likely(NamedTuple):
    """What a subject computes, though it should not.

    Attributes:
        exhibits: Those that answer as it does.
        whole_only: Whether they do so only for whole sequences without padding, and
            differ from it in pieces, padded, in half precision or while training.
    """

    exhibits: tuple[Exhibit, ...] = ()
    whole_only: bool = False


def likely_exhibits(subject: Subject) -> Likely:
    """Return the exhibits that answer as the subject does, where it is wrong and right.

    They are made with its own weights, so there are none if its projections cannot be
    told; see ``oracles``.
    """
    if subject.module is None or subject.dtype != torch.float64:
        return Likely()
    asked = _Views(subject)
    answer = cache(asked.answer)
    likes: list[_Views] = []
    for layer in subject.oracles():
        layer.dropout = subject.dropout
        likes.append(_Views(make_subject(layer)))
    for ways in (asked.ways, [way for way in asked.ways if way in _WHOLE]):
        for like in likes:
            if like.agrees(Steps(), answer, ways):
                continue  # What is wrong shows in none of these ways.
            steps = {each.name: each.steps for each in EXHIBITS.values()}
            found = [n for n in steps if like.agrees(steps[n], answer, ways)]
            if found:
                exhibits = tuple(EXHIBITS[name] for name in found)
                return Likely(exhibits, ways != asked.ways)
    return Likely()


_WHOLE = ("whole", "open", "huge")


class _Views:
    """A subject as it is, quiet, training and in half precision, to be asked."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.quiet = subject.without_dropout()
        self.training = subject.without_dropout(training=True)
        self.half = self.quiet.to(torch.float16)
        self.ways = ["whole", *("open",) * subject.opens, "huge"]
        self.ways += ["padded slope", "padded"] if subject.pads else ["slope"]
        self.ways += [*("pieces",) * bool(subject.pieces)]
        self.ways += [*("training", "as it is") * subject.has_modes, "half"]

    def agrees(
        self, steps: Steps, answer: Callable[[str], Tensor], ways: Sequence[str]
    ) -> bool:
        """Exchange the steps of the layer; return whether it answers the same."""
        for view in (self.subject, self.quiet, self.training, self.half):
            assert isinstance(view.layer, ExchangeableAttention)
            view.layer.steps = steps
        try:
            return all(self._same(answer(way), self.answer(way)) for way in ways)
        except ValueError:  # another shape: its heads are wider than it is
            return False

    def _same(self, one: Tensor, other: Tensor) -> bool:
        """Return whether two answers are equal, NaN for NaN."""
        both = torch.equal(one.isnan(), other.isnan())
        return both and bool(close(self.quiet, one.nan_to_num(), other.nan_to_num()))

    def answer(self, way: str) -> Tensor:
        """Ask in one way."""
        quiet = self.quiet
        x = sample(quiet)
        match way:
            case "whole":
                return quiet.run(x)
            case "open":
                return quiet.run(x, causal=False)
            case "huge":
                return quiet.run(1000 * x)
            case "padded":
                return quiet.run(x, real=left_padding(x))
            case "slope" | "padded slope":
                x.requires_grad_()
                real = left_padding(x) if way == "padded slope" else None
                kept = quiet.run(x, real=real) * sample(quiet, seed=4)
                kept = kept if real is None else kept[real]
                return torch.autograd.grad(kept.sum(), x)[0]
            case "pieces":
                try:
                    read = quiet.read(x, PIECES)
                except ValueError:
                    read = None
                return torch.full_like(x, torch.nan) if read is None else read
            case "training":
                return self.training.run(x)
            case "as it is":
                assert self.subject.module is not None
                self.subject.module.eval()
                torch.manual_seed(9)
                return self.subject.run(x)
            case _:  # Where half gives numbers; which, is a matter of rounding.
                try:
                    return self.half.run(x.half()).isfinite().to(x)
                except ValueError:
                    return torch.zeros_like(x)
