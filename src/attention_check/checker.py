"""``check_attention``: compare an attention with what it should compute."""

import copy
import inspect
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from attention_check.checks import CHECKS, LIMITS, REACH, SINGLE, apart
from attention_check.exhibits import KNOWN, Exhibit
from attention_check.naming import Naming
from attention_check.reference import Reference
from attention_check.report import Counterexample, Report, Verdict
from attention_check.subject import (
    HeadsLayer,
    LikeError,
    NotAskedError,
    Subject,
    Use,
    declared,
    first,
    prepare,
)
from attention_check.usual import (
    Usual,
    adapter_for,
    arguments_of,
    as_layer,
    forms,
    never_passed,
    recognize,
)

__all__ = [
    "adapter",
    "assert_attention",
    "assert_causal",
    "check_attention",
    "run_checks",
]

# More bugs than so many that give the same answers help nobody.
_MOST = 3


@contextmanager
def _own_seed() -> Generator[None]:
    """Draw random numbers from a fixed seed, and restore the caller's generators."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.default_generator.manual_seed(0)
        yield


@singledispatch
def adapter(layer: object) -> dict[str, Any]:
    """Return ``call``, ``like`` and perhaps ``pieces`` for a layer of a known class."""
    return {}


@_own_seed()
def check_attention(
    attention: Callable[..., Any],
    *,
    call: Callable[..., Any] | None = None,
    like: Reference | Callable[..., Any] | None = None,
    pieces: Callable[[Any, list[Tensor]], Any] | None = None,
    causal: bool | None = None,
    d_model: int | None = None,
    d_context: int | None = None,
    lengths: int | Sequence[int] = (7, 67),
    skip: Collection[str] = (),
) -> Report:
    """Check an attention: is it what it should be, however it is used?

    Nothing is guessed. How an attention is called and what it should compute is known
    if both are usual; else the report holds an adapter to complete: ``call``, ``like``
    or both. The layer is copied together with the reference, and stays as it is. In the
    copy, constant parameters, which would hide a bug, are drawn again.

    The adapter of a class is registered once: ``@adapter.register`` stands before a
    function of a layer that returns these arguments.

    Args:
        attention: A layer of features (B, T, D), or a function of heads (B, H, T, d).
        call: Calls the layer: ``call(layer, x, *, causal, real, context)``, or a
            function: ``call(function, q, k, v, *, causal, real)``. Leave out the
            keywords that it cannot do. ``causal`` is a bool. ``real``, (B, S), is
            ``True`` for tokens and ``False`` for padding; ``context``, (B, S, D), is
            what is attended to. With the default ``None``, these two are passed only
            if there is padding, or another context than ``x``.
        like: What it should compute: a ``Reference``, or a function with the
            parameters of ``call``.
        pieces: Reads a sequence with the layer's cache: ``pieces(layer, parts)`` takes
            a list of (B, t, D) and returns their outputs.
        causal: Whether it is causal, if ``call`` cannot say.
        d_model: D, if it is not the size of a parameter.
        d_context: The width of a context; D by default.
        lengths: How long the sequences are; the first has to work.
        skip: Names of ``CHECKS`` to leave out.

    Returns:
        A report, which is true if the attention is right, perhaps within limits.

    Raises:
        TypeError: If the attention or an adapter is not callable.
        ValueError: If the layer cannot be copied, or cannot be called so.
    """
    lengths = (lengths,) if isinstance(lengths, int) else tuple(lengths)
    _validate(attention, call, like, pieces, skip, causal, lengths)
    settings = {"d_model": d_model, "d_context": d_context, "lengths": lengths}
    brought = adapter(attention) if call is None and like is None else {}
    if brought:
        own: dict[str, Any] = {"pieces": pieces, "causal": causal}
        arguments = brought | {
            key: value for key, value in own.items() if value is not None
        }
        try:
            return _checked(attention, **arguments, skip=skip, settings=settings)
        except ValueError:
            if _takes_after(attention):
                raise
    return _checked(attention, call, like, pieces, causal, skip=skip, settings=settings)


def _takes_after(attention: Any) -> bool:
    """Return whether an attention is called as the class whose adapter it has."""
    kinds = type(attention).__mro__
    known = next((kind for kind in kinds if kind in adapter.registry), object)
    return getattr(known, "forward", None) is getattr(type(attention), "forward", None)


def _checked(
    attention: Any,
    call: Callable[..., Any] | None = None,
    like: Any = None,
    pieces: Any = None,
    causal: bool | None = None,
    *,
    skip: Collection[str],
    settings: dict[str, Any],
) -> Report:
    """Check an attention with what is said about it."""
    name = _name(attention)
    usual = recognize(attention, call)
    if usual.call is None:
        text = adapter_for(
            attention, usual, call=True, causal=causal, asks=True, like=like is None
        )
        reason = "how it is called is not usual"
        return Report(name=name, state="cannot tell", reason=reason, adapter=text)
    words = declared(usual.call)
    if isinstance(like, Reference):
        causal = like.causal if causal is None else causal
    elif like is not None:
        like = as_layer(like) if isinstance(usual.layer, HeadsLayer) else like
        if beyond := [word for word in declared(like) if word not in words]:
            raise TypeError(
                f"like has the keyword {beyond[0]}, and call has not: it could not be "
                "told which of the two is meant"
            )
        causal = False if causal is None else causal  # the past is not asked about
    try:
        subject, likes = prepare(
            usual.layer,
            usual.call,
            [like] if like is not None else [*forms(usual, causal)],
            name=name,
            pieces=pieces,
            causal=causal,
            **settings,
        )
    except ValueError as error:
        if call is not None or like is not None:
            raise
        text = adapter_for(attention, usual, call=True, causal=causal, asks=True)
        reason = f"called in the usual way it fails ({error})"
        return Report(name=name, state="cannot tell", reason=reason, adapter=text)
    seen = _watch(attention, subject.layer)
    if like is None:
        chosen = _choose(subject, likes) or subject
    else:
        chosen = replace(subject, like=likes[0])
    if isinstance(chosen.like, Reference) and "causal" in words:
        chosen.like.causal = None
    report = _judged(chosen, _verdicts(chosen, skip))
    report = replace(
        report,
        never_passed=never_passed(attention, seen),
        unused=_unused(chosen, buffers=like is None),
    )
    if like is None:
        return _asking(report, chosen, attention, usual, call, causal)
    every = (
        {name for name, _ in chosen.layer.named_parameters()} if chosen.module else {}
    )
    if every and {*report.unused} == {*every}:
        reason = "no parameter of the layer that call is given has an effect: use it"
        return replace(report, state="cannot tell", reason=reason)
    return report


@_own_seed()
def run_checks(
    attention: Callable[..., Any],
    *,
    call: Callable[..., Any],
    like: Reference | Callable[..., Any],
    pieces: Callable[[Any, list[Tensor]], Any] | None = None,
) -> list[Verdict]:
    """Put an attention to all checks, without looking for the name of a bug.

    The arguments are those of ``check_attention``.

    Raises:
        ValueError: If the layer cannot be copied, or cannot be called so.
    """
    subject, likes = prepare(
        attention,
        call,
        [like],
        name=_name(attention),
        pieces=pieces,
    )
    return _verdicts(replace(subject, like=likes[0]), ())


def _validate(
    attention: Any,
    call: Any,
    like: Any,
    pieces: Any,
    skip: Collection[str],
    causal: Any,
    lengths: Sequence[int],
) -> None:
    for name, value in (("attention", attention), ("call", call), ("like", like)):
        if not callable(value) and (value is not None or name == "attention"):
            raise TypeError(f"{name} must be callable; it is a {type(value).__name__}")
    if inspect.isclass(attention):
        raise TypeError(
            f"{attention.__name__} is a class: make a layer of it, and pass that"
        )
    if causal is not None and not isinstance(causal, bool):
        raise TypeError(f"causal must be True or False; it is {causal!r}")
    if not lengths or not all(isinstance(x, int) and x > 0 for x in lengths):
        raise ValueError(f"lengths={lengths} must be positive numbers of tokens")
    if pieces is not None and not callable(pieces):
        raise TypeError(f"pieces must be callable; it is a {type(pieces).__name__}")
    if unknown := [check for check in skip if check not in CHECKS]:
        raise ValueError(f"skip={unknown} must be among {', '.join(CHECKS)}")


def _name(attention: Any) -> str:
    if isinstance(attention, nn.Module):
        return type(attention).__name__
    return getattr(attention, "__name__", type(attention).__name__)


def _watch(attention: Any, layer: Any) -> set[str]:
    """Note in a set which arguments of a layer get another value than their default."""
    seen: set[str] = set()
    parameters = arguments_of(attention)
    names = [name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]

    def note(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        for name, value in arguments.items():
            default = parameters[name].default if name in parameters else None
            plain = isinstance(value, bool | int | float | str | type(None))
            if not (plain and (value == default or value is None)):
                seen.add(name)

    if isinstance(layer, torch.jit.ScriptModule):
        return seen  # it cannot be watched
    if isinstance(attention, nn.Module) and isinstance(layer, nn.Module):
        inner = getattr(layer, "function", layer)
        inner.register_forward_pre_hook(note, with_kwargs=True)
    elif isinstance(layer, HeadsLayer):
        function = layer.function

        def noted(*args: Any, **kwargs: Any) -> Any:
            note(None, args, kwargs)
            return function(*args, **kwargs)

        layer.function = noted
    return seen


def _choose(subject: Subject, forms: list[Reference]) -> Subject | None:
    """Return the usual form that a layer has, exactly, or has but for a known bug."""
    tried: list[Subject] = []
    for like in forms:
        if "causal" in subject.declared:
            if like.causal:
                continue
            like.causal = None
        tried.append(replace(subject, like=like, causal=like.causal))
    for formed in tried:
        use = next(formed.uses(padded=False))
        try:
            with torch.no_grad():
                gap = apart(formed.answer(use), formed.right(use))
        except (RuntimeError, IndexError, ValueError):
            continue  # an odd width cannot be rotary
        if gap <= max(SINGLE, 10 * subject.slack):
            return formed
    for formed in tried:
        try:
            naming = Naming(formed)
            if naming.bugs()[0] or naming.factor() is not None:
                return formed
        except (RuntimeError, IndexError, ValueError):
            continue
    return None


def _verdicts(subject: Subject, skip: Collection[str]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for name, check in CHECKS.items():
        if name in skip:
            verdicts.append(Verdict(name, None, "skipped"))
            continue
        try:
            reason = check(subject)
        except NotAskedError as why:
            verdicts.append(Verdict(name, None, str(why)))
        except LikeError:
            raise
        except ValueError as error:
            verdicts.append(Verdict(name, False, str(error)))
        except Exception as error:  # gradients that are cut off, say
            message = " ".join(f"{type(error).__name__}: {error}".split())
            verdicts.append(Verdict(name, False, message))
        else:
            verdicts.append(Verdict(name, reason is None, reason or ""))
    return verdicts


def _judged(subject: Subject, verdicts: list[Verdict]) -> Report:
    """Return the report of verdicts: with the name of the bug, if it has one."""
    failed = {
        verdict.check: verdict.reason for verdict in verdicts if verdict.passed is False
    }
    limits = {
        check: reason
        for check, reason in failed.items()
        if check in LIMITS and f"{REACH[0]:.0e}" not in reason
    }
    wrong = {check: failed[check] for check in failed if check not in limits}
    bugs: Sequence[Exhibit] = ()
    of_limits: Sequence[Exhibit] = ()
    measured, notes = "", _notes(subject)
    known = isinstance(subject.like, Reference)
    if known and failed:
        naming = Naming(subject)
        if {*wrong} - {*LIMITS}:
            bugs, measured, scope = _named(naming, wrong)
            notes += [f"The answers were compared {scope}."] * bool(scope)
        else:
            of_limits = naming.limits(failed)
            bugs = of_limits if wrong else ()
    compared = any(verdict.check == "output" and verdict.passed for verdict in verdicts)
    state = "within limits" if limits else "right"
    state = "wrong" if wrong else state if compared else "cannot tell"
    return Report(
        name=subject.name,
        state=state,
        verdicts=verdicts,
        kind=", ".join(subject.like.properties())
        if isinstance(subject.like, Reference)
        else "",
        bugs=bugs,
        limits=of_limits,
        measured=measured,
        counterexample=_smallest(subject) if {"output", "leak"} & {*wrong} else None,
        reason="" if compared else _unknown(subject),
        lengths=subject.lengths,
        notes=notes,
    )


def _unknown(subject: Subject) -> str:
    if subject.like is None:
        return "what it should compute is not known"
    return "whether it is causal is not said: give causal="


def _notes(subject: Subject) -> list[str]:
    least = subject.least if subject.dtype == torch.float64 else subject.dtype
    notes = [f"It computes in {str(least).removeprefix('torch.')}, and was checked so."]
    notes = notes if least != torch.float64 else []
    notes += [f"Longer sequences were left out: {why}" for why in subject.left_out]
    return notes


def _named(naming: Naming, wrong: dict[str, str]) -> tuple[Sequence[Exhibit], str, str]:
    """Return the bugs that a layer may have, a measured mistake, and where."""
    try:
        bugs, scope = naming.bugs()
        if 0 < len(bugs) <= _MOST:
            return bugs, "", scope
        if (scales := naming.factor()) is not None:
            got, due = scales
            measured = f"the factor of the scores is {got:.4g} instead of {due:.4g}"
            return (), measured, ""
    except ValueError:  # it cannot be called in some use
        return (), "", ""
    if {*wrong} == {"modes"} and "drops with" in wrong["modes"]:
        return [exhibit for exhibit in KNOWN.values() if exhibit.step == "drop"], "", ""
    return (), "", ""


def _smallest(subject: Subject) -> Counterexample | None:
    """Return the shortest sequence whose output is wrong."""
    for length in range(1, subject.lengths[0] + 1):
        for causal in subject.modes:
            use = Use(subject.sample(length, batch=1), causal)
            try:
                with torch.no_grad():
                    got, right = subject.answer(use), subject.right(use)
            except (NotAskedError, ValueError):
                continue
            if apart(got, right) > max(SINGLE, 10 * subject.slack):
                gaps = (got.double() - right)[0].abs().nan_to_num(torch.inf)
                token = int((gaps > SINGLE).any(dim=-1).nonzero()[0])
                feature = int(gaps[token].argmax())
                came, due = (float(x[0, token, feature]) for x in (got, right))
                return Counterexample(str(use), length, token, feature, came, due)
    return None


def _unused(subject: Subject, *, buffers: bool) -> list[str]:
    """Return the parameters, and perhaps buffers, that have no part in the output."""
    layer = subject.module
    if layer is None or not subject.modes:
        return []
    use = next(subject.uses(padded=False))
    try:
        output = subject.answer(use)
        named = {name: p for name, p in layer.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(
            output.double().sum(), [*named.values()], allow_unused=True
        )
    except (ValueError, RuntimeError):
        return []
    unused = [name for name, grad in zip(named, grads, strict=True) if grad is None]
    for name, buffer in layer.named_buffers() if buffers else ():
        kept = buffer.clone()
        try:
            answers: list[Tensor] = []
            for value in (0, 1):
                buffer.fill_(value)
                answers.append(subject.answer(use))
            # What only a cache needs has its part in another use.
            if torch.equal(*answers) and subject.pieces is None:
                unused.append(name)
        except (ValueError, RuntimeError):
            pass
        finally:
            buffer.copy_(kept)
    return unused


def _asking(
    report: Report,
    subject: Subject,
    attention: Any,
    usual: Usual,
    call: Any,
    causal: bool | None,
) -> Report:
    """Return a report that asks for what was not said, if more has to be."""
    unpassed = [] if call is not None else report.never_passed
    if report.state == "wrong" and not _may_be_meant(report, unpassed):
        return _scaled(report, subject)
    unknown = subject.like is None
    side = "causal" not in subject.declared and causal is None
    side = side and (unknown or subject.causal is False)
    reasons = [
        *["what it should compute is not usual"] * unknown,
        *["whether it should attend to both sides is not said"]
        * (side and not unknown),
        *[f"no call passed {', '.join(unpassed)}"] * bool(unpassed),
        *[f"nothing depends on {', '.join(report.unused)}"] * bool(report.unused),
    ]
    if report.state == "wrong" and not reasons:
        mistake = report.bugs[0].mistake if report.bugs else report.failed[0]
        reasons = [f"it may be meant: {mistake}"]
    if not reasons:
        return report
    text = ""
    if unknown or side or unpassed:
        text = adapter_for(
            attention,
            usual,
            call=bool(unpassed) or unknown,
            causal=causal,
            asks=side,
            like=unknown,
        )
    return replace(report, state="cannot tell", reason="; ".join(reasons), adapter=text)


# What is no bug if another softmax is meant.
_OF_SOFTMAX = {"output", "gradient", "row sums", *LIMITS}


def _may_be_meant(report: Report, unpassed: Sequence[str]) -> bool:
    """Return whether a failure may be meant, as nobody said how a layer is used.

    It may take (T, B, D), need an argument, or attend otherwise than with softmax.
    """
    if report.bugs:
        return any(bug.name == "attention-across-batch" for bug in report.bugs)
    return bool(unpassed) or {*report.failed} <= _OF_SOFTMAX


def _scaled(report: Report, subject: Subject) -> Report:
    """Return a report that asks about a scale, if nothing else is unusual.

    T5 has no scale, and muP another: only its author knows what is meant.
    """
    if isinstance(subject.layer, HeadsLayer) or not (
        report.measured
        or (report.bugs and all(bug.step == "score" for bug in report.bugs))
    ):
        return report
    if not {*report.failed} <= {"output", "gradient", "half precision"}:
        return report
    scales = Naming(subject).factor()
    if scales is None:
        return report
    got, usual = scales
    reason = (
        f"its scores have the factor {got:.4g}, and {usual:.4g} is usual: if that is "
        f"meant, give like=Reference(..., scale={got:.4g})"
    )
    return replace(report, state="cannot tell", reason=reason)


def assert_attention(attention: Callable[..., Any], **settings: Any) -> None:
    """Raise an ``AssertionError`` with the report, unless an attention is right.

    It may be right within limits. The settings are those of ``check_attention``.

    Raises:
        AssertionError: If it is wrong, or it cannot be told.
        TypeError: If the attention or an adapter is not callable.
        ValueError: If the layer cannot be copied, or cannot be called so.
    """
    report = check_attention(attention, **settings)
    if not report:
        raise AssertionError(str(report))


@_own_seed()
def assert_causal(
    model: nn.Module,
    *,
    vocab_size: int | None = None,
    d_model: int | None = None,
    call: Callable[[Any, Tensor], Any] | None = None,
    lengths: Sequence[int] = (7, 67),
) -> None:
    """Raise an ``AssertionError`` if an output depends on a later token.

    The model is asked while evaluating and while training, with its dropout, at each
    token of a short sequence and at some of a long one, unless it takes no long ones.

    Args:
        model: A layer of features, or a model of tokens.
        vocab_size: How many tokens there are, for a model of tokens.
        d_model: The width of the features, for a layer.
        call: How it is called: ``call(model, x)``; ``model(x)`` by default.
        lengths: How long the sequences are.

    Raises:
        AssertionError: If it is not causal: the message says where.
        ValueError: If neither ``vocab_size`` nor ``d_model`` is given.
    """
    if (vocab_size is None) == (d_model is None):
        raise ValueError(
            "give vocab_size for a model of tokens, or d_model for a layer"
        )
    model = copy.deepcopy(model).double()

    def draw(length: int, seed: int) -> Tensor:
        source = torch.Generator().manual_seed(seed)
        if vocab_size is not None:
            return torch.randint(vocab_size, (2, length), generator=source)
        shape = (2, length, d_model or 1)
        return torch.randn(shape, generator=source, dtype=torch.float64)

    def run(x: Tensor) -> Tensor:
        torch.default_generator.manual_seed(9)  # the same dropout each time
        return first(model(x) if call is None else call(model, x))

    for training in (False, True):
        model.train(training)
        for length in lengths:
            x = draw(length, 0)
            try:
                before = run(x)
            except Exception:
                if length == lengths[0]:
                    raise
                continue  # longer than the model can read
            tokens = range(1, length) if length < 9 else (1, length // 2, length - 1)
            for token in tokens:
                later = draw(length, 1)[:, token:]
                if vocab_size is not None:
                    later = (x[:, token:] + 1) % vocab_size
                after = run(torch.cat([x[:, :token], later], dim=1))
                gap = apart(after[:, :token], before[:, :token])
                if gap > 1e-6:
                    mode = "training" if training else "evaluating"
                    raise AssertionError(
                        f"{_name(model)} is not causal: {mode}, of {length} tokens, a "
                        f"row before {token} moves when token {token} changes"
                    )
