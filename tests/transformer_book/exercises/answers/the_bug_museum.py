"""Answers to the exercises of *The bug museum*: a right one, and wrong ones."""

import torch

from attention_check import EXHIBITS
from tested_transformer import attention_weights
from transformer_book import grade_leak, grade_triangle
from transformer_book.museum import ExchangeableAttention

LAYER = ExchangeableAttention(d_model=8, num_heads=2)


def sharpened(scores, mask):
    sharpness = 1 + scores.amax(dim=-1, keepdim=True).sigmoid()
    return attention_weights(scores * sharpness, mask)


def renormalized(scores, mask):
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


def ones(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool)


def exhibit(name):
    """Answer with the mask of an exhibit, where a causal layer is asked for one."""
    steps = EXHIBITS[name].steps

    def answer(t, s):
        causal = steps.allow(LAYER, t, s)
        return ones(t, s) if causal is None else causal

    return answer


RIGHT = {grade_leak: sharpened, grade_triangle: lambda t, s: ones(t, s).tril(s - t)}
WRONG = {
    grade_leak: {
        "nothing leaks": attention_weights,
        "other weights": lambda scores, mask: attention_weights(
            scores + torch.rand(5, 1) * scores, mask
        ),
        "have not moved": renormalized,
        "rows do not sum": EXHIBITS["mask-after-softmax"].function,
        "it shows": EXHIBITS["scores-times-mask"].function,
        "the weights are (5,)": lambda scores, mask: scores[0],
    },
    grade_triangle: {
        "each token sees the next": exhibit("one-too-far"),
        "no token sees itself": exhibit("without-itself"),
        "the first query": exhibit("top-left"),
        "everything is allowed": exhibit("no-causal-mask"),
        "for (4, 4)": lambda t, s: ones(t, s).tril(t - 2),
        "for (3, 5)": exhibit("unmasked-chunks"),
        "for (5, 3)": lambda t, s: ones(t, s).tril(abs(s - t)),
        "what it should forbid": lambda t, s: ones(t, s).triu(s - t + 1),
        "the upper triangle": lambda t, s: ones(t, s).triu(s - t),
        "boolean, not torch.float32": lambda t, s: torch.ones(t, s).tril(s - t),
        "(7, 1) for (1, 7)": lambda t, s: ones(s, t).tril(),
    },
}
