"""Graders of *Training, on whatever you have*."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["grade_peeks", "grade_schedule"]


def grade_schedule(answer: Callable[[int, int, int], float]) -> str:
    """Grade a schedule that rises in a straight line and falls in another.

    Args:
        answer: A function of ``step``, ``steps`` and ``warmup``.
    """
    values = [answer(step, 20, 4) for step in range(20)]
    assert values[0] > 0, "the first step is wasted: its rate is 0"
    assert max(values) <= 1 + 1e-9, f"the rate goes up to {max(values):.2f}"
    assert all(a < b for a, b in pairwise(values[:5])), "the warm-up does not rise"
    assert abs(values[4] - 1) < 1e-9, f"at step `warmup` it is {values[4]:.2f}, not 1"
    assert all(a > b for a, b in pairwise(values[4:])), "it does not fall after it"
    assert values[-1] > 0, "the last step is wasted: its rate is 0"
    assert values[-1] < 0.1, f"it ends at {values[-1]:.2f}, far from nothing"
    slopes = [b - a for a, b in pairwise(values)]
    bends = [abs(b - a) for a, b in pairwise(slopes)]
    assert max(bends[:3] + bends[4:]) < 1e-9, "one of the two lines is not straight"
    return "right"


def grade_peeks(answer: Callable[[Callable[[Tensor], Tensor], Tensor], bool]) -> str:
    """Grade a test that says whether a model looks at later tokens.

    Args:
        answer: A function of ``model`` and ``tokens``, all between 0 and 10.
    """
    config = GPTConfig(vocab_size=11, max_seq_len=12, d_model=16, num_heads=2)
    honest = GPT(config).double()
    tokens = torch.randint(11, (2, 12))
    assert not answer(honest, tokens), (
        "this model does not peek: from the changed token on, all may move"
    )

    def one_ahead(tokens: Tensor) -> Tensor:
        return honest(tokens) + honest(tokens).roll(-1, dims=1)

    def only_late(tokens: Tensor) -> Tensor:
        logits = honest(tokens).clone()
        if tokens.shape[1] > 9:  # a prefix may end before
            logits[:, 6] = logits[:, 6] + logits[:, 9]
        return logits

    assert answer(one_ahead, tokens), (
        "this one peeks at every position: is there any before the token you change?"
    )
    assert answer(only_late, tokens), (
        "this one peeks from position 6 at position 9: change every token in turn"
    )
    return "right"
