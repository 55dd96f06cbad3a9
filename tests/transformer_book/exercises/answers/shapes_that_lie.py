"""Answers to the exercises of *Shapes that lie*: right ones, and wrong ones."""

import torch
from torch import Tensor

from transformer_book import grade_accepts, grade_sees_ahead


def sees_ahead(h, t, num_tokens, num_heads):
    return (h * num_tokens + t) // num_heads > t


def by_the_piece(h, t, num_tokens, num_heads):
    return h * num_tokens + t > t


def exchanged(h, t, num_tokens, num_heads):
    return (t * num_heads + h) // num_tokens > t


def or_equal(h, t, num_tokens, num_heads):
    return (h * num_tokens + t) // num_heads >= t


def accepts(split, merge):
    x = torch.randn(2, 5, 21)
    return by_split(split, merge) and torch.equal(merge(split(x, 3)), x)


def by_shape(split, merge):
    heads = split(torch.zeros(2, 5, 21), 3)
    return heads.shape == (2, 3, 5, 7) and merge(heads).shape == (2, 5, 21)


def by_round_trip(split, merge):
    x = torch.randn(2, 5, 21)
    return torch.equal(merge(split(x, 3)), x)


def by_tokens(split, merge):
    """Compare one number for each token, in one sequence."""
    x = torch.arange(5.0).view(1, 5, 1).expand(1, 5, 21)
    rows = split(x, 3) == torch.arange(5).view(1, 1, 5, 1)
    return bool(rows.all()) and torch.equal(merge(split(x, 3)), x)


def by_split(split, merge):
    x = torch.randn(2, 5, 21)
    return torch.equal(split(x, 3), torch.stack(x.split(7, dim=-1), dim=1))


def of_one_sequence(split, merge):
    x = torch.randn(1, 5, 21)
    expected: Tensor = torch.stack(x.split(7, dim=-1), dim=1)
    return torch.equal(split(x, 3), expected) and torch.equal(merge(expected), x)


RIGHT = {grade_sees_ahead: sees_ahead, grade_accepts: accepts}
WRONG = {
    grade_sees_ahead: {
        "no row is ahead": lambda h, t, num_tokens, num_heads: t > t,
        "not every row is ahead": by_the_piece,
        "is that the right split": exchanged,
        "in head 0 no token": or_equal,
        "row 1 of head 1 is ahead": lambda h, t, num_tokens, num_heads: h > t,
    },
    grade_accepts: {
        "it accepts the split without transpose": by_shape,
        "both wrong, which is a round trip": by_round_trip,
        "features dealt out like cards": by_tokens,
        "it accepts the merge without transpose": by_split,
        "sequences that trade places": of_one_sequence,
        "it refuses the right pair": lambda split, merge: False,
    },
}
