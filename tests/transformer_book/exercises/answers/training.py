"""Answers to the exercises of *Training*: a right one, and wrong ones."""

import torch

from transformer_book import grade_peeks, grade_schedule


def factor(step, steps, warmup):
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return (steps - step) / (steps - warmup)


def from_zero(step, steps, warmup):
    return min(step / warmup, factor(step, steps, 0))


def never_down(step, steps, warmup):
    return min((step + 1) / (warmup + 1), 1.0)


def with_a_jump(step, steps, warmup):
    return (step + 1) / (warmup + 3) if step < warmup else factor(step, steps, warmup)


def peeks(model, tokens):
    logits = model(tokens)
    for t in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % 11
        if not torch.allclose(model(changed)[:, :t], logits[:, :t], atol=1e-9):
            return True
    return False


def only_the_last(model, tokens):
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    before, after = model(tokens)[:, :-1], model(changed)[:, :-1]
    return not torch.allclose(before, after, atol=1e-9)


def everywhere(model, tokens):
    changed = (tokens + 1) % 11
    return not torch.allclose(model(changed), model(tokens), atol=1e-9)


RIGHT = {grade_schedule: factor, grade_peeks: peeks}
WRONG = {
    grade_schedule: {
        "the first step is wasted": from_zero,
        "does not rise": lambda step, steps, warmup: (steps - step) / steps,
        "does not fall": never_down,
        "ends at 0.16": lambda *args: 0.1 + 0.9 * factor(*args),
        "not straight": lambda step, steps, warmup: factor(step, steps, warmup) ** 2,
        "is 0.50, not 1": lambda step, steps, warmup: factor(step, steps, warmup) / 2,
        "one of the two lines is": with_a_jump,
    },
    grade_peeks: {
        "change every token in turn": only_the_last,
        "does not peek": everywhere,
        "is there any before": lambda model, tokens: False,
    },
}
