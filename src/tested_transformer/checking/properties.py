"""Checks of properties: they change what must not matter, and need no second opinion.

Each takes a ``Subject`` and returns what went wrong, or ``None``. A question that
cannot be put to this subject raises ``NotApplicableError``.
"""

import torch
from torch import Tensor, nn

from tested_transformer.checking.asking import (
    TOLERANCE,
    NotApplicableError,
    close,
    left_padding,
    sample,
)
from tested_transformer.checking.subject import Subject
from tested_transformer.training import honest_loss

__all__ = [
    "empty_rows",
    "honest",
    "huge_scores",
    "leak",
    "padding",
    "permutation",
    "prefix",
    "rows",
]


# --8<-- [start:leak]
def leak(subject: Subject) -> str | None:
    """Change the future: the past must not move."""
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
    tokens = torch.randint(11, (40,), generator=torch.Generator().manual_seed(3))
    found = honest_loss(
        _Guesser(subject), tokens, seq_len=7, num_windows=4, num_positions=7
    )
    # Not a comparison with >, which NaN would pass.
    if not found.gap <= 10 * max(TOLERANCE[subject.dtype], 1e-4):
        return f"loss {found.full:.2f}, from the prefix alone {found.prefix:.2f}"
    return None


def prefix(subject: Subject) -> str | None:
    """What comes later, and how much of it, changes nothing."""
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
        if not close(subject, together[row, real[row]], alone[0]):
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
    x = sample(subject)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    past = torch.cat([x[:, order], x[:, 6:]], dim=1)
    if not close(subject, subject.run(past)[:, -1], subject.run(x)[:, -1]):
        return "the last row changes with the order of the past"
    if subject.opens:
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
    for token in range(1, x.shape[1]):
        changed = torch.cat([x[:, :token], other[:, token:]], dim=1)
        if not close(subject, subject.run(changed)[:, :token], before[:, :token]):
            return f"a large score carries token {token} past the mask"
    return None


# --8<-- [end:huge]
