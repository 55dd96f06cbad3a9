"""Answers to the exercises of *Sampling*: a right one, and wrong ones."""

import math
from functools import partial

import torch

from transformer_book import grade_survivors, grade_top_p


def top_p_with(keep, *, descending=True):
    """Return an answer that keeps words by the sums before and after each one."""

    def answer(probabilities, top_p):
        ranked, ids = probabilities.sort(descending=descending)
        after = ranked.cumsum(dim=-1)
        kept = torch.zeros_like(probabilities)
        kept[ids] = ranked * keep(after - ranked, after, top_p)
        return kept / kept.sum().clamp(min=1e-9)

    return answer


def one_more(before, after, top_p):
    before = before.roll(1)
    before[0] = 0.0
    return before < top_p


my_top_p = top_p_with(lambda before, after, top_p: before < top_p)


def survivors(logits, temperature, min_p, *, log=math.log):
    return logits >= logits.max() + temperature * log(min_p)


RIGHT = {grade_top_p: my_top_p, grade_survivors: survivors}
WRONG = {
    grade_top_p: {
        "these are ranks": lambda *args: my_top_p(*args).sort(descending=True).values,
        "keeps too few words: 0": top_p_with(lambda before, after, p: after <= p),
        "not the likeliest": top_p_with(
            lambda before, after, p: before < p, descending=False
        ),
        "keeps 2 words": top_p_with(one_more),
        "do not sum to 1": lambda p, top_p: p * (my_top_p(p, top_p) > 0),
    },
    grade_survivors: {
        "at temperature 1": lambda logits, t, min_p: survivors(logits, 1.0, min_p),
        "higher temperature": lambda logits, t, min_p: survivors(logits, 1 / t, min_p),
        "a distance of logits": lambda logits, t, min_p: logits >= min_p * logits.max(),
        "temperature 1.0, min_p 0.25": partial(survivors, log=math.log10),
    },
}
