"""Answers to the exercises of *Why attention*: right ones, and wrong ones."""

import torch

from transformer_book import grade_pair_table, grade_recent


def pair_table(tokens, vocab_size, *, first=1.0, dim=-1):
    counts = torch.full((vocab_size, vocab_size), first)
    for token, following in zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True):
        counts[token, following] += 1
    return counts / counts.sum(dim=dim, keepdim=True)


def without_repeats(tokens, vocab_size):
    counts = torch.ones(vocab_size, vocab_size)
    counts[tokens[:-1], tokens[1:]] += 1
    return counts / counts.sum(dim=-1, keepdim=True)


def recent(num_words, n, *, first=0):
    """Average n words, of which the newest is ``first`` words back."""
    ones = torch.ones(num_words, num_words).tril(-first).triu(1 - n - first)
    return ones / ones.sum(dim=-1, keepdim=True).clamp(min=1)


def falling(num_words, n):
    places = torch.arange(num_words).float()
    scores = places.masked_fill(recent(num_words, n) == 0, float("-inf"))
    return scores.softmax(dim=-1)


RIGHT = {grade_pair_table: pair_table, grade_recent: recent}
WRONG = {
    grade_pair_table: {
        "divides by zero": lambda *args: pair_table(*args, first=0.0),
        "stay possible": lambda *args: pair_table(*args, first=0.0).nan_to_num(0.25),
        "must sum to 1": lambda *args: pair_table(*args, dim=0),
        "the word before, not after": lambda ids, size: pair_table(ids.flip(0), size),
        "not 0.43": without_repeats,
    },
    grade_recent: {
        "reads a later one": lambda num_words, n: recent(num_words, 2 * n, first=1 - n),
        "average [1, 2, 3, 4, 4]": lambda num_words, n: recent(num_words, n + 1),
        "average [1, 2, 3, 4, 5]": lambda num_words, n: recent(num_words, num_words),
        "counts itself": lambda num_words, n: recent(num_words, n, first=1),
        "must sum to 1": lambda num_words, n: (recent(num_words, n) > 0) / n,
        "equal weights": falling,
    },
}
