"""What is asked of an attention, each question a function.

A check returns ``None`` if an attention passes, and else says what is wrong. The first
ones need nothing but the layer: they change something that must not matter. ``output``
and ``gradient`` compare with what the layer should compute.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attention_check.reference import Reference
from attention_check.subject import Dropout, NotAskedError, Subject, Use, paddings

__all__ = [
    "CHECKS",
    "LIMITS",
    "PARTS",
    "REACH",
    "SINGLE",
    "apart",
    "batch",
    "cached",
    "deviation",
    "differs",
    "empty_rows",
    "finite_differences",
    "gradient",
    "gradients",
    "half_precision",
    "huge_scores",
    "huge_uses",
    "leak",
    "modes",
    "output",
    "padding",
    "prefix",
    "row_sums",
]

# The sizes of the parts in which a sequence is read with a cache.
PARTS = {7: (3, 1, 2, 1), 67: (1, 40, 1, 20, 5)}
# Tables and steps in single precision put answers at most so far apart.
SINGLE = 1e-5
# How large the largest score becomes: the first size is met in practice.
REACH = (1e3, 1e5)


def apart(got: Tensor, right: Tensor) -> float:
    """Return how far two outputs are apart, relative to the largest number."""
    got, right = got.detach().double(), right.detach().double()
    if not torch.equal(got.isfinite(), right.isfinite()):
        return float("inf")
    if not got.numel():
        return 0.0
    size = right.nan_to_num(0.0, 0.0, 0.0).abs().max().clamp_min(1e-6)
    return float((got - right).nan_to_num(0.0, 0.0, 0.0).abs().max() / size)


def differs(subject: Subject, first: Tensor, second: Tensor) -> bool:
    """Return whether two outputs of one layer differ by more than rounding."""
    return apart(first, second) > subject.slack


def _modes(subject: Subject) -> tuple[bool, ...]:
    if not subject.modes:
        raise NotAskedError("whether it is causal is not known: give causal=")
    return subject.modes


def _causal_uses(subject: Subject) -> Iterator[Use]:
    if True not in _modes(subject):
        raise NotAskedError("it is not causal")
    if max(subject.lengths) < 2:
        raise NotAskedError("one token has no later one")
    for length in subject.lengths:
        x = subject.alone(length, causal=True).x
        yield Use(x, causal=True)
        if subject.pads and length > 2:
            for real in reversed(paddings(x)):
                yield Use(x, causal=True, real=real)


def _spread(length: int) -> list[int]:
    """Return at which tokens a sequence is changed: all of a short one."""
    few = range(1, length) if length < 9 else (1, 9, 20, 40, 60, length - 1)
    return sorted({token for token in few if token < length})


# --8<-- [start:leak]
def leak(subject: Subject) -> str | None:
    """Change the future: the past must not move."""
    for use in _causal_uses(subject):
        before, noise = subject.answer(use), subject.sample(use.x.shape[1], seed=1)
        for token in _spread(use.x.shape[1]):
            changed = torch.cat([use.x[:, :token], noise[:, token:]], dim=1)
            after = subject.answer(replace(use, x=changed))
            past = use.rows[:, :token]
            if differs(subject, after[:, :token][past], before[:, :token][past]):
                moved = (after - before)[:, :token].abs().amax(dim=-1) * past
                row = int(moved.amax(dim=0).argmax())
                return f"row {row} moves when token {token} changes{_where(use)}"
    return None


# --8<-- [end:leak]


def _where(use: Use) -> str:
    """Return what is special about a use, in words that end a sentence."""
    words = [f"in {use.x.shape[1]} tokens"] * (use.x.shape[1] > 7)
    words += ["with padding"] * (use.real is not None)
    words += ["while training"] * use.training
    return f" {' '.join(words)}" if words else ""


def prefix(subject: Subject) -> str | None:
    """Cutting off the end of a sequence changes no earlier output."""
    for use in _causal_uses(subject):
        if use.real is not None:
            continue
        length = use.x.shape[1]
        uncut = subject.answer(use)
        for cut in _spread(length):
            part = subject.answer(replace(use, x=use.x[:, :cut]))
            if differs(subject, part, uncut[:, :cut]):
                row = _first_row(subject, part, uncut[:, :cut])
                return f"row {row} changes when the rest is cut off{_where(use)}"
    return None


def _first_row(subject: Subject, first: Tensor, second: Tensor) -> int:
    rows = range(first.shape[1])
    apart_at = (row for row in rows if differs(subject, first[:, row], second[:, row]))
    return next(apart_at, 0)


def batch(subject: Subject) -> str | None:
    """A sequence has the same output alone and in a batch."""
    for use in subject.uses(padded=False, brief=True):
        batched = subject.answer(use)
        for index in range(len(use.x)):
            one = slice(index, index + 1)
            context = None if use.context is None else use.context[one]
            alone = subject.answer(replace(use, x=use.x[one], context=context))
            if differs(subject, alone, batched[one]):
                return f"sequence {index} has another output in a batch than alone"
    return None


# --8<-- [start:padding]
def padding(subject: Subject) -> str | None:
    """What stands in padding does not matter, nor does padding at the end."""
    if not subject.pads:
        raise NotAskedError("its call does not declare real")
    for use in subject.uses():
        if use.real is None or use.x.shape[1] != subject.lengths[0]:
            continue
        inside = use.context if use.context is not None else use.x
        noise = subject.draw(inside.shape[1], 1, len(inside), inside.shape[2])
        filled = torch.where(use.real[..., None], inside, noise)
        before = subject.answer(use)
        if use.context is None:
            after = subject.answer(replace(use, x=filled))
        else:
            after = subject.answer(replace(use, context=filled))
        if differs(subject, after[use.rows], before[use.rows]):
            return "what stands in the padding changes the output of other tokens"
        if use.context is not None or not use.real[:, 0].all():
            continue
        for index, count in enumerate(use.real.sum(dim=1).tolist()):
            short = Use(use.x[index, None, :count], use.causal)
            if differs(subject, subject.answer(short)[0], before[index, :count]):
                return f"a sequence of {count} tokens has another output when padded"
    return None


# --8<-- [end:padding]


# --8<-- [start:empty]
def empty_rows(subject: Subject) -> str | None:
    """With a query that may attend to nothing, output and gradient are finite."""
    if not subject.pads:
        raise NotAskedError("its call does not declare real")
    if True not in _modes(subject):
        raise NotAskedError("no query of it may attend to nothing")
    x = subject.alone(subject.lengths[0], causal=True).x.requires_grad_()
    use = Use(x, causal=True, real=paddings(x)[0])
    output = subject.answer(use)
    if not output[use.rows].isfinite().all():
        return "another query gets NaN"
    (gradient,) = torch.autograd.grad(output[use.rows].sum(), x)
    if not output.isfinite().all():
        return "such a query gets NaN"
    if not gradient.isfinite().all():
        return "the gradient is NaN"
    return None


# --8<-- [end:empty]


def output(subject: Subject) -> str | None:
    """The output equals that of the reference attention with the same weights."""
    for use in subject.uses():
        got, right = (run(use)[use.rows] for run in (subject.answer, subject.right))
        if apart(got, right) > max(SINGLE, 10 * subject.slack):
            return deviation(use, got, right)
    return None


def deviation(use: Use, got: Tensor, right: Tensor) -> str:
    """Return how far an output is off, for a report."""
    if not got.isfinite().all():
        return f"{use}: it is not finite"
    return f"{use}: up to {(got.double() - right).abs().max():.2g} apart"


def gradients(
    answer: Callable[[Use], Tensor],
    use: Use,
    kept: Tensor,
    parameters: Sequence[Tensor] = (),
) -> list[Tensor]:
    """Return the gradients of a sum of an output's rows, weighed by random numbers.

    They are those of the features, of the context, and of all parameters in one.
    """
    x = use.x.clone().requires_grad_()
    context = None if use.context is None else use.context.clone().requires_grad_()
    result = answer(replace(use, x=x, context=context))
    inputs = [x, *([] if context is None else [context]), *parameters]
    value = (result.double() * kept)[use.rows].sum()
    some = torch.autograd.grad(value, inputs, allow_unused=True)
    pairs = zip(inputs, some, strict=True)
    every = [
        (torch.zeros_like(x) if grad is None else grad).double().flatten()
        for x, grad in pairs
    ]
    own = len(every) - len(parameters)
    return every[:own] + ([torch.cat(every[own:])] if parameters else [])


def gradient(subject: Subject) -> str | None:
    """The gradient equals that of the reference attention."""
    shared = subject.module is not None and subject.dtype == torch.float64
    every = [*subject.module.parameters()] if shared and subject.module else []
    first = True
    for use in subject.uses():
        if use.real is not None and use.begins_padded:
            continue  # rows may be empty, which is a question of its own
        kept = subject.sample(use.x.shape[1], seed=4) / subject.factor
        for training in (False, True)[: 1 + first]:
            way = replace(use, training=training)
            both = (
                gradients(run, way, kept, every)
                for run in (subject.answer, subject.right)
            )
            for got, right in zip(*both, strict=True):
                if apart(got, right) > max(SINGLE, 10 * subject.slack):
                    return f"{way}: the gradient differs from the reference attention's"
        first = False
    return None


# --8<-- [start:rows]
def row_sums(subject: Subject) -> str | None:
    """An average of equal values is that value: weights sum to one."""
    for causal in _modes(subject):
        alone = subject.alone(1, causal)
        many = replace(alone, x=alone.x.expand(-1, subject.lengths[0], -1).clone())
        if subject.like is not None:
            one, all_rows = subject.right(alone), subject.right(many)
            if apart(one.expand_as(all_rows), all_rows) > SINGLE:
                raise NotAskedError("those of the reference do not either")
        outputs = subject.answer(many)
        for row in range(outputs.shape[1]):
            if differs(subject, outputs[:, row : row + 1], subject.answer(alone)):
                return f"row {row} of a repeated token differs from the token alone"
    return None


# --8<-- [end:rows]


def huge_uses(subject: Subject, reach: float) -> Iterator[Use]:
    """Yield uses of features so large that the largest score is about ``reach``."""
    modes, size = _modes(subject), 1.0
    x = subject.alone(subject.lengths[0], modes[0]).x
    if isinstance(subject.like, Reference):
        with torch.no_grad():
            size = max(subject.like.spread(x, x), 1e-6)
    for causal in modes:
        yield Use(x * (reach / size) ** 0.5, causal)


# --8<-- [start:huge]
def huge_scores(subject: Subject) -> str | None:
    """No score is large enough to beat a mask, or to overflow."""
    for reach in REACH:
        for use in huge_uses(subject, reach):
            before = subject.answer(use)
            if not before.isfinite().all():
                return f"scores of about {reach:.0e} give NaN"
            for token in range(1, use.x.shape[1]) if use.causal else ():
                changed = torch.cat([use.x[:, :token], -use.x[:, token:]], dim=1)
                after = subject.answer(replace(use, x=changed))[:, :token]
                if differs(subject, after, before[:, :token]):
                    return f"scores of about {reach:.0e} carry a token past the mask"
    return None


# --8<-- [end:huge]


def finite_differences(subject: Subject) -> str | None:
    """The gradient equals the slope that finite differences measure."""
    if subject.slack > 1e-6:
        raise NotAskedError("it does not compute in double precision")
    for causal in _modes(subject):
        x = subject.alone(subject.lengths[0], causal).x.requires_grad_()
        kept = subject.sample(subject.lengths[0], seed=4)

        def value(x: Tensor, causal: bool = causal, kept: Tensor = kept) -> Tensor:
            return (subject.answer(Use(x, causal)) * kept).sum()

        (slope,) = torch.autograd.grad(value(x), x)
        for seed in (5, 6):
            step = 1e-5 * subject.sample(subject.lengths[0], seed=seed)
            with torch.no_grad():
                rise = value(x + step) - value(x - step)
            if not (rise / 2 - (slope * step).sum()).abs() <= 1e-4 * step.norm():
                return "the gradient differs from finite differences"
    return None


# --8<-- [start:cached]
def cached(subject: Subject) -> str | None:
    """Reading a sequence in pieces, with a cache, does not change the output."""
    if subject.pieces is None:
        raise NotAskedError("give pieces= if it has a cache")
    for length in subject.lengths:
        parts = PARTS.get(length, (length - 2, 1, 1))
        use = subject.alone(length, causal=True)
        at_once, read = (
            subject.answer(variant) for variant in (use, replace(use, parts=parts))
        )
        if differs(subject, read, at_once):
            row = _first_row(subject, read, at_once)
            return f"row {row} changes when it is read in pieces of {parts}"
    return None


# --8<-- [end:cached]


# --8<-- [start:modes]
def modes(subject: Subject) -> str | None:
    """Without dropout, training and evaluating are the same, time after time."""
    for use in subject.uses(brief=True):
        kept = use.x.clone()
        plain = subject.answer(use)
        if not torch.equal(use.x, kept) or getattr(subject.layer, "writes", False):
            return "it writes into its input"
        if differs(subject, subject.answer(use)[use.rows], plain[use.rows]):
            return "it has two outputs for one input"
        with Dropout(off=True) as seen:
            evaluating = subject.answer(use, drop=True)
        if seen.largest:
            return f"evaluating, it drops with a probability of {seen.largest:.2g}"
        if differs(subject, evaluating[use.rows], plain[use.rows]):
            return "evaluating, its output depends on its dropout"
        trained = subject.answer(replace(use, training=True))
        if differs(subject, trained[use.rows], plain[use.rows]):
            return f"training and evaluating differ without dropout{_where(use)}"
    if True in _modes(subject) and not subject.crosses:
        use = Use(subject.sample(subject.lengths[0]), causal=True, training=True)
        noise = subject.sample(subject.lengths[0], seed=1)
        changed = torch.cat([use.x[:, :-1], noise[:, -1:]], dim=1)
        outputs: list[Tensor] = []
        for variant in (use, replace(use, x=changed)):
            torch.default_generator.manual_seed(9)  # drop the same weights both times
            outputs.append(subject.answer(variant, drop=True)[:, :-1])
        # Without dropout, other checks find it.
        if differs(subject, *outputs) and leak(subject) is None:
            return "training with dropout, the past moves when the last token changes"
    if (scores := _drops_scores(subject)) is not None:
        return scores
    return None


# --8<-- [end:modes]


def _drops_scores(subject: Subject) -> str | None:
    """Return what is wrong if tables are dropped whose rows do not sum to one."""
    length = subject.lengths[-1]
    use = subject.first_use(length, _modes(subject)[0])
    with Dropout(off=True) as seen:
        subject.answer(replace(use, training=True), drop=True)
    for table in seen.dropped:
        if table.shape[-2:] == (length, length) and (table < 0).any():
            return "training, it drops scores, and not weights"
    return None


def half_precision(subject: Subject) -> str | None:
    """In half precision, the output is roughly the same."""
    if subject.module is None:
        raise NotAskedError("it is no module")
    for use in subject.uses():
        if use.x.shape[1] != subject.lengths[0]:
            break
        right = subject.answer(use)[use.rows]
        if not right.isfinite().all():
            continue
        for dtype, slack in ((torch.float16, 0.02), (torch.bfloat16, 0.1)):
            low = replace(subject, layer=subject.cast(dtype), dtype=dtype)
            name = f"{dtype}".removeprefix("torch.")
            try:
                got = low.answer(use)[use.rows]
            except ValueError as error:
                return f"{name}: {error.__cause__}"
            if not apart(got, right) <= slack:
                return f"{name}: {deviation(use, got, right)}"
    return None


CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "leak": leak,
    "prefix": prefix,
    "batch": batch,
    "padding": padding,
    "empty rows": empty_rows,
    "output": output,
    "gradient": gradient,
    "row sums": row_sums,
    "huge scores": huge_scores,
    "finite differences": finite_differences,
    "cache": cached,
    "modes": modes,
    "half precision": half_precision,
}
# What a right attention may fail: these say how far it reaches.
LIMITS = ("empty rows", "huge scores", "half precision")
