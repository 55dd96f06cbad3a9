"""Which exhibit is it? Ask an attention and every exhibit with its weights the same."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tested_transformer.checking.asking import close, left_padding, sample
from tested_transformer.checking.exhibits.exhibit import Exhibit
from tested_transformer.checking.exhibits.gallery import EXHIBITS
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.subject import Subject, make_subject

__all__ = ["Likely", "likely_exhibits"]


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
    """Give the exhibits that answer as the subject does, where it is wrong and right.

    They are made with its own weights, so there are none if its projections cannot be
    told; see ``oracles``.
    """
    if subject.module is None or subject.dtype != torch.float64:
        return Likely()
    asked = _Views(subject)
    got = functools.cache(asked.answer)
    likes = [_Views(make_subject(layer)) for layer in _dropping(subject)]
    for ways in (asked.ways, [way for way in asked.ways if way in _WHOLE]):

        def same(like: "_Views", steps: Steps, ways: list[str] = ways) -> bool:
            like.exchange(steps)
            try:
                return all(
                    _same(subject, got(way), like.answer(way, subject)) for way in ways
                )
            except ValueError:  # another shape: its heads are wider than it is
                return False

        for like in likes:
            if same(like, Steps()):  # what is wrong shows in none of these ways
                continue
            found = [each for each in EXHIBITS.values() if same(like, each.steps)]
            if found:
                return Likely(tuple(found), ways != asked.ways)
    return Likely()


_WHOLE = ("whole", "open", "huge")


def _dropping(subject: Subject) -> Iterator[ExchangeableAttention]:
    """Make layers with the weights of the subject that drop out as it does."""
    for layer in subject.oracles():
        layer.dropout = _dropout(subject)
        yield layer


class _Views:
    """A subject as it is, quiet, training and in half precision, to be asked."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.quiet = subject.without_dropout()
        self.training = subject.without_dropout(training=True)
        self.half = self.quiet.to(torch.float16)
        self.ways = ["whole", *("open",) * subject.opens, "huge", "slope"]
        self.ways += [*("padded",) * subject.pads, *("pieces",) * bool(subject.pieces)]
        self.ways += [*("training", "as it is") * subject.has_modes, "half"]

    def exchange(self, steps: Steps) -> None:
        """Let the layer take other steps, in every view."""
        for view in (self.subject, self.quiet, self.training, self.half):
            assert isinstance(view.layer, ExchangeableAttention)
            view.layer.steps = steps

    def answer(self, way: str, like: Subject | None = None) -> Tensor:
        """Ask in one way, as another subject can be asked."""
        quiet = self.quiet
        x = sample(quiet)
        match way:
            case "whole":
                return quiet.run(x)
            case "open":
                return quiet.run(x, causal=False)
            case "huge":
                return quiet.run(1000 * x)
            case "slope":
                pads = (self.subject if like is None else like).pads
                return _slope(quiet, x.requires_grad_(), pads)
            case "padded":
                return quiet.run(x, real=left_padding(x))
            case "pieces":
                return _in_pieces(quiet, x)
            case "training":
                return self.training.run(x)
            case "as it is":
                return _as_it_is(self.subject, x)
            case _:
                return _in_half(self.half, x)


def _dropout(subject: Subject) -> float:
    values = [
        getattr(each, name)
        for each in (subject.module.modules() if subject.module else ())
        for name in ("dropout", "dropout_p", "attn_dropout", "p")
        if isinstance(getattr(each, name, None), float)
    ]
    return max(values, default=0.0)


def _slope(subject: Subject, x: Tensor, pads: bool) -> Tensor:
    real = left_padding(x)
    output = subject.run(x, real=real) if pads else subject.run(x)
    kept = output * sample(subject, seed=4)
    return torch.autograd.grad((kept[real] if pads else kept).sum(), x)[0]


def _in_pieces(subject: Subject, x: Tensor) -> Tensor:
    try:
        read = subject.read(x, (3, 1, 2, 1))
    except ValueError:
        read = None
    return torch.full_like(x, torch.nan) if read is None else read


def _as_it_is(subject: Subject, x: Tensor) -> Tensor:
    assert subject.module is not None
    subject.module.eval()
    torch.manual_seed(9)
    return subject.run(x)


def _in_half(subject: Subject, x: Tensor) -> Tensor:
    """Say where half precision gives numbers; which, is a matter of rounding."""
    try:
        output = subject.run(x.half())
    except ValueError:
        return torch.zeros_like(x)
    return output.isfinite().to(x)


def _same(subject: Subject, one: Tensor, other: Tensor) -> bool:
    """Say whether two answers are equal, NaN for NaN."""
    if not torch.equal(one.isnan(), other.isnan()):
        return False
    return bool(close(subject, one.nan_to_num(), other.nan_to_num()))
