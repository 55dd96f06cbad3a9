"""What comes out: a verdict for each check, and which known bug it looks like."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from tested_transformer.checking.checks import PIECES, close, left_padding, sample
from tested_transformer.checking.exhibits import EXHIBITS, Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.subject import Subject, make_subject

__all__ = ["Report", "Verdict", "likely_exhibits"]

_QUESTIONS = "chapters/is-your-attention-right/#the-questions"
_SHOWN = {True: "passed", False: "FAILED", None: "not asked"}
_STATES = {
    "right": "right",
    "wrong": "WRONG",
    "not known": "not known to be right",
}
# Without these nothing says that it is attention, and not something like it.
_COMPARISONS = ("output", "gradient")


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


@dataclass(frozen=True, repr=False)
class Report:
    """What the checks say of one attention. Printed, it is a table.

    It is true if the attention is right, and only then.

    Args:
        name: What was checked.
        style: How it was called.
        verdicts: One for each check.
        likely: The exhibits that compute what it computes, if any does.
        whole_only: Whether they do so for whole sequences without padding alone.
        doubts: Why it may be no attention at all, if it does not look like one.
        drawn: The names of the weights that were drawn anew for the questions, because
            nothing could be seen through them. The layer itself keeps its own.
    """

    name: str
    style: str
    verdicts: tuple[Verdict, ...]
    likely: tuple[Exhibit, ...] = ()
    whole_only: bool = False
    doubts: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()

    @property
    def state(self) -> Literal["right", "wrong", "not known"]:
        """``wrong`` if a check failed, ``right`` if all passed that were asked.

        And ``not known`` unless output and gradient were compared with an oracle: what
        computes something else than attention can have all other properties.
        """
        if self.failed:
            return "wrong"
        return "not known" if self.unknown else "right"

    @property
    def passed(self) -> bool:
        """Whether it is right: nothing failed, output and gradient were compared."""
        return self.state == "right"

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [each.check for each in self.verdicts if each.passed is False]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it cannot be said to be right, even if no check failed."""
        verdicts = {each.check: each for each in self.verdicts}
        reasons = dict.fromkeys(self.doubts)  # each once, in their order
        for name in _COMPARISONS:
            if name not in verdicts:
                reasons[f"{name} was not compared: it was left out"] = None
            elif verdicts[name].passed is None and verdicts[name].reason not in reasons:
                reasons[f"not compared with attention: {verdicts[name].reason}"] = None
        return tuple(reasons)

    def as_dict(self) -> dict[str, Any]:
        """Return what it says, as JSON can hold it."""
        return {
            "name": self.name,
            "state": self.state,
            "style": self.style,
            "unknown": [*self.unknown],
            "likely": {each.name: each.mistake for each in self.likely},
            "whole_only": self.whole_only,
            "checks": [asdict(each) for each in self.verdicts],
            "drawn": [*self.drawn],
        }

    def __str__(self) -> str:
        asked = sum(each.passed is not None for each in self.verdicts)
        passed = f"{asked - len(self.failed)} of {asked} checks passed"
        lines = [f"{self.name} is {_STATES[self.state]}: {passed}"]
        if self.state == "not known":
            lines += [f"  {each}" for each in self.unknown]
        if asked:  # else one doubt is the reason of all
            lines += [f"Called in the style {self.style!r}:"]
            lines += [f"  {each}" for each in self.verdicts]
        it = "Without padding, it" if self.whole_only else "It"
        for each in self.likely:
            lines += [
                f"{it} computes what the exhibit {each.name} computes:",
                f"  {each.mistake}",
                f"  chapters/the-bug-museum/#{each.name}",
            ]
        if self.drawn:
            lines.append("Drawn anew to be asked: " + ", ".join(self.drawn))
        if self.failed and not self.likely:
            lines.append("What each check asks: " + _QUESTIONS)
        return "\n".join(lines)

    __repr__ = __str__


def likely_exhibits(subject: Subject) -> tuple[tuple[Exhibit, ...], bool]:
    """Return the exhibits that answer as the subject does, where it is wrong and right.

    They are made with its own weights, so there are none if its projections cannot be
    told; see ``oracles``.

    Returns:
        The exhibits, and whether they do so only for whole sequences without padding,
        and differ from it in pieces, padded, in half precision or while training.
    """
    if subject.module is None or subject.dtype != torch.float64:
        return (), False
    likes = [_like(subject, layer) for layer in subject.oracles()]
    try:
        answers = [*_answers(subject, subject.without_dropout())] if likes else []
    except ValueError:  # A question that none of the checks had put.
        return (), False
    for count in (len(answers), 2 + subject.opens):
        for like in likes:
            quiet = like.without_dropout()
            if _agrees(like, quiet, Steps(), answers[:count]):
                continue  # What is wrong shows in none of these answers.
            found = [
                each
                for each in EXHIBITS.values()
                if _agrees(like, quiet, each.steps, answers[:count])
            ]
            if found:
                return tuple(found), count < len(answers)
    return (), False


def _like(subject: Subject, layer: ExchangeableAttention) -> Subject:
    """Return a layer with a subject's weights, to be asked what that can be asked."""
    layer.dropout = subject.dropout
    like = make_subject(layer, anew=False)
    return replace(
        like,
        opens=subject.opens,
        pads=subject.pads,
        pieces=like.pieces if subject.pieces else None,
        has_modes=subject.has_modes,
    )


def _agrees(
    like: Subject, quiet: Subject, steps: Steps, answers: Sequence[Tensor]
) -> bool:
    """Exchange the steps; return whether the first answers are these, NaN for NaN."""
    for each in (like, quiet):
        assert isinstance(each.layer, ExchangeableAttention)
        each.layer.steps = steps
    try:
        # Each is computed when it is compared: most layers differ at once.
        return all(
            torch.equal(one.isnan(), other.isnan())
            and close(like, one.nan_to_num(), other.nan_to_num())
            for one, other in zip(answers, _answers(like, quiet), strict=False)
        )
    except ValueError:  # another shape: its heads are wider than it is
        return False


def _answers(subject: Subject, quiet: Subject) -> Iterator[Tensor]:
    """Yield the answers of a subject and of its copy without dropout.

    Those for whole sequences come first; then padded, in pieces, training, with
    dropout, and in half precision, as far as it can be asked so.
    """
    x = sample(quiet)
    yield quiet.run(x)
    yield quiet.run(1000 * x)
    if subject.opens:
        yield quiet.run(x, causal=False)
    real = left_padding(x) if subject.pads else None
    leaf = x.clone().requires_grad_()
    output = quiet.run(leaf, real=real)
    kept = output * sample(quiet, seed=4)
    yield torch.autograd.grad((kept if real is None else kept[real]).sum(), leaf)[0]
    if subject.pads:
        yield output
    if subject.pieces:
        try:
            yield quiet.read(x, PIECES)
        except ValueError:
            yield torch.full_like(x, torch.nan)
    if subject.has_modes:
        assert quiet.module is not None
        assert subject.module is not None
        quiet.module.train()
        training = quiet.run(x)
        quiet.module.eval()
        yield training
        subject.module.eval()
        torch.manual_seed(9)
        yield subject.run(x)
    try:  # Where half gives numbers; which, is a matter of rounding.
        yield quiet.to(torch.float16).run(x.half()).isfinite().to(x)
    except ValueError:
        yield torch.zeros_like(x)
