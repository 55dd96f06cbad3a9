"""Answers to the exercises of *Induction*: a right one, and wrong ones."""

import torch

from transformer_book import grade_after_copies, grade_two_heads


def copies(tokens):
    return tokens[:, :, None] == tokens[:, None]


def shifted(tokens):
    after = torch.zeros_like(copies(tokens))
    after[:, :, 1:] = copies(tokens)[:, :, :-1]
    return after


def after_copies(tokens):
    return shifted(tokens).tril(-1)


def only_the_last(tokens):
    marked = after_copies(tokens)
    return marked & (marked.flip(-1).cumsum(-1).flip(-1) == 1)


def heads(keys_of=lambda x: torch.cat([torch.zeros_like(x[:1]), x[:-1]]), **how):
    def answer(x, sharpness):
        q, k = x, keys_of(x)
        if how.get("exchanged"):
            q, k = k, q
        scores = (1.0 if how.get("dull") else sharpness) * q @ k.T
        if how.get("fixed"):
            scores = 50.0 * q @ k.T
        ahead = torch.ones(len(x), len(x)).bool().triu(1)
        if not how.get("open"):
            scores = scores.masked_fill(ahead, float("-inf"))
        return scores.softmax(dim=-1) @ x

    return answer


RIGHT = {grade_after_copies: after_copies, grade_two_heads: heads()}
WRONG = {
    grade_after_copies: {
        "it looks ahead": shifted,
        "it marks the copies": lambda tokens: copies(tokens).tril(-1),
        "never its own target": lambda tokens: shifted(tokens).tril(),
        "a target is boolean": lambda tokens: after_copies(tokens).float(),
        "it is (7, 7), not (2, 7, 7)": lambda tokens: after_copies(tokens)[0],
        "followed no earlier copy": lambda tokens: torch.ones_like(copies(tokens)).tril(
            -1
        ),
        "it misses": only_the_last,
    },
    grade_two_heads: {
        "it finds the same token": heads(keys_of=lambda x: x),
        "are exchanged": heads(exchanged=True),
        "it looks ahead": heads(open=True),
        "with sharpness=2": heads(fixed=True),
        "not (11, 11)": lambda x, sharpness: heads()(x, sharpness)[-1],
        "does not expect B": heads(keys_of=lambda x: x.roll(2, 0)),
    },
}
