"""Answers to the exercises of *Experts*: right ones, and wrong ones."""

import torch

from transformer_book import grade_balance, grade_route


def route(logits, k, *, divided=(2, 3), axis=-1):
    probabilities = logits.softmax(dim=axis)
    shares, chosen = probabilities.topk(k, dim=-1)
    if k in divided:
        shares = shares / shares.sum(dim=-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter(-1, chosen, shares)


def balance(probabilities, k):
    tokens, experts = probabilities.shape
    chosen = probabilities.topk(k, dim=-1).indices
    used = torch.bincount(chosen.flatten(), minlength=experts) / (k * tokens)
    return experts * (used * probabilities.mean(dim=0)).sum()


def evenly(logits, k):
    return (route(logits, k) > 0) / k


RIGHT = {grade_route: route, grade_balance: balance}
WRONG = {
    grade_route: {
        "every share is 1": lambda s, k: route(s, k, divided=(1, 2, 3)),
        "sum to 0.90": lambda s, k: route(s, k, divided=()),
        "use [3, 3] experts": lambda s, k: s.softmax(dim=-1),
        "not the most probable": lambda s, k: route(-s, k),
        "not in proportion": lambda s, k: evenly(s, k) if k > 1 else route(s, 1),
        "for k=1 shares are not": lambda s, k: route(s, k, axis=-1) / (3 - (k > 1) * 2),
        "(2, 2), not (2, 3)": lambda s, k: s.softmax(dim=-1).topk(k).values,
    },
    grade_balance: {
        "times the number of experts": lambda p, k: balance(p, k) / 3,
        "f is a share of all choices": lambda p, k: balance(p, k) * k,
        "f counts choices": lambda p, k: 3 * p.mean(dim=0).square().sum(),
        "is wrong for k=2": lambda p, k: balance(p, 1),
    },
}
