"""Answers to the exercises of *Why attention*: right ones, and wrong ones."""

import torch

from transformer_book import grade_pair_table, grade_recent


def counted(tokens, vocab_size, first):
    counts = torch.full((vocab_size, vocab_size), first)
    for one, other in zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True):
        counts[one, other] += 1
    return counts


def pair_table(tokens, vocab_size):
    counts = counted(tokens, vocab_size, 1.0)
    return counts / counts.sum(dim=-1, keepdim=True)


def from_zero(tokens, vocab_size):
    counts = counted(tokens, vocab_size, 0.0)
    return counts / counts.sum(dim=-1, keepdim=True)


def almost_from_zero(tokens, vocab_size):
    counts = counted(tokens, vocab_size, 0.0)
    table = counts / counts.sum(dim=-1, keepdim=True)
    return table.nan_to_num(1 / vocab_size)


def over_columns(tokens, vocab_size):
    counts = counted(tokens, vocab_size, 1.0)
    return counts / counts.sum(dim=0)


def backwards(tokens, vocab_size):
    return pair_table(tokens.flip(0), vocab_size)


def without_repeats(tokens, vocab_size):
    counts = torch.ones(vocab_size, vocab_size)
    counts[tokens[:-1], tokens[1:]] += 1
    return counts / counts.sum(dim=-1, keepdim=True)


def recent(num_words, n):
    ones = torch.ones(num_words, num_words).tril().triu(1 - n)
    return ones / ones.sum(dim=-1, keepdim=True)


def both_ways(num_words, n):
    ones = torch.ones(num_words, num_words).tril(n - 1).triu(1 - n)
    return ones / ones.sum(dim=-1, keepdim=True)


def without_itself(num_words, n):
    ones = torch.ones(num_words, num_words).tril(-1).triu(-n)
    return ones / ones.sum(dim=-1, keepdim=True).clamp(min=1)


def by_n(num_words, n):
    return torch.ones(num_words, num_words).tril().triu(1 - n) / n


def falling(num_words, n):
    places = torch.arange(num_words)
    ones = torch.ones(num_words, num_words).tril().triu(1 - n)
    scores = places.float().masked_fill(ones == 0, float("-inf"))
    return scores.softmax(dim=-1)


RIGHT = {grade_pair_table: pair_table, grade_recent: recent}
WRONG = {
    grade_pair_table: {
        "divides by zero": from_zero,
        "must stay possible": almost_from_zero,
        "must sum to 1": over_columns,
        "the word before, not after": backwards,
        "not 0.43": without_repeats,
    },
    grade_recent: {
        "reads a later one": both_ways,
        "average [1, 2, 3, 4, 4]": lambda num_words, n: recent(num_words, n + 1),
        "average [1, 2, 3, 4, 5]": lambda num_words, n: recent(num_words, num_words),
        "counts itself": without_itself,
        "must sum to 1": by_n,
        "equal weights": falling,
    },
}
