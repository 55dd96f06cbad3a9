"""Answers to the exercises of *Why attention*: right ones, and wrong ones."""

from typing import Any

import torch
from torch import Tensor

from transformer_book import grade_pair_table, grade_recent


def counted(tokens: Tensor, vocab_size: int, first: float) -> Tensor:
    counts = torch.full((vocab_size, vocab_size), first)
    for one, other in zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True):
        counts[one, other] += 1
    return counts


def pair_table(tokens: Tensor, vocab_size: int) -> Tensor:
    counts = counted(tokens, vocab_size, 1.0)
    return counts / counts.sum(dim=-1, keepdim=True)


def from_zero(tokens: Tensor, vocab_size: int) -> Tensor:
    counts = counted(tokens, vocab_size, 0.0)
    return counts / counts.sum(dim=-1, keepdim=True)


def almost_from_zero(tokens: Tensor, vocab_size: int) -> Tensor:
    counts = counted(tokens, vocab_size, 0.0)
    table = counts / counts.sum(dim=-1, keepdim=True)
    return table.nan_to_num(1 / vocab_size)


def over_columns(tokens: Tensor, vocab_size: int) -> Tensor:
    counts = counted(tokens, vocab_size, 1.0)
    return counts / counts.sum(dim=0)


def backwards(tokens: Tensor, vocab_size: int) -> Tensor:
    return pair_table(tokens.flip(0), vocab_size)


def without_repeats(tokens: Tensor, vocab_size: int) -> Tensor:
    counts = torch.ones(vocab_size, vocab_size)
    counts[tokens[:-1], tokens[1:]] += 1
    return counts / counts.sum(dim=-1, keepdim=True)


def recent(num_words: int, n: int) -> Tensor:
    ones = torch.ones(num_words, num_words).tril().triu(1 - n)
    return ones / ones.sum(dim=-1, keepdim=True)


def both_ways(num_words: int, n: int) -> Tensor:
    ones = torch.ones(num_words, num_words).tril(n - 1).triu(1 - n)
    return ones / ones.sum(dim=-1, keepdim=True)


def one_too_many(num_words: int, n: int) -> Tensor:
    return recent(num_words, n + 1)


def all_so_far(num_words: int, n: int) -> Tensor:
    return recent(num_words, num_words)


def without_itself(num_words: int, n: int) -> Tensor:
    ones = torch.ones(num_words, num_words).tril(-1).triu(-n)
    return ones / ones.sum(dim=-1, keepdim=True).clamp(min=1)


def by_n(num_words: int, n: int) -> Tensor:
    return torch.ones(num_words, num_words).tril().triu(1 - n) / n


def falling(num_words: int, n: int) -> Tensor:
    places = torch.arange(num_words)
    ones = torch.ones(num_words, num_words).tril().triu(1 - n)
    scores = places.float().masked_fill(ones == 0, float("-inf"))
    return scores.softmax(dim=-1)


RIGHT = {grade_pair_table: pair_table, grade_recent: recent}
WRONG: dict[Any, dict[str, Any]] = {
    grade_pair_table: {
        "divides by zero": from_zero,
        "must stay possible": almost_from_zero,
        "must sum to 1": over_columns,
        "the word before, not after": backwards,
        "not 0.43": without_repeats,
    },
    grade_recent: {
        "reads a later one": both_ways,
        "average [1, 2, 3, 4, 4]": one_too_many,
        "average [1, 2, 3, 4, 5]": all_so_far,
        "counts itself": without_itself,
        "must sum to 1": by_n,
        "equal weights": falling,
    },
}
