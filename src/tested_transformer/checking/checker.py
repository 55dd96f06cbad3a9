"""``check_attention``: run every check on an attention that somebody else wrote."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.calling import (
    about_lengths,
    make_subject,
    make_subjects,
)
from tested_transformer.checking.checks import (
    CHECKS,
    LENGTH,
    NotApplicableError,
    left_padding,
    reads_context,
    sample,
)
from tested_transformer.checking.counterexample import find_counterexample
from tested_transformer.checking.diagnosis import Likeness, likely_exhibits, norms
from tested_transformer.checking.forms import Form
from tested_transformer.checking.guessing import diagnosed, explained, recognized
from tested_transformer.checking.reading import (
    is_constant,
    reads,
    takes_softmax,
    unreached,
)
from tested_transformer.checking.recognizing import (
    doubts_about,
    explains_one_token,
)
from tested_transformer.checking.report import Report, Verdict
from tested_transformer.checking.styles import FLAGS, parameters_of
from tested_transformer.checking.subject import Reader, Subject
from tested_transformer.checking.watching import checking, watched

__all__ = [
    "assert_attention",
    "assert_causal",
    "check_attention",
    "judge",
    "verdicts_on",
]

# Checks that a correct layer may fail if it adds positions: padding on the left shifts
# its tokens, and its table of angles may be less exact than the comparison.
_OF_POSITIONS = {"padding", "permutation", "output", "gradient"}
# Checks that a correct layer may fail if it uses no softmax.
_OF_SOFTMAX = {
    *("permutation", "output", "gradient"),
    *("row sums", "finite differences", "dtypes"),
}
# Checks that excuse no other failure, and that no excuse for others covers.
_LIMITS = {"dtypes", "empty rows", "huge scores"}
# Of the ways to call an attention, compare at most this many with bugs.
_WAYS = 6
# Checks that a correct layer may fail if it normalizes queries and keys, or if it has
# more parameters than its projections.
_OF_COMPARISON = {"output", "gradient"}
# Checks of the features alone, which an oracle can fail, too.
_OF_LATER = {"leak", "honest loss", "prefix"}
_OF_FEATURES = _OF_LATER | {"row sums", "huge scores", "finite differences"}
_CONTEXT = (
    "given {}, it does not compute attention to that alone: check a function that "
    "calls the layer without it if you never pass it"
)
_MEANT = "the oracle fails it, too"
_LATER = "the oracle sees later tokens, too: give style='both' if that is meant"


@contextmanager
def _own_seed() -> Generator[None]:
    """Draw random numbers from a fixed seed, and restore the caller's generators.

    Checks run on the CPU, so only its generator is seeded: without a GPU,
    torch.manual_seed takes a millisecond to record its caller for one that may come.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.default_generator.manual_seed(0)
        yield


@_own_seed()
def check_attention(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    oracle: Callable[[Tensor], Tensor] | None = None,
    pieces: Reader | None = None,
    projections: Sequence[str] = (),
    mask_means: str | None = None,
    batch_first: bool | None = None,
    heads_first: bool | None = None,
    skip: Collection[str] = (),
) -> Report:
    """Run all ``CHECKS`` on an attention.

    The attention may be a function of queries, keys and values, or a layer of features.
    A layer, and every layer that a function uses, is copied and stays as it is. Weights
    that would hide a mistake, such as a projection of zeros, are drawn again in the
    copy, unless you pass an oracle.

    Only what the checks pass is checked. A cache needs ``pieces``, unless the style is
    ``mha`` or the cache is this library's, and padding or lengths need an argument with
    the name of a mask. Without one, ``padding`` compares a sequence alone with the same
    in a batch. ``Report.untried`` names the arguments with one value in every check.

    Args:
        attention: The function or module.
        style: How to call it; by default inferred from the names of its arguments.
            ``ours``: ``f(q, k, v, mask=, causal=)`` or ``layer(x, mask=, causal=)``,
            with a mask that is ``True`` where a query may attend. A function gets
            heads, (B, H, T, d_k); a module with projections may also take (x, x, x).
            ``sdpa``: the same with ``attn_mask=`` and ``is_causal=``, which are not
            given together.
            ``mha``: ``layer(q, k, v, attn_mask=, key_padding_mask=)``, with masks that
            are ``True`` where a key is ignored.
            ``mask``: ``layer(x, attention_mask=)``, with a mask of another name that
            contains ``mask``, or ``attn_bias`` or ``attention_bias``.
            ``causal``: ``layer(x)``, which is always causal, or ``layer(x,
            causality=True)``, with a switch of such a name.
            ``both``: ``layer(x)`` or ``layer(x, context)``, attending to both sides.
            A layer may take (x, x, x) instead of x, and return its weights after its
            output.
        d_model: The width of the features, if it cannot be inferred.
        num_heads: The number of heads, if it cannot be inferred.
        dtype: The dtype to check in; by default float64 if the attention supports it.
        oracle: What the layer should compute, as a function of the features alone. The
            default is reference attention with the layer's weights, if its projections
            are recognized by their names or by their effect on the output. What it does
            not do either, such as a sum of one, is not asked of the layer.
        pieces: Reads features in pieces of given sizes with the layer's cache, called
            as ``pieces(layer, x, sizes)``. Not needed for functions, for the style
            ``mha``, and for layers that take this library's cache.
        projections: The names of its projections, if they are not found: those to
            queries, keys and values and the last one, such as ``("w_qs", "w_ks",
            "w_vs", "fc")``, or one to all three and the last one. The last may be
            missing.
        mask_means: The meaning of a mask: ``attend`` or ``ignore`` say what ``True``
            means, ``ones`` is a number 1 where a query may attend, and ``add`` are
            numbers to add to the scores. By default the meaning that makes the layer
            causal. If the name suggests another meaning, the result is ``not known``.
        batch_first: Whether it takes (B, T, D) rather than (T, B, D); by default its
            attribute ``batch_first``, or else ``True`` if it can take that. If it then
            reads along the first axis, the result is ``not known``.
        heads_first: Whether a function takes (B, H, T, d_k) rather than (B, T, H, d_k);
            by default ``True``. If its tokens then read no others, and do so in the
            other order, it is called in that, and the result is ``not known``.
        skip: Names of checks to leave out.

    Returns:
        A report that says ``right``, ``wrong`` or ``not known``. It is true only if no
        check failed and output and gradient were compared with an oracle. It can be
        true for a layer with arguments that were not tried: it names them.

    Raises:
        TypeError: If the attention is not callable, its style cannot be inferred, or it
            returns no tensor.
        ValueError: If it cannot be called in its style, returns another shape, modifies
            its input, or returns two outputs for one input.
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise ValueError(
            f"skip={sorted(unknown)} are not among the checks: {', '.join(CHECKS)}"
        )
    options: dict[str, Any] = {
        **{"style": style, "d_model": d_model, "num_heads": num_heads, "dtype": dtype},
        **{"known": oracle, "pieces": pieces, "projections": projections},
        **{"batch_first": batch_first, "heads_first": heads_first},
    }
    names = [name for name in CHECKS if name not in skip]
    attention, watch = watched(attention)
    report = _report_in_style(attention, names, mask_means, options)
    return report if watch is None else replace(report, untried=watch.untried)


def _report_in_style(
    attention: Callable[..., Any],
    names: Collection[str],
    mask_means: str | None,
    options: dict[str, Any],
) -> Report:
    """Return the report of ``check_attention``, whose options these are."""
    subjects = make_subjects(attention, mask_means=mask_means, **options)
    report = _report_on(subjects, names)
    flagged = isinstance(attention, nn.Module) and FLAGS & {*parameters_of(attention)}
    failed = {*report.failed} - _LIMITS
    if flagged and mask_means is None and failed == {"padding"} and not report.likely:
        # It is right with its flag and wrong with a mask: known bugs show in masks.
        with suppress(TypeError, ValueError):
            subjects = make_subjects(attention, mask_means="attend", **options)
            masked = _report_on(subjects, names)
            return masked if masked.likely else report
    return report


def _report_on(subjects: Sequence[Subject], names: Collection[str]) -> Report:
    """Return the report on the first way to call an attention that is explained."""
    if len(subjects) == 1 and not subjects[0].refusal:
        return judge(subjects[0], names)
    running: list[Subject] = []
    for each in subjects:
        with suppress(TypeError, ValueError):  # it may not run at other lengths
            tried = any(_same_answers(each, other) for other in running)
            if not tried and (asked := explained(each)) is not None:
                report = judge(asked, names)
                if report.likely or not each.refusal:
                    return report
            running.append(each)
    found: list[tuple[Subject, Likeness | None]] = []
    for at, each in enumerate(running[:_WAYS]):
        with suppress(TypeError, ValueError):
            if any(_same_answers(each, x, padded=True) for x in running[:at]):
                continue
            asked, like = diagnosed(each)
            found.append((asked, like))
            if like is not None and like.exhibits:
                return judge(asked, names, like)
    if subjects[0].refusal:
        raise TypeError(subjects[0].refusal)
    asked, like = found[0] if found else ((running or subjects)[0], None)
    return judge(asked, names, like)


def _same_answers(one: Subject, other: Subject, *, padded: bool = False) -> bool:
    """Return whether two ways to call a layer give the same answers.

    Args:
        one: The layer, called in one way.
        other: The layer, called in the other.
        padded: Whether to compare what they do with padding, too.
    """
    if (one.causal, one.unmasked, one.pads) != (
        other.causal,
        other.unmasked,
        other.pads,
    ):
        return False
    x = sample(one)
    asked: list[dict[str, Any]] = [{"causal": True}] * one.causal
    asked += [{"causal": False}] * one.unmasked
    if padded and one.pads:
        asked += [{**each, "real": left_padding(x)} for each in asked]
    one, other = one.without_dropout(), other.without_dropout()
    same = partial(torch.allclose, rtol=0.0, atol=0.0, equal_nan=True)
    return all(same(one.run(x, **each), other.run(x, **each)) for each in asked)


@_own_seed()
def judge(
    subject: Subject,
    names: Collection[str] = tuple(CHECKS),
    found: Likeness | None = None,
) -> Report:
    """Run the named checks on a subject, and compare it with the exhibits.

    Args:
        subject: What to check.
        names: The names of the checks.
        found: The exhibits that it is like, if that is known already.
    """
    try:
        report = _judged(subject, names, found)
        if report.passed and subject.otherwise is not None:
            other = judge(subject.otherwise, names)
            return report if other.passed else other
        return report
    except ValueError as error:
        told = about_lengths(error, subject.name, subject.layer, subject.width)
        raise told from error.__cause__
    except RuntimeError as error:
        raise ValueError(
            f"{subject.name} cannot be checked: {error} (does it keep tensors from an "
            "earlier call, such as a cache?)"
        ) from error


def _judged(subject: Subject, names: Collection[str], found: Likeness | None) -> Report:
    quiet = subject.without_dropout()
    _refuse_chance(quiet)
    if is_constant(quiet):
        doubt = "its output is the same whatever it is given"
        verdicts = tuple(Verdict(name, None, doubt) for name in names)
        return Report(subject.name, subject.style, verdicts, doubts=(doubt,))
    if found is None and subject.known is None and not subject.guessed:
        subject, found = recognized(subject)
    with checking():
        verdicts = verdicts_on(subject, names)
    failed = [each.check for each in verdicts if each.passed is False]
    found = likely_exhibits(subject, found) if failed else Likeness()
    excuse = _excuse(subject, verdicts) if failed and not found.exhibits else ""
    if excuse:
        verdicts = tuple(_excused(each, excuse) for each in verdicts)
        failed = [each.check for each in verdicts if each.passed is False]
    smallest = find_counterexample(subject.without_dropout(), failed)
    form = subject.guessed[0].form if len(subject.guessed) == 1 else Form()
    doubts = subject.doubts
    if subject.guessed:
        doubts = (*doubts, *doubts_about(subject, form))
    if subject.known is None:
        idle, cut = unreached(quiet)
        if idle:
            doubts = (*doubts, f"{', '.join(idle)}: without effect on the output")
        if cut:
            doubts = (*doubts, f"{', '.join(cut)}: no gradient reaches them")
    if {each.check for each in verdicts if each.reason == _MEANT} & _OF_LATER:
        doubts = (*doubts, _LATER)
    if subject.context and not failed and not reads_context(subject.without_dropout()):
        doubts = (*doubts, _CONTEXT.format(subject.context))
    if not (reads(quiet) & ~torch.eye(LENGTH, dtype=torch.bool)).any():
        doubts = (*doubts, "no token reads another, so it may not be attention")
    return Report(
        subject.name,
        subject.style,
        verdicts,
        found.exhibits,
        found.whole_only,
        doubts,
        subject.drawn,
        smallest,
        subject.notes,
        str(form),
    )


def _excuse(subject: Subject, verdicts: Sequence[Verdict]) -> str:
    """Return why a correct layer could fail these checks, or an empty text.

    It may add positions (or have a window, so that the order of the past matters), or
    normalize its queries and keys. Then the oracle is not what it should compute.
    """
    failed = {each.check for each in verdicts if each.passed is False}
    failed = failed - _LIMITS or failed
    if subject.known is None and failed <= _OF_SOFTMAX:
        if not takes_softmax(subject.without_dropout()):
            return "it computes no softmax: if that is meant, give oracle="
        if not subject.oracles():
            return "it does more than attention, or its projections were not found"
    if subject.beside and failed <= _OF_COMPARISON:
        shown = ", ".join(subject.beside[:2]) + ", ..." * (len(subject.beside) > 2)
        return f"it has {shown} besides its projections: check the attention alone"
    if subject.known is not None or not failed <= _OF_POSITIONS:
        return ""
    (order,) = verdicts_on(subject, ["permutation"])
    if order.passed is False:
        tokens = "past" if subject.causal else "tokens"
        return (
            f"the order of the {tokens} matters: it has positions or a window of an "
            "unknown kind (give oracle=), or a bug in which keys and values a head "
            "reads"
        )
    if failed <= _OF_COMPARISON and norms(subject):
        return "its queries and keys seem normalized: if that is meant, give oracle="
    # What the weights of an unused projection should have been for is no mystery.
    used = failed <= _OF_COMPARISON and not any(unreached(subject.without_dropout()))
    if used and not explains_one_token(subject):
        return (
            "what one token gets, which attends only to itself, is not what its "
            "projections give: it does more than attention (give oracle=), or has a bug"
        )
    return ""


def _excused(verdict: Verdict, reason: str) -> Verdict:
    if verdict.passed is not False or verdict.check in _LIMITS - {"dtypes"}:
        return verdict
    return Verdict(verdict.check, None, reason)


def verdicts_on(
    subject: Subject, names: Collection[str] = tuple(CHECKS)
) -> tuple[Verdict, ...]:
    """Run the named checks on a subject."""
    quiet = subject.without_dropout()
    nan = _nan_in(quiet)
    verdicts: list[Verdict] = []
    for name in names:
        try:
            # "modes" tests that dropout does nothing in evaluation mode.
            reason = CHECKS[name](subject if name == "modes" else quiet)
            reason = reason and (nan or reason)
            if reason is not None and name in _OF_FEATURES and _is_meant(quiet, name):
                raise NotApplicableError(_MEANT)
        except NotApplicableError as error:
            verdicts.append(Verdict(name, None, str(error)))
        else:
            verdicts.append(Verdict(name, reason is None, reason or ""))
    return tuple(verdicts)


def _nan_in(subject: Subject) -> str:
    """Return which rows of the output are NaN, or an empty text.

    NaN differs from itself, so it fails most checks, for reasons that mislead.
    """
    rows = subject.run(sample(subject)).isnan().any(dim=-1).any(dim=0)
    if rows.all():
        return "its output is NaN"
    found = ", ".join(str(row) for row in rows.nonzero().flatten().tolist())
    return found and f"NaN in row {found}, as from a softmax over no key"


def _is_meant(subject: Subject, name: str) -> bool:
    """Return whether the oracle that was given fails a check, too."""
    known = subject.known
    if known is None:
        return False

    def call(layer: Any, x: Tensor, causal: bool, real: Tensor | None) -> Tensor:
        return known(x.double()).to(x.dtype)

    oracle = replace(subject, layer=known, call=call, opens=False, batch_first=True)
    return CHECKS[name](oracle) is not None


def _refuse_chance(subject: Subject) -> None:
    """Raise an error if one input has two outputs, which would confuse every check."""
    x = sample(subject)
    for mode in (subject, subject.without_dropout(training=True)):
        outputs: list[Tensor] = []
        for seed in (7, 8):
            torch.default_generator.manual_seed(seed)
            outputs.append(mode.run(x))
        if not torch.equal(outputs[0].nan_to_num(), outputs[1].nan_to_num()):
            raise ValueError(subject.error_of_chance)


def assert_attention(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    oracle: Callable[[Tensor], Tensor] | None = None,
    pieces: Reader | None = None,
    projections: Sequence[str] = (),
    mask_means: str | None = None,
    batch_first: bool | None = None,
    heads_first: bool | None = None,
    skip: Collection[str] = (),
) -> None:
    """Raise an ``AssertionError`` unless ``check_attention`` finds an attention right.

    The arguments are those of ``check_attention``, and the error shows its report.
    """
    report = check_attention(
        attention,
        style=style,
        d_model=d_model,
        num_heads=num_heads,
        dtype=dtype,
        oracle=oracle,
        pieces=pieces,
        projections=projections,
        mask_means=mask_means,
        batch_first=batch_first,
        heads_first=heads_first,
        skip=skip,
    )
    assert report.passed, str(report)


@_own_seed()
def assert_causal(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    vocab_size: int | None = None,
) -> None:
    """Raise an ``AssertionError`` if an attention, or a whole model, sees the future.

    It is checked in training and in evaluation mode and, unless it is a model, with
    small and with huge scores.

    Args:
        attention: As for ``check_attention``. With ``vocab_size``, a model that returns
            logits (B, T, V) for tokens (B, T).
        style: As for ``check_attention``.
        d_model: As for ``check_attention``.
        vocab_size: V, for a model of tokens.

    Raises:
        AssertionError: If a later token changes an earlier output.
    """
    if vocab_size is not None:
        attention = _Embedded(attention, vocab_size)
        style, d_model = "causal", vocab_size
    subject = make_subject(attention, style=style, d_model=d_model)
    # A layer that hides nothing, or too little, is taken for one that means to attend
    # to both sides, and would not be asked for leaks.
    assert subject.causal, (
        f"{subject.name} attends to both sides: a later token changes an earlier output"
    )
    names = ["leak", "prefix", "modes"]
    if vocab_size is None:
        names.insert(2, "huge scores")
    report = judge(subject, names)
    assert not report.failed, str(report)
    assert any(each.passed for each in report.verdicts), str(report)


class _Embedded(nn.Module):
    """A model of tokens as a layer of features: the largest feature is the token."""

    def __init__(self, model: Callable[..., Any], vocab_size: int) -> None:
        super().__init__()
        self.model = model
        self.vocab_size = vocab_size
        self.__name__ = getattr(model, "__name__", type(model).__name__)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.argmax(dim=-1))
