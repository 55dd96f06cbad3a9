"""The diagnosis: known bugs that give the same answers as a wrong layer."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.checks import (
    LENGTH,
    PIECES,
    close,
    left_padding,
    sample,
)
from tested_transformer.checking.exhibits import EXHIBITS, KNOWN, Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps
from tested_transformer.checking.forms import ROUNDING, Form, FormedAttention
from tested_transformer.checking.reading import reads
from tested_transformer.checking.recognizing import Recognizer
from tested_transformer.checking.styles import options_of
from tested_transformer.checking.subject import Subject, copied

__all__ = [
    "Likeness",
    "alike",
    "is_inverted",
    "likely_exhibits",
    "norms",
]

# The largest relative gap between answers that differ only in the eps of a norm.
_ROUGHLY = 1e-3
# The exhibits that differ from attention only beyond a limit.
_LIMITED = [EXHIBITS[each] for each in ("large-but-finite", "beyond-half")]
# The steps that don't change the output of one token, and those that a fill can change.
_OF_HALF = "beyond-half"
_OF_SCORES, _OF_MASKS = ("form", "score", "drop"), ("allow", "weigh")
# How often to draw what a token alone keeps, and for at most how many heads.
_DRAWS, _FEW_HEADS = 16, 8


@dataclass(frozen=True)
class Likeness:
    """The exhibits that give the same answers as a subject, given its weights.

    Args:
        exhibits: The exhibits.
        whole_only: Whether they agree with it only on whole sequences without padding,
            and differ in pieces, with padding or while training.
        layer: What the subject should be.
    """

    exhibits: tuple[Exhibit, ...] = ()
    whole_only: bool = False
    layer: FormedAttention | None = None


def likely_exhibits(subject: Subject, found: Likeness | None = None) -> Likeness:
    """Return the exhibits that are like a subject.

    There are none if its projections are not found; see ``oracles``. Only an inverted
    mask is recognized without them, by which tokens read which.

    Args:
        subject: What fails a check.
        found: The result of ``alike``, if that is known already.
    """
    found = alike(subject) if found is None else found
    if found.whole_only and all(each in _LIMITED for each in found.exhibits):
        found = Likeness(layer=found.layer)  # something else is wrong besides
    if not found.exhibits and is_inverted(subject.without_dropout()):
        return Likeness((EXHIBITS["inverted-mask"],))
    if not found.exhibits and _drops_weights(subject):
        return Likeness((EXHIBITS["dropout-while-evaluating"],))
    return found


@torch.no_grad()
def _drops_weights(subject: Subject) -> bool:
    """Return whether the weights of whole heads are dropped while evaluating.

    A token alone has one weight in each head, so its output is one of 2 ** H.
    """
    layer = next(iter(subject.oracles()), None)
    if subject.module is None or layer is None or layer.num_heads > _FEW_HEADS:
        return False
    token = sample(subject)[:1, :1]
    subject.module.eval()
    try:
        outputs = subject.run(token.expand(_DRAWS, -1, -1).clone())
    except ValueError:  # its cache, say, is made for fewer sequences
        return False
    layer.eval()
    steps = layer.steps
    varied = not torch.equal(outputs[:1].expand_as(outputs), outputs)
    for p in {*subject.dropouts}:
        kept = [*product((0.0, 1 / (1 - p)), repeat=layer.num_heads)]
        factors = torch.tensor(kept, dtype=torch.float64)[..., None, None]
        layer.steps = replace(steps, drop=partial(_times, factors))
        possible = layer(token.double().expand(len(kept), -1, -1))
        layer.steps = steps
        found = [[close(subject, one, each) for each in possible] for one in outputs]
        if varied and all(map(any, found)):
            return True
    return False


def _times(factors: Tensor, weights: Tensor, *rest: Any) -> Tensor:
    return weights * factors


def is_inverted(subject: Subject) -> bool:
    """Return whether each token reads exactly the tokens that it may not read.

    It is enough if either the causal mask or the padding mask is inverted.
    """
    if not subject.causal:
        return False
    others = ~torch.eye(LENGTH, dtype=torch.bool)  # a query always affects its own row
    # Nothing is forbidden to the last token, so its row says nothing.
    later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    if torch.equal((reads(subject) & others)[:-1], later[:-1]):
        return True
    if not subject.pads:
        return False
    real = torch.arange(LENGTH) >= LENGTH // 2
    found = (reads(subject, real=real) & others)[real]
    return torch.equal(found, (~real).expand(len(found), -1))


def norms(subject: Subject) -> bool:
    """Return whether a subject seems to be attention with normalized queries and keys.

    They may be divided by their length or by their standard deviation, in each head or
    in all heads together, and then multiplied by an unknown factor. The eps of the norm
    is unknown too, so the answers agree only roughly.
    """
    if subject.dtype == torch.float16:
        return False
    quiet = subject.without_dropout()
    return any(
        _minimum(partial(_relative_gap, quiet, deepcopy(layer), centered, by_head))
        < _ROUGHLY
        for layer in quiet.oracles()
        for centered, by_head in product((False, True), repeat=2)
    )


@torch.no_grad()
def _relative_gap(
    subject: Subject,
    layer: ExchangeableAttention,
    centered: bool,
    by_head: bool,
    log_factor: float,
) -> float:
    """Return the gap between a subject and a layer with normalized queries and keys."""
    x, causal = sample(subject), subject.causal
    right = subject.run(x, causal=causal).double()
    layer.eval().steps = Steps(
        project=_normalizing(math.exp(log_factor), centered, by_head)
    )
    gap = layer(x.double(), causal=causal) - right
    return float(gap.abs().max() / right.abs().max())


def _normalizing(
    factor: float, centered: bool, by_head: bool
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return a step that normalizes queries and keys, and scales scores by a factor."""

    def project(
        layer: ExchangeableAttention, x: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = Steps().project(layer, x)
        found: list[Tensor] = []
        for each in (q, k):
            size = layer.head_dim if by_head else each.shape[-1]
            parts = each.unflatten(-1, (-1, size))
            if centered:
                parts = parts - parts.mean(dim=-1, keepdim=True)
            found.append(F.normalize(parts, dim=-1).flatten(-2))
        return found[0] * factor * layer.head_dim**0.5, found[1], v

    return project


def _minimum(function: Callable[[float], float]) -> float:
    """Return the approximate minimum of a function of the logarithm of a factor."""
    points = torch.linspace(math.log(0.3), math.log(300.0), 40).tolist()
    step = points[1] - points[0]
    here = min(points, key=function)
    lower, upper = here - step, here + step
    for _ in range(30):
        left, right = (2 * lower + upper) / 3, (lower + 2 * upper) / 3
        if function(left) < function(right):
            upper = right
        else:
            lower = left
    return function((lower + upper) / 2)


def alike(subject: Subject) -> Likeness:
    """Return the exhibits that, with a subject's weights, give the same answers.

    They have the form that explains the subject, or else a form that it is likely meant
    to have. The layer that is returned with them has that form.
    """
    if subject.module is None or subject.dtype == torch.float16:
        return Likeness()
    layers = subject.oracles()
    if not layers:
        return Likeness()
    recognizer = Recognizer(subject)
    try:
        answers = [*_answers(subject, subject.without_dropout())]
    except ValueError:  # it cannot be called in a way that no check has tried
        return Likeness()
    whole = 2 + subject.opens
    # Scores that are filled with a number look like those that get it from a mask.
    doubtful = _OF_HALF if _takes_numbers(subject) else ""
    for layer in layers:
        pair: tuple[Subject, Subject] | None = None
        explained = layer.form != Form() or recognizer.is_explained_by(layer)
        forms = [layer.form] if explained else recognizer.likely(layer)
        sieve = _Sieve(recognizer, layer)
        for form in forms:
            left = [*sieve.left(form)]
            if not left:
                continue
            pair = pair or _called_like(subject, layer)  # now, as few guesses get here
            like, quiet = pair
            right = _agreeing(like, quiet, form, None, answers)
            found: list[tuple[int, Exhibit]] = []
            for each in left:
                agreeing = _agreeing(like, quiet, form, each, answers)
                found.append((agreeing, each))
                if not agreeing:
                    sieve.rule_out(form, each)
            # A form that no setting of the layer confirms has to explain every answer.
            said = recognizer.is_sure(form) and form.fill is None
            every = len(answers)
            for count in (every, every - 1, whole)[: 2 + said]:
                # Without the bug fewer answers may agree. The last answer is in half
                # precision, which may fail for another reason.
                names = [
                    each
                    for agreeing, each in found
                    if agreeing >= (every if each.name == doubtful else count) > right
                ]
                if names:
                    layer.take(form)
                    return Likeness(tuple(names), count < every - 1, layer)
    return Likeness()


def _takes_numbers(subject: Subject) -> bool:
    """Return whether a subject is called with masks of numbers."""
    x = sample(subject)
    real = left_padding(x) if subject.pads else None
    given = options_of(subject.call, x, subject.causal, real).values()
    return any(isinstance(each, Tensor) and each.is_floating_point() for each in given)


class _Sieve:
    """Rules out exhibits that cannot explain a subject, for many forms at once."""

    def __init__(self, recognizer: Recognizer, layer: FormedAttention) -> None:
        self.recognizer = recognizer
        self.layer = copied(layer).eval()
        self.fits: dict[Any, bool] = {}
        self.fitting: dict[Any, list[Exhibit]] = {}
        self.ruled_out: set[tuple[str, Form]] = set()

    def left(self, form: Form) -> Iterator[Exhibit]:
        """Yield the exhibits that may explain the subject, in a layer of this form."""
        key = id(form.terms), _fill(form)
        if key not in self.fitting:
            self.fitting[key] = [x for x in KNOWN.values() if self._fits(form, x)]
        for each in self.fitting[key]:
            changes = each.step != "form" or each.function(form) != form
            if changes and (each.name, _unfilled(form)) not in self.ruled_out:
                yield each

    def rule_out(self, form: Form, exhibit: Exhibit) -> None:
        """Rule out an exhibit for a form, whatever it fills forbidden scores with."""
        if exhibit.step not in _OF_MASKS:
            self.ruled_out.add((exhibit.name, _unfilled(form)))

    def _fits(self, form: Form, exhibit: Exhibit) -> bool:
        """Return whether one token has the subject's output, with an exhibit."""
        # One token has one score, so scores and what they are made of do not count. A
        # fill counts only if a bug hides the token from itself; otherwise only that a
        # form with a fill weighs scores without a mask.
        name = "" if exhibit.step in _OF_SCORES else exhibit.name
        fill = _fill(form) if exhibit.step in _OF_MASKS else None
        fill = fill if exhibit.step == "allow" or fill is None else 0.0
        key = name, id(form.terms), fill
        if key not in self.fits:
            slack = max(form.slack, ROUNDING)
            self.layer.take(form, exhibit if name else None)
            self.fits[key] = self.recognizer.explains_alone(self.layer, slack)
        return self.fits[key]


def _fill(form: Form) -> float | None:
    """Return what a form fills forbidden scores with, any finite number as 0."""
    return form.fill if form.fill in (None, -torch.inf) else 0.0


def _unfilled(form: Form) -> Form:
    return replace(form, fill=None, filled_by_adding=False)


def _called_like(subject: Subject, layer: FormedAttention) -> tuple[Subject, Subject]:
    """Return a layer with a subject's weights, to be called as the subject is.

    With it, return its copy without dropout. Neither has a form yet.
    """
    layer = copied(layer)
    layer.take(Form())  # without a bug that was tried in it
    layer.dropout = subject.dropout
    like = make_subject(layer, dtype=subject.dtype, anew=False)

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Any:
        return like.call(layer, x, causal and subject.causal, real)

    called = replace(
        like,
        call=call,
        opens=subject.opens,
        pads=subject.pads,
        pieces=like.pieces if subject.pieces else None,
        has_modes=subject.has_modes,
    )
    return called, called.without_dropout()


def _agreeing(
    like: Subject,
    quiet: Subject,
    form: Form,
    exhibit: Exhibit | None,
    answers: Sequence[Tensor],
) -> int:
    """Put in an exhibit; return how many answers agree before the first that differs.

    NaN agrees with NaN.
    """
    for each in (like, quiet):
        assert isinstance(each.layer, FormedAttention)
        each.layer.take(form, exhibit)
    count = 0
    try:
        # Answers are computed one at a time, since most layers differ in the first.
        for one, other in zip(answers, _answers(like, quiet), strict=False):
            if not torch.equal(one.isnan(), other.isnan()):
                break
            slack = max(form.slack, ROUNDING)
            if not close(like, one.nan_to_num(), other.nan_to_num(), slack):
                break
            count += 1
    except (RuntimeError, ValueError):  # shapes differ: its heads are wider than it is
        return 0
    return count


def _answers(subject: Subject, quiet: Subject) -> Iterator[Tensor]:
    """Yield the answers of a subject and of its copy without dropout.

    Answers for whole sequences come first, then those with padding, in pieces, while
    training, with dropout, and in half precision, where the subject supports them.
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
        assert subject.module is not None
        yield quiet.without_dropout(training=True).run(x)
        subject.module.eval()
        torch.default_generator.manual_seed(9)
        yield subject.run(x)
    try:  # compare only where half precision is finite: the numbers are rounded
        yield quiet.to(torch.float16).run(x.half()).isfinite().to(x)
    except ValueError as error:
        # Exhibits fail only at numbers that half precision cannot hold.
        yield torch.full_like(x, 0.0 if "overflow" in str(error) else -1.0)
