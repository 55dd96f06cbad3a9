"""Checks that compare: with an oracle, with slopes, and with other ways to be used.

Each takes a ``Subject`` and returns what went wrong, or ``None``. A question that
cannot be put to this subject raises ``NotApplicableError``.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tested_transformer.checking.asking import NotApplicableError, close, sample
from tested_transformer.checking.subject import Subject

__all__ = [
    "PIECES",
    "cached",
    "dtypes",
    "finite_differences",
    "modes",
    "same_gradient",
    "same_output",
]

PIECES = (3, 1, 2, 1)

_Oracle = Callable[..., Tensor]


def _answers(
    subject: Subject, x: Tensor
) -> Iterator[tuple[str, Tensor, Callable[[_Oracle], Tensor]]]:
    """Give each way to ask, the answer, and how to ask the oracle for the same."""

    def asked(oracle: _Oracle, **how: bool) -> Tensor:
        return oracle(x.double()) if subject.known else oracle(x.double(), **how)

    yield "causal", subject.run(x), lambda oracle: asked(oracle, causal=True)
    if subject.opens and not subject.known:
        output = subject.run(x, causal=False)
        yield "unmasked", output, lambda oracle: asked(oracle, causal=False)


def _right(subject: Subject) -> list[_Oracle]:
    found: list[_Oracle] = [subject.known] if subject.known else [*subject.oracles()]
    if not found:
        raise NotApplicableError("its projections could not all be told: give oracle=")
    return found


def same_output(subject: Subject) -> str | None:
    """The output is that of attention written in the open, with the same weights."""
    x = sample(subject)
    wrong: list[str] = []
    for oracle in _right(subject):
        apart = [
            f"{way}: up to {(answer.double() - right).abs().max():.2g} apart"
            for way, answer, ask in _answers(subject, x)
            if not close(subject, answer, right := ask(oracle))
        ]
        if not apart:
            return None
        wrong.append(apart[0])
    return wrong[0]


def same_gradient(subject: Subject) -> str | None:
    """So is the gradient."""
    x = sample(subject).requires_grad_()
    direction = sample(subject, seed=4)
    for oracle in _right(subject):
        wrong = False
        for _, answer, ask in _answers(subject, x):
            (got,) = torch.autograd.grad(answer, x, direction)
            (right,) = torch.autograd.grad(ask(oracle), x, direction.double())
            wrong |= not close(subject, got, right)
        if not wrong:
            return None
    return "another gradient than that of attention in the open"


def finite_differences(subject: Subject) -> str | None:
    """The gradient is the slope that small steps find."""
    if subject.dtype != torch.float64:
        raise NotApplicableError("takes float64")
    x, direction = sample(subject).requires_grad_(), sample(subject, seed=4)

    def value(x: Tensor) -> Tensor:
        return (subject.run(x) * direction).sum()

    (slope,) = torch.autograd.grad(value(x), x)
    for seed in (5, 6):
        step = 1e-5 * sample(subject, seed)
        with torch.no_grad():
            rise = value(x + step) - value(x - step)
        if not (rise / 2 - (slope * step).sum()).abs() <= 1e-5 * step.norm():
            return "the gradient is not the slope that small steps find"
    return None


# --8<-- [start:cached]
def cached(subject: Subject) -> str | None:
    """Read in pieces, with a cache, a sequence gives what it gives whole."""
    x = sample(subject)
    try:
        in_pieces = subject.read(x, PIECES)
    except ValueError as error:
        return str(error)
    if in_pieces is None:
        raise NotApplicableError("reads no pieces that are known: give pieces=")
    whole = subject.run(x)
    for row in range(x.shape[1]):
        if not close(subject, in_pieces[:, row], whole[:, row]):
            return f"row {row} changes when the sequence is read in pieces of {PIECES}"
    return None


# --8<-- [end:cached]


# --8<-- [start:modes]
def modes(subject: Subject) -> str | None:
    """Training, dropout apart, is what evaluating is."""
    as_it_is = subject.module
    if as_it_is is None or not subject.has_modes:
        raise NotApplicableError("is no module: it has no modes")
    x = sample(subject)
    was_training = as_it_is.training
    try:
        as_it_is.eval()
        outputs: list[Tensor] = []
        for seed in (7, 8):
            torch.manual_seed(seed)
            outputs.append(subject.run(x))
    finally:
        as_it_is.train(was_training)
    if not close(subject, *outputs):
        return "evaluating, it gives two outputs for one input: does it drop weights?"
    evaluating = subject.without_dropout().run(x)
    if not close(subject, outputs[0], evaluating):
        return "evaluating, it computes something else if it was built with dropout"
    if not close(subject, subject.without_dropout(training=True).run(x), evaluating):
        return "training, it computes something else than evaluating, dropout apart"
    return None


# --8<-- [end:modes]


def dtypes(subject: Subject) -> str | None:
    """Half precision gives the same, roughly."""
    if subject.module is None:
        raise NotApplicableError("is no module, nor a function of q, k and v")
    x = sample(subject)
    right = subject.run(x)
    for dtype in (torch.float16, torch.bfloat16):
        low = subject.to(dtype)
        try:
            got = low.run(x.to(dtype))
        except ValueError as error:
            return f"{dtype}: {error.__cause__}"
        if not close(low, got, right):
            return f"{dtype}: up to {(got.double() - right).abs().max():.2g} apart"
    return None
