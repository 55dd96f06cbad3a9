"""Graders of *Sampling*."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tested_transformer.decoding import sampling_probabilities

__all__ = ["grade_survivors", "grade_top_p"]


def grade_top_p(answer: Callable[[Tensor, float], Tensor]) -> str:
    """Grade top-p for one row of probabilities in any order.

    Args:
        answer: A function of ``probabilities`` and ``top_p``.
    """
    p = torch.tensor([0.04, 0.40, 0.10, 0.26, 0.20])
    for top_p in (0.3, 0.5, 0.7, 0.95):
        expected = sampling_probabilities(p.log(), top_p=top_p)
        got = answer(p, top_p)
        if torch.allclose(got, expected, atol=1e-6):
            continue
        ranked = expected.sort(descending=True).values
        assert not torch.allclose(got, ranked, atol=1e-6), (
            "these are ranks: put each probability back to its word"
        )
        assert not torch.equal(got > 0, expected > 0), (
            "the right words, but they do not sum to 1"
        )
        kept, fewer = int((got > 0).sum()), int((expected > 0).sum())
        assert kept >= fewer, f"top_p={top_p} keeps too few words: {kept}"
        assert not (got > 0)[expected > 0].all(), f"top_p={top_p} keeps {kept} words"
        raise AssertionError("these are not the likeliest words")
    return "right"


def grade_survivors(answer: Callable[[Tensor, float, float], Tensor]) -> str:
    """Grade min-p computed from the logits alone.

    Args:
        answer: A function of ``logits``, ``temperature`` and ``min_p``.
    """
    logits = torch.tensor([1.0, 3.2, -0.5, 2.0, 0.1, 2.9])
    for temperature, min_p in ((1.0, 0.25), (2.0, 0.25), (0.5, 0.05), (3.0, 0.6)):
        settings = {"temperature": temperature, "min_p": min_p}
        expected = sampling_probabilities(logits, **settings) > 0
        got = answer(logits, temperature, min_p)
        if torch.equal(got, expected):
            continue
        assert not torch.equal(got, sampling_probabilities(logits, min_p=min_p) > 0), (
            "right at temperature 1: how far may a logit lie at others?"
        )
        assert not torch.equal(got, logits >= min_p * logits.max()), (
            "a share of probabilities is a distance of logits"
        )
        turned = logits >= logits.max() + math.log(min_p) / temperature
        assert not torch.equal(got, turned), (
            "a higher temperature lets in more words, not fewer"
        )
        raise AssertionError(
            f"temperature {temperature}, min_p {min_p}: it gives {got.tolist()}, not "
            f"{expected.tolist()}"
        )
    return "right"
