"""What comes out: a verdict for each check, and which known bug it looks like."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tested_transformer.checking.checks import PIECES, close, left_padding, sample
from tested_transformer.checking.exhibits import EXHIBITS, Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.subject import Subject, make_subject

__all__ = ["Report", "Verdict", "likely_exhibits"]

_QUESTIONS = "chapters/is-your-attention-right/#the-questions"
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
                f"  chapters/the-bug-museum/#{each.name}",
            ]
        if self.failed and not self.likely:
            lines.append("What each check asks: " + _QUESTIONS)
        return "\n".join(lines)


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
    like = make_subject(layer)
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
