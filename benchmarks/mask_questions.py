"""Questions that find out how a library reads a mask, and an empty row.

Three keys have the values (1, 0, 0), (0, 1, 0) and (0, 0, 1), and every score is 0. So
the output of attention equals the weights: 1/3 each without a mask.
"""

from collections.abc import Callable, Sequence

import torch

__all__ = [
    "EMPTY_ADDED",
    "EMPTY_ATTEND",
    "EMPTY_IGNORE",
    "HEADS",
    "NO_SCORES",
    "QUESTIONS",
    "Attend",
    "Mask",
    "Row",
    "X",
    "answer",
    "row",
]

Mask = list[bool] | list[float]
Attend = Callable[[Mask], Sequence[float]]
Row = dict[str, str]

T, F_, INF = True, False, float("inf")
# The questions for every library; the last one in the library's own convention.
QUESTIONS: dict[str, Mask] = {
    "True True False": [T, T, F_],
    "0 0 -inf": [0.0, 0.0, -INF],
    "1 1 0": [1.0, 1.0, 0.0],
}
EMPTY_ATTEND, EMPTY_IGNORE, EMPTY_ADDED = [F_, F_, F_], [T, T, T], [-INF, -INF, -INF]

# One sequence of three tokens, four features: two heads of two, which fast paths want.
X = torch.eye(3, 4)[None]
HEADS, NO_SCORES = X[:, None], torch.zeros(1, 1, 3, 4)


def row(attend: Attend, *, empty: Mask = EMPTY_ATTEND) -> Row:
    """Return a library's answers to all questions."""
    return {
        question: answer(attend, mask)
        for question, mask in (QUESTIONS | {"empty row": empty}).items()
    }


def answer(attend: Attend, mask: Mask) -> str:
    """Return the three weights, or the error."""
    try:
        weights = attend(mask)
    # Any error counts as the answer.
    except Exception as error:
        return type(error).__name__
    return " ".join(f"{float(weight):.2f}" for weight in weights)
