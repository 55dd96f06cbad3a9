"""What is asked: questions that any attention has to answer rightly, and that few ask.

Each check takes a ``Subject`` and returns what went wrong, or ``None``; a question that
cannot be put to this subject raises ``NotApplicableError``. The first change what must
not matter, and need no second opinion. The others compare: with an oracle, with slopes,
and with other ways to use the same attention.
"""

from collections.abc import Callable, Iterator

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
    """A check cannot be put to a subject."""


def sample(subject: Subject, seed: int = 0) -> Float[Tensor, "B T D"]:
    """Draw a batch of sequences for a subject."""
    generator = torch.Generator().manual_seed(seed)
    shape = _BATCH, LENGTH, subject.width
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x.to(subject.dtype)


def close(
    subject: Subject,
    one: Float[Tensor, "*shape"],
    other: Float[Tensor, "*shape"],
    slack: float = 0.0,
) -> Bool[Tensor, ""]:
    """Return whether two outputs are equal up to rounding. Nothing is equal to NaN.

    Args:
        subject: What gave one of them; its type says how much is rounded.
        one: An output.
        other: Another.
        slack: How far apart they may be at least, as a part of the largest number.
    """
    one, other = one.detach().double(), other.detach().double()
    tolerance = max(_TOLERANCE[subject.dtype], slack) * (1 + other.abs().max())
    return ((one - other).abs() <= tolerance).all()


def left_padding(x: Float[Tensor, "B T D"]) -> Bool[Tensor, "B T"]:
    """Return which tokens are real if each sequence has two fewer than the last."""
    lengths = torch.arange(x.shape[1], 0, -2)[: len(x), None]
    return torch.arange(x.shape[1]) >= x.shape[1] - lengths


def require_causal(subject: Subject) -> None:
    """Leave a question out that only attention to the past can answer.

    Raises:
        NotApplicableError: If the subject attends to both sides.
    """
    if not subject.causal:
        raise NotApplicableError("attends to both sides")


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
    """A language model around a subject, with tokens and guesses drawn by chance."""

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
    """The loss from the prefix alone is the loss with the rest in view."""
    require_causal(subject)
    tokens = torch.randint(11, (40,), generator=torch.Generator().manual_seed(3))
    found = honest_loss(
        _Guesser(subject), tokens, seq_len=7, num_windows=4, num_positions=7
    )
    # Not a comparison with >, which NaN would pass.
    if not found.gap <= 10 * max(_TOLERANCE[subject.dtype], 1e-4):
        return f"loss {found.full:.2f}, from the prefix alone {found.prefix:.2f}"
    return None


def prefix(subject: Subject) -> str | None:
    """What comes later, and how much of it, changes nothing."""
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
    """A sequence gets in a batch, padded, what it gets alone."""
    x = sample(subject)
    real = left_padding(x) if subject.pads else torch.ones(x.shape[:2]).bool()
    together = subject.run(x, real=real if subject.pads else None)
    for row in range(len(x)):
        alone = subject.run(x[row : row + 1, real[row]])
        if not close(subject, together[row, real[row]], alone[0], subject.slack):
            padded = " and padded" if not real[row].all() else ""
            return f"sequence {row} is not alone what it is in company{padded}"
    return None


# --8<-- [start:empty]
def empty_rows(subject: Subject) -> str | None:
    """A query that may attend to nothing gives numbers, and passes numbers back."""
    if not subject.pads:
        raise NotApplicableError("takes no padding mask")
    x = sample(subject).requires_grad_()
    real = left_padding(x)
    output = subject.run(x, real=real)
    if not output.isfinite().all():
        return "a query that may attend to nothing gets NaN"
    (gradient,) = torch.autograd.grad(output[real].sum(), x)
    if not gradient.isfinite().all():
        return "the output is finite, and the gradient of what is real is NaN"
    return None


# --8<-- [end:empty]


def permutation(subject: Subject) -> str | None:
    """Without positions, the order of what a query reads does not matter."""
    if any(each.form.knows_order for each in subject.guessed):
        raise NotApplicableError("it has positions, or a window")
    x = sample(subject)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    past = torch.cat([x[:, order], x[:, 6:]], dim=1)
    if not close(subject, subject.run(past)[:, -1], subject.run(x)[:, -1]):
        return "the last row changes with the order of the past"
    if subject.unmasked:
        both = subject.run(x, causal=False)
        order = torch.tensor([6, 4, 2, 0, 5, 1, 3])
        if not close(subject, subject.run(x[:, order], causal=False), both[:, order]):
            return "without a mask, rows do not move as the tokens are moved"
    return None


# --8<-- [start:rows]
def rows(subject: Subject) -> str | None:
    """An average of equal values is that value: weights sum to one."""
    token = sample(subject)[:, :1]
    alone = subject.run(token)
    many = subject.run(token.expand(-1, 7, -1).clone())
    for row in range(many.shape[1]):
        if not close(subject, many[:, row : row + 1], alone):
            return f"row {row} of one token repeated is not what the token gets alone"
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
"""What a layer should compute: of features in float64, and whether it is causal."""


def oracles(subject: Subject) -> list[Oracle]:
    """Return what a subject is compared with: one, or one for each way it is meant.

    Raises:
        NotApplicableError: If there is none.
    """
    found: list[Oracle] = [subject.known] if subject.known else [*subject.oracles()]
    if not found:
        raise NotApplicableError(
            "its projections could not all be told: give projections= or oracle="
        )
    return found


def answers(
    subject: Subject, oracle: Oracle, x: Tensor
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each way in which both can be asked, the answer, and the oracle's."""
    if subject.known:
        yield "causal", subject.run(x), oracle(x.double())
        return
    for causal in (True,) * subject.causal + (False,) * subject.unmasked:
        right = oracle(x.double(), causal=causal)
        yield "causal" if causal else "unmasked", subject.run(x, causal=causal), right
    if subject.unmasked and isinstance(oracle, FormedAttention) and not oracle.form:
        context = sample(subject, seed=3)[: len(x), :5]
        if (crossed := subject.cross(x, context)) is not None:
            # As if they were one sequence, of which the last part alone is seen.
            whole = torch.cat([x, context], dim=1).double()
            seen = torch.arange(whole.shape[1]) >= x.shape[1]
            yield "cross", crossed, oracle(whole, mask=seen[None])[:, : x.shape[1]]


def same_output(subject: Subject) -> str | None:
    """The output is that of attention written in the open, with the same weights."""
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
    """So is the gradient."""
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
    if subject.pieces is None:
        raise NotApplicableError("reads no pieces that are known: give pieces=")
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
    """Training, dropout apart, is what evaluating is."""
    if subject.module is None or not subject.has_modes:
        raise NotApplicableError("is no module: it has no modes")
    x = sample(subject)
    subject.module.eval()
    outputs: list[Tensor] = []
    for seed in (7, 8):
        torch.manual_seed(seed)
        outputs.append(subject.run(x))
    if not close(subject, outputs[0], outputs[1]):
        return "evaluating, it gives two outputs for one input: does it drop weights?"
    evaluating = subject.without_dropout().run(x)
    if not close(subject, outputs[0], evaluating):
        return "evaluating, it computes something else if it was built with dropout"
    if not close(subject, subject.without_dropout(training=True).run(x), evaluating):
        return "training, it computes something else than evaluating, dropout apart"
    changed = torch.cat([x[:, :-1], sample(subject, seed=1)[:, -1:]], dim=1)
    later = subject.without_dropout().run(changed)[:, :-1]
    # What leaks without dropout is the business of other checks.
    if subject.dropout and close(subject, later, evaluating[:, :-1]):
        subject.module.train()
        trained: list[Tensor] = []
        for each in (x, changed):
            torch.manual_seed(9)  # so that the same is dropped
            trained.append(subject.run(each)[:, :-1])
        subject.module.eval()
        if not close(subject, trained[0], trained[1]):
            return "training with dropout, the past moves when the last token changes"
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
