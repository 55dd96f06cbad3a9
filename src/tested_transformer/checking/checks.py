"""The checks: properties that every correct attention has, and that few people test.

Each check takes a ``Subject`` and returns what went wrong, or ``None``. It raises
``NotApplicableError`` if it does not apply to the subject. Some checks change something
that must not matter, and need no reference. The others compare: with an oracle, with
finite differences, or with another way to run the same attention.
"""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.checking.forms import FormedAttention
from tested_transformer.checking.subject import Subject
from tested_transformer.training import honest_loss

__all__ = [
    "CHECKS",
    "LENGTH",
    "PIECES",
    "NotApplicableError",
    "Oracle",
    "answers",
    "cached",
    "close",
    "dtypes",
    "empty_rows",
    "finite_differences",
    "honest",
    "huge_scores",
    "leak",
    "left_padding",
    "modes",
    "oracles",
    "padding",
    "permutation",
    "prefix",
    "reads_context",
    "require_averages",
    "require_causal",
    "rows",
    "same_gradient",
    "same_output",
    "sample",
]

# Pairwise different, and different from any usual number of heads.
_BATCH, LENGTH = 3, 7
PIECES = (3, 1, 2, 1)
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 6e-2,
    torch.float16: 1e-2,
}


class NotApplicableError(Exception):
    """A check does not apply to a subject."""


def sample(subject: Subject, seed: int = 0) -> Float[Tensor, "B T D"]:
    """Return a random batch of sequences for a subject."""
    return _drawn(subject.width, seed).to(subject.dtype, copy=True)


@cache
def _drawn(width: int, seed: int) -> Float[Tensor, "B T D"]:
    """Draw a batch once, since wide ones take longer than the layer that reads them."""
    generator = torch.Generator().manual_seed(seed)
    shape = _BATCH, LENGTH, width
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def close(
    subject: Subject,
    one: Float[Tensor, "*shape"],
    other: Float[Tensor, "*shape"],
    slack: float = 0.0,
) -> Bool[Tensor, ""]:
    """Return whether two outputs are equal up to rounding. NaN equals nothing.

    Args:
        subject: What returned one of them; its dtype sets the tolerance.
        one: An output.
        other: Another.
        slack: The least tolerance, relative to the largest number.
    """
    one, other = one.detach().double(), other.detach().double()
    tolerance = max(_TOLERANCE[subject.dtype], slack) * (1 + other.abs().max())
    return ((one - other).abs() <= tolerance).all()


def left_padding(x: Float[Tensor, "B T D"]) -> Bool[Tensor, "B T"]:
    """Return which tokens are real if each sequence is 2 shorter than the one before.

    The padding is on the left.
    """
    lengths = torch.arange(x.shape[1], 0, -2)[: len(x), None]
    return torch.arange(x.shape[1]) >= x.shape[1] - lengths


def require_causal(subject: Subject) -> None:
    """Stop a check that only applies to causal attention.

    Raises:
        NotApplicableError: If the subject attends to both sides.
    """
    if not subject.causal:
        raise NotApplicableError("attends to both sides")


def require_averages(subject: Subject) -> None:
    """Stop a check that needs equal tokens to have equal outputs.

    Raises:
        NotApplicableError: If the subject's form gives them other outputs.
    """
    if not all(each.form.averages for each in subject.guessed):
        raise NotApplicableError(
            "its values depend on positions, or its heads are mixed"
        )


# --8<-- [start:leak]
def leak(subject: Subject) -> str | None:
    """Change the future: the past must not move."""
    require_causal(subject)
    x, other = sample(subject), sample(subject, seed=1)
    before = subject.run(x)
    for token in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, token] = other[:, token]
        after = subject.run(changed)
        for row in range(token):
            if not close(subject, after[:, row], before[:, row]):
                return f"row {row} moves when token {token} changes"
    return None


# --8<-- [end:leak]


class _Guesser(nn.Module):
    """A language model around a subject, with random embeddings and logits."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = subject
        generator = torch.Generator().manual_seed(2)
        table = torch.randn(11, subject.width, generator=generator)
        self.tokens = nn.Embedding.from_pretrained(table.to(subject.dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return (x + self.subject.run(x)) @ self.tokens.weight.mT / x.shape[-1] ** 0.5


def honest(subject: Subject) -> str | None:
    """Removing the later tokens does not change the loss."""
    require_causal(subject)
    tokens = torch.randint(11, (40,), generator=torch.Generator().manual_seed(3))
    found = honest_loss(
        _Guesser(subject), tokens, seq_len=7, num_windows=4, num_positions=7
    )
    # Written with not and <=, since NaN would pass a comparison with >.
    if not found.gap <= 10 * max(_TOLERANCE[subject.dtype], 1e-4):
        return f"loss {found.full:.2f}, from the prefix alone {found.prefix:.2f}"
    return None


def prefix(subject: Subject) -> str | None:
    """Cutting off the end of a sequence changes no earlier output."""
    require_causal(subject)
    x = sample(subject)
    whole = subject.run(x)
    for length in range(1, x.shape[1]):
        cut = subject.run(x[:, :length])
        for row in range(length):
            if not close(subject, cut[:, row], whole[:, row]):
                return f"row {row} changes when the rest is cut off"
    return None


def padding(subject: Subject) -> str | None:
    """A sequence has the same output alone and in a padded batch."""
    x = sample(subject)
    real = left_padding(x) if subject.pads else torch.ones(x.shape[:2]).bool()
    if any(each.form.counts_from_start for each in subject.guessed):
        real = real.flip(1)  # padding on the left would shift the tokens
    together = subject.run(x, real=real if subject.pads else None)
    for row in range(len(x)):
        alone = subject.run(x[row : row + 1, real[row]])
        if not close(subject, together[row, real[row]], alone[0], subject.slack):
            padded = "" if real[row].all() else "padded "
            return f"sequence {row} has another output in a {padded}batch than alone"
    return None


# --8<-- [start:empty]
def empty_rows(subject: Subject) -> str | None:
    """With a query that may attend to nothing, output and gradient are finite."""
    if not subject.pads:
        raise NotApplicableError("takes no padding mask")
    x = sample(subject).requires_grad_()
    real = left_padding(x)
    output = subject.run(x, real=real)
    if not output.isfinite().all():
        return "a query that may attend to nothing gets NaN"
    (gradient,) = torch.autograd.grad(output[real].sum(), x)
    if not gradient.isfinite().all():
        return "the output is finite, but the gradient of the real tokens is NaN"
    return None


# --8<-- [end:empty]


def permutation(subject: Subject) -> str | None:
    """Without positions, the order of the tokens that a query reads does not matter."""
    if subject.known:
        raise NotApplicableError("the oracle may have positions")
    if any(each.form.knows_order for each in subject.guessed):
        raise NotApplicableError("it has positions, or a window")
    x = sample(subject)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    past = torch.cat([x[:, order], x[:, 6:]], dim=1)
    if not close(subject, subject.run(past)[:, -1], subject.run(x)[:, -1]):
        others = "past" if subject.causal else "other tokens"
        return f"the last row changes with the order of the {others}"
    if subject.unmasked:
        both = subject.run(x, causal=False)
        order = torch.tensor([6, 4, 2, 0, 5, 1, 3])
        if not close(subject, subject.run(x[:, order], causal=False), both[:, order]):
            return "without a mask, the rows do not follow the order of the tokens"
    return None


# --8<-- [start:rows]
def rows(subject: Subject) -> str | None:
    """An average of equal values is that value: weights sum to one."""
    require_averages(subject)
    token = sample(subject)[:, :1]
    alone = subject.run(token)
    many = subject.run(token.expand(-1, 7, -1).clone())
    for row in range(many.shape[1]):
        if not close(subject, many[:, row : row + 1], alone):
            return f"row {row} of a repeated token differs from the token alone"
    return None


# --8<-- [end:rows]


# --8<-- [start:huge]
def huge_scores(subject: Subject) -> str | None:
    """No score is large enough to beat a mask, or to overflow."""
    x, other = 1000 * sample(subject), 1000 * sample(subject, seed=1)
    before = subject.run(x)
    if not before.isfinite().all():
        return "large scores give NaN"
    for token in range(1, x.shape[1]) if subject.causal else ():
        changed = torch.cat([x[:, :token], other[:, token:]], dim=1)
        if not close(subject, subject.run(changed)[:, :token], before[:, :token]):
            return f"a large score carries token {token} past the mask"
    return None


# --8<-- [end:huge]


Oracle = Callable[..., Tensor]
"""Computes what a layer should, from features in float64 and ``causal``."""


def oracles(subject: Subject) -> list[Oracle]:
    """Return the oracles of a subject: several if its weights can be read in many ways.

    Raises:
        NotApplicableError: If there is none.
    """
    found: list[Oracle] = [subject.known] if subject.known else [*subject.oracles()]
    if not found:
        raise NotApplicableError(
            "its projections were not all found: give projections= or oracle="
        )
    return found


def answers(
    subject: Subject, oracle: Oracle, x: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each way to call a subject, with its output and the oracle's."""
    if subject.known:
        yield "causal", subject.run(x), oracle(x.double())
        return
    for causal in (True,) * subject.causal + (False,) * subject.unmasked:
        right = oracle(x.double(), causal=causal)
        yield "causal" if causal else "unmasked", subject.run(x, causal=causal), right
    if not subject.context:
        yield from _crossed(subject, oracle, x)


def _crossed(
    subject: Subject, oracle: Oracle, x: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the outputs of a subject and of an oracle that attend to a context."""
    plain = isinstance(oracle, FormedAttention) and not oracle.form
    if not (subject.unmasked and plain):
        return
    # A layer that confuses the two may refuse a context of another length than x.
    for length in (5, x.shape[1]):
        context = sample(subject, seed=3)[: len(x), :length]
        if (output := subject.cross(x, context)) is not None:
            # The oracle has no context: append it to x, and mask all tokens but it.
            whole = torch.cat([x, context], dim=1).double()
            seen = torch.arange(whole.shape[1]) >= x.shape[1]
            yield "cross", output, oracle(whole, mask=seen[None])[:, : x.shape[1]]
            return


def reads_context(subject: Subject) -> bool:
    """Return whether a subject attends to a context that it is given, if it takes one.

    If it cannot be told, return ``True``.
    """
    x = sample(subject)
    pairs = [[*_crossed(subject, oracle, x)] for oracle in subject.oracles()]
    known = [each[0] for each in pairs if each]
    return not known or any(
        close(subject, output, right, subject.slack) for _, output, right in known
    )


def same_output(subject: Subject) -> str | None:
    """The output equals that of the reference attention with the same weights."""
    x = sample(subject)
    wrong: list[str] = []
    for oracle in oracles(subject):
        apart = [
            f"{way}: up to {(answer.double() - right).abs().max():.2g} apart"
            for way, answer, right in answers(subject, oracle, x)
            if not close(subject, answer, right, subject.slack)
        ]
        if not apart:
            return None
        wrong.append(apart[0])
    return wrong[0]


def same_gradient(subject: Subject) -> str | None:
    """The gradient equals that of the reference attention."""
    x = sample(subject).requires_grad_()
    direction = sample(subject, seed=4)
    for oracle in oracles(subject):
        wrong = False
        for _, answer, right in answers(subject, oracle, x):
            (got,) = torch.autograd.grad(answer, x, direction)
            (wanted,) = torch.autograd.grad(right, x, direction.double())
            wrong |= not close(subject, got, wanted, subject.slack)
        if not wrong:
            return None
    return "the gradient differs from that of the reference attention"


def finite_differences(subject: Subject) -> str | None:
    """The gradient equals the slope that finite differences measure."""
    if subject.dtype != torch.float64:
        raise NotApplicableError("needs float64")
    x, direction = sample(subject).requires_grad_(), sample(subject, seed=4)

    def value(x: Tensor) -> Tensor:
        return (subject.run(x) * direction).sum()

    (slope,) = torch.autograd.grad(value(x), x)
    for seed in (5, 6):
        step = 1e-5 * sample(subject, seed)
        with torch.no_grad():
            rise = value(x + step) - value(x - step)
        if not (rise / 2 - (slope * step).sum()).abs() <= 1e-5 * step.norm():
            return "the gradient differs from finite differences"
    return None


# --8<-- [start:cached]
def cached(subject: Subject) -> str | None:
    """Reading a sequence in pieces, with a cache, does not change the output."""
    if subject.pieces is None:
        raise NotApplicableError("no cache was found: if it has one, give pieces=")
    x = sample(subject)
    try:
        in_pieces = subject.read(x, PIECES)
    except ValueError as error:
        return str(error)
    whole = subject.run(x)
    for row in range(x.shape[1]):
        if not close(subject, in_pieces[:, row], whole[:, row]):
            return f"row {row} changes when the sequence is read in pieces of {PIECES}"
    return None


# --8<-- [end:cached]


# --8<-- [start:modes]
def modes(subject: Subject) -> str | None:
    """Without dropout, training and evaluation mode compute the same."""
    if subject.module is None or not subject.has_modes:
        raise NotApplicableError("is not a module, so it has no modes")
    x = sample(subject)
    subject.module.eval()
    outputs: list[Tensor] = []
    for seed in (7, 8):
        torch.default_generator.manual_seed(seed)
        outputs.append(subject.run(x))
    if not close(subject, outputs[0], outputs[1]):
        return "evaluating, it has two outputs for one input: does it drop weights?"
    evaluating = subject.without_dropout().run(x)
    if not close(subject, outputs[0], evaluating):
        return "evaluating, its output depends on its dropout probability"
    training = subject.without_dropout(training=True)
    if not close(subject, training.run(x), evaluating):
        return "without dropout, training and evaluating give different outputs"
    if subject.pads:
        real = left_padding(x)
        one, other = (
            each.run(x, real=real)[real].nan_to_num()  # NaN is for other checks
            for each in (training, subject.without_dropout())
        )
        if not close(subject, one, other):
            return "without dropout, training and evaluating treat padding differently"
    changed = torch.cat([x[:, :-1], sample(subject, seed=1)[:, -1:]], dim=1)
    later = subject.without_dropout().run(changed)[:, :-1]
    # Other checks find leaks without dropout.
    if subject.dropout and close(subject, later, evaluating[:, :-1]):
        subject.module.train()
        trained: list[Tensor] = []
        for each in (x, changed):
            torch.default_generator.manual_seed(9)  # drop the same weights both times
            trained.append(subject.run(each)[:, :-1])
        subject.module.eval()
        if not close(subject, trained[0], trained[1]):
            return "training with dropout, the past moves when the last token changes"
    return None


# --8<-- [end:modes]


def dtypes(subject: Subject) -> str | None:
    """In half precision, the output is roughly the same."""
    if subject.module is None:
        raise NotApplicableError("is neither a module nor a function of q, k and v")
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


CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "leak": leak,
    "honest loss": honest,
    "prefix": prefix,
    "padding": padding,
    "empty rows": empty_rows,
    "permutation": permutation,
    "output": same_output,
    "gradient": same_gradient,
    "row sums": rows,
    "huge scores": huge_scores,
    "finite differences": finite_differences,
    "cache": cached,
    "modes": modes,
    "dtypes": dtypes,
}
