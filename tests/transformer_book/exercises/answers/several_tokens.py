"""Answers to the exercises of *Several tokens at a time*: right and wrong ones."""

from transformer_book import grade_best_draft


def speed(acceptance, cost, k):
    return sum(acceptance**i for i in range(k + 1)) / (k * cost + 1)


def best_draft(acceptance, cost):
    return max(range(17), key=lambda k: speed(acceptance, cost, k))


def always_drafting(acceptance, cost):
    return max(range(1, 17), key=lambda k: speed(acceptance, cost, k))


def without_the_extra_token(acceptance, cost):
    return max(
        range(17),
        key=lambda k: sum(acceptance**i for i in range(1, k + 1)) / (k * cost + 1),
    )


RIGHT = {grade_best_draft: best_draft}
WRONG = {
    grade_best_draft: {
        "with a chance of 0.0 and a cost of 0.1, 16 drafted tokens": lambda a, c: 16,
        "with a chance of 0.0 and a cost of 0.1, 1 drafted tokens": always_drafting,
        "another number is better": without_the_extra_token,
        "not a number from 0 to 16": lambda acceptance, cost: 17,
        "not a whole number": lambda a, c: speed(a, c, best_draft(a, c)),
    }
}
