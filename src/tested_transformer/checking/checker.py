"""``check_attention``: put every check to an attention that somebody else wrote."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checking.calling import make_subject, make_subjects
from tested_transformer.checking.checks import (
    CHECKS,
    LENGTH,
    NotApplicableError,
    sample,
)
from tested_transformer.checking.counterexample import find_counterexample
from tested_transformer.checking.diagnosis import Likeness, likely_exhibits, norms
from tested_transformer.checking.forms import Form
from tested_transformer.checking.guessing import explained, recognized
from tested_transformer.checking.reading import (
    is_constant,
    reads,
    takes_softmax,
    unused,
)
from tested_transformer.checking.recognizing import doubts_about
from tested_transformer.checking.report import Report, Verdict
from tested_transformer.checking.subject import Reader, Subject

__all__ = [
    "assert_attention",
    "assert_causal",
    "check_attention",
    "judge",
    "verdicts_on",
]

# What a layer may fail, and be right, if it knows where its tokens are: padding on the
# left moves them, and a table of angles in float32 is not as exact as the question.
_OF_POSITIONS = {"padding", "permutation", "output", "gradient"}
# What another average of the values may fail, which softmax attention may not.
_OF_SOFTMAX = {
    *("permutation", "output", "gradient"),
    *("row sums", "finite differences", "dtypes"),
}
# What is wrong whatever it should compute: an excuse for others is none for these.
_LIMITS = {"dtypes", "empty rows", "huge scores"}
# In how many ways that it can be called it is compared with bugs.
_WAYS = 6
# And if it norms its queries and keys.
_OF_NORMS = {"output", "gradient"}


@contextmanager
def _own_chance() -> Generator[None]:
    """Draw what is drawn from a seed of its own, and leave the caller's generators."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        yield


@_own_chance()
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
    skip: Collection[str] = (),
) -> Report:
    """Ask an attention all that ``CHECKS`` knows to ask.

    It may be a function of queries, keys and values, or a layer of features. What is
    handed over is copied, not changed: a layer, and the layers that a function names.
    Weights of the copy that would hide a mistake, such as a projection of zeros, are
    drawn anew, unless an oracle is given.

    Args:
        attention: The function or module.
        style: How to call it; by default told from the names of its arguments.
            ``ours``: ``f(q, k, v, mask=, causal=)`` or ``layer(x, mask=, causal=)``,
            a mask being ``True`` where a query may attend. A function gets heads,
            (B, H, T, d_k); a module with projections may also take (x, x, x).
            ``sdpa``: the same with ``attn_mask=`` and ``is_causal=``.
            ``mha``: ``layer(q, k, v, attn_mask=, key_padding_mask=)``, a mask being
            ``True`` where a key is ignored.
            ``mask``: ``layer(x, attention_mask=)``, a mask of any other name.
            ``causal``: ``layer(x)``, which is causal by itself.
            ``both``: ``layer(x)`` or ``layer(x, context)``, to both sides.
            A layer may take (x, x, x) for x, and give its weights after its output.
        d_model: The width of the features, where it cannot be told.
        num_heads: The number of heads, where it cannot be told.
        dtype: The type to check in; float64 for what can be moved to it.
        oracle: What the layer should compute, as a function of the features alone. By
            default it is attention in the open with the layer's weights, if it is known
            from the names, or else from what each does, which are its projections.
        pieces: Reads features in pieces of given sizes, with the layer's cache, called
            as ``pieces(layer, x, sizes)``; known for the styles ``ours`` and ``mha``
            and for functions.
        projections: The names of its projections, where they are not found: to queries,
            keys and values and the last one, ``("w_qs", "w_ks", "w_vs", "fc")``, or one
            to all three and the last one. The last may be missing.
        mask_means: What is in a mask: ``attend`` or ``ignore``, which is what ``True``
            means, ``ones`` for a number of 1 where a query may attend, or ``add`` for
            numbers that are added to the scores. By default what makes the layer
            causal; if the name says something else, that is not known to be right.
        batch_first: Whether it takes (B, T, D), and not (T, B, D); by default what its
            attribute ``batch_first`` says.
        skip: Names of checks to leave out.

    Returns:
        What was found: ``right``, ``wrong`` or ``not known``. It is true if output and
        gradient were compared with an oracle and nothing failed.

    Raises:
        TypeError: If it cannot be called, its style cannot be told, or it returns
            something that is no tensor.
        ValueError: If it cannot be called with what its style says, returns another
            shape, writes into what it is given, or gives two outputs for one input.
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise ValueError(f"skip={sorted(unknown)} are no checks: {', '.join(CHECKS)}")
    subjects = make_subjects(
        attention,
        style=style,
        d_model=d_model,
        num_heads=num_heads,
        dtype=dtype,
        known=oracle,
        pieces=pieces,
        projections=projections,
        mask_means=mask_means,
        batch_first=batch_first,
    )
    names = [name for name in CHECKS if name not in skip]
    if len(subjects) == 1 and not subjects[0].refusal:
        return judge(subjects[0], names)
    running: list[Subject] = []
    for each in subjects:
        with suppress(TypeError, ValueError):  # for other lengths it may not run
            if (asked := explained(each)) is not None:
                return judge(asked, names)
            running.append(each)
    for each in running[:_WAYS]:
        with suppress(TypeError, ValueError):
            asked, like = recognized(each)
            if like is not None and like.exhibits:
                return judge(asked, names, like)
    if subjects[0].refusal:
        raise TypeError(subjects[0].refusal)
    return judge((running or subjects)[0], names)


@_own_chance()
def judge(
    subject: Subject,
    names: Collection[str] = tuple(CHECKS),
    found: Likeness | None = None,
) -> Report:
    """Put the named checks to a subject, and look for its like among the exhibits.

    Args:
        subject: What is asked.
        names: Of the checks.
        found: The exhibits that it is like, if they have been looked for.
    """
    quiet = subject.without_dropout()
    _refuse_chance(quiet)
    if is_constant(quiet):
        doubt = "its output is the same whatever it is given"
        verdicts = tuple(Verdict(name, None, doubt) for name in names)
        return Report(subject.name, subject.style, verdicts, doubts=(doubt,))
    if subject.known is None and not subject.guessed:
        subject, found = recognized(subject)
    verdicts = verdicts_on(subject, names)
    failed = any(each.passed is False for each in verdicts)
    found = likely_exhibits(subject, found) if failed else Likeness()
    excuse = _excuse(subject, verdicts) if failed and not found.exhibits else ""
    if excuse:
        verdicts = tuple(_excused(each, excuse) for each in verdicts)
        failed = any(each.passed is False for each in verdicts)
    smallest = find_counterexample(subject.without_dropout()) if failed else None
    form = subject.guessed[0].form if len(subject.guessed) == 1 else Form()
    doubts = subject.doubts
    if subject.guessed:
        doubts = (*doubts, *doubts_about(subject, form))
    if subject.known is None and (idle := unused(quiet)):
        doubts = (*doubts, f"{', '.join(idle)}: no part in what it computes")
    if not (reads(quiet) & ~torch.eye(LENGTH, dtype=torch.bool)).any():
        doubts = (*doubts, "no token reads another: it may be no attention")
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
    """Return why a layer that is right may fail what it fails, or nothing.

    It may add positions (a window, too, makes the order of the past matter), or norm
    its queries and keys: then it is not what it is compared with.
    """
    failed = {each.check for each in verdicts if each.passed is False}
    failed = failed - _LIMITS or failed
    if subject.known is None and failed <= _OF_SOFTMAX:
        if not takes_softmax(subject.without_dropout()):
            return "it computes no softmax: if it should not, give oracle="
        if not subject.oracles():
            return "it does more than attention, or its projections cannot be told"
    if subject.known is not None or not failed <= _OF_POSITIONS:
        return ""
    (order,) = verdicts_on(subject, ["permutation"])
    if order.passed is False:
        return "the order of the past matters: if it adds positions, give oracle="
    if failed <= _OF_NORMS and norms(subject):
        return "its queries and keys seem to be normed: if they should be, give oracle="
    return ""


def _excused(verdict: Verdict, reason: str) -> Verdict:
    if verdict.passed is not False or verdict.check in _LIMITS - {"dtypes"}:
        return verdict
    return Verdict(verdict.check, None, reason)


def verdicts_on(
    subject: Subject, names: Collection[str] = tuple(CHECKS)
) -> tuple[Verdict, ...]:
    """Put the named checks to a subject."""
    quiet = subject.without_dropout()
    verdicts: list[Verdict] = []
    for name in names:
        try:
            # Whether dropout stays out of the way while evaluating is the question.
            reason = CHECKS[name](subject if name == "modes" else quiet)
        except NotApplicableError as error:
            verdicts.append(Verdict(name, None, str(error)))
        else:
            verdicts.append(Verdict(name, reason is None, reason or ""))
    return tuple(verdicts)


def _refuse_chance(subject: Subject) -> None:
    """Refuse what gives two outputs for one input: no check could tell why."""
    x = sample(subject)
    for mode in (subject, subject.without_dropout(training=True)):
        outputs: list[Tensor] = []
        for seed in (7, 8):
            torch.manual_seed(seed)
            outputs.append(mode.run(x))
        if not torch.equal(outputs[0].nan_to_num(), outputs[1].nan_to_num()):
            raise ValueError(
                f"{subject.name} gives two outputs for one input: switch its dropout "
                "off, or whatever else it draws by chance"
            )


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
    skip: Collection[str] = (),
) -> None:
    """Raise an ``AssertionError`` unless an attention is known to be right.

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
        skip=skip,
    )
    assert report.passed, str(report)


@_own_chance()
def assert_causal(
    attention: Callable[..., Any],
    *,
    style: str | None = None,
    d_model: int | None = None,
    vocab_size: int | None = None,
) -> None:
    """Raise an ``AssertionError`` if an attention, or a whole model, sees the future.

    It is asked while training and while evaluating, with scores of all sizes.

    Args:
        attention: As for ``check_attention``; or with ``vocab_size`` a model that gives
            logits (B, T, V) for tokens (B, T).
        style: As for ``check_attention``.
        d_model: As for ``check_attention``.
        vocab_size: V, for a model of tokens.

    Raises:
        AssertionError: If something later changes something earlier.
    """
    if vocab_size is not None:
        attention = _Embedded(attention, vocab_size)
        style, d_model = "causal", vocab_size
    subject = make_subject(attention, style=style, d_model=d_model)
    names = ["leak", "prefix", "modes"]
    if vocab_size is None:
        names.insert(2, "huge scores")
    report = judge(subject, names)
    assert not report.failed, str(report)
    assert any(each.passed for each in report.verdicts), str(report)


class _Embedded(nn.Module):
    """A model of tokens as a layer of features: which token, is which is largest."""

    def __init__(self, model: Callable[..., Any], vocab_size: int) -> None:
        super().__init__()
        self.model = model
        self.vocab_size = vocab_size
        self.__name__ = getattr(model, "__name__", type(model).__name__)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.argmax(dim=-1))
