"""Answers to the exercises of *Sampling*: a right one, and wrong ones."""

import math

from torch import zeros_like

from transformer_book import grade_survivors, grade_top_p


def my_top_p(probabilities, top_p):
    ranked, ids = probabilities.sort(descending=True)
    before = ranked.cumsum(dim=-1) - ranked
    kept = zeros_like(probabilities)
    kept[ids] = ranked * (before < top_p)
    return kept / kept.sum()


def without_the_last(probabilities, top_p):
    ranked, ids = probabilities.sort(descending=True)
    kept = zeros_like(probabilities)
    kept[ids] = ranked * (ranked.cumsum(dim=-1) <= top_p)
    return kept / kept.sum().clamp(min=1e-9)


def from_the_end(probabilities, top_p):
    ranked, ids = probabilities.sort()
    kept = zeros_like(probabilities)
    kept[ids] = ranked * (ranked.cumsum(dim=-1) - ranked < top_p)
    return kept / kept.sum()


def one_more(probabilities, top_p):
    ranked, ids = probabilities.sort(descending=True)
    before = (ranked.cumsum(dim=-1) - ranked).roll(1)
    before[0] = 0.0
    kept = zeros_like(probabilities)
    kept[ids] = ranked * (before < top_p)
    return kept / kept.sum()


def not_renormalized(probabilities, top_p):
    return probabilities * (my_top_p(probabilities, top_p) > 0)


def survivors(logits, temperature, min_p):
    return logits >= logits.max() + temperature * math.log(min_p)


def no_temperature(logits, temperature, min_p):
    return survivors(logits, 1.0, min_p)


def wrong_way_round(logits, temperature, min_p):
    return logits >= logits.max() + math.log(min_p) / temperature


def of_ten(logits, temperature, min_p):
    return logits >= logits.max() + temperature * math.log10(min_p)


def share_of_logits(logits, temperature, min_p):
    return logits >= min_p * logits.max()


RIGHT = {grade_top_p: my_top_p, grade_survivors: survivors}
WRONG = {
    grade_top_p: {
        "these are ranks": lambda *args: my_top_p(*args).sort(descending=True).values,
        "keeps too few words: 0": without_the_last,
        "not the likeliest": from_the_end,
        "keeps 2 words": one_more,
        "do not sum to 1": not_renormalized,
    },
    grade_survivors: {
        "right at temperature 1": no_temperature,
        "a higher temperature": wrong_way_round,
        "a distance of logits": share_of_logits,
        "temperature 1.0, min_p 0.25": of_ten,
    },
}
