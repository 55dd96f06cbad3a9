"""The graders of the exercises on attention and masks, put to the exhibits.

A grader is taken from its page as a reader would take it, and is given answers that
are right but for one exhibit. It has to refuse each that can be seen in its exercise.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bookbinder.page import load_page
from bookbinder.running.state import fresh_state
from tested_transformer.checking import EXHIBITS, ExchangeableAttention, Steps

ROOT = Path(__file__).parents[2]
LAYER = ExchangeableAttention(d_model=8, num_heads=2)
ALLOWING = {name: e.function for name, e in EXHIBITS.items() if e.step == "allow"}


def grader(page: str, name: str) -> Callable[..., None]:
    """Run the blocks of a page that lead to a grader."""
    path = ROOT / "docs" / "chapters" / page
    for chain in load_page(path, ROOT).chains:
        names: dict[str, Any] = {}
        if not any(f"def {name}(" in block.code for block in chain.blocks):
            continue
        with fresh_state():
            for block in chain.blocks:
                exec(block.code, names)
                if name in names:
                    return names[name]
    raise LookupError(name)


def refused(check: Callable[..., None], answers: dict[str, Any]) -> set[str]:
    """Give the names of the answers that a grader refuses with a message."""
    found: set[str] = set()
    for name, answer in answers.items():
        try:
            check(answer)
        except AssertionError as error:
            said = str(error)
            found.add(name if said else f"{name}, without a message")
    return found


@pytest.mark.parametrize("name", ["split-without-transpose", "merge-without-transpose"])
def test_a_test_for_a_split_and_a_merge(name: str) -> None:
    """A test that is right but for one exhibit, which it accepts."""
    check = grader("shapes-that-lie.md", "check_test")
    x = torch.randn(2, 5, 21)
    heads = torch.randn(2, 3, 5, 7)
    right = Steps()
    wrong = EXHIBITS[name].steps

    def accepts(split: Callable, merge: Callable) -> bool:
        pairs = {(right.split, right.merge), (wrong.split, wrong.merge)}
        return any(
            torch.equal(split(x, 3), each_split(x, 3))
            and torch.equal(merge(heads), each_merge(heads))
            for each_split, each_merge in pairs
        )

    assert refused(check, {name: accepts}) == {name}


def packed(allow: Callable[..., Tensor | None]) -> Callable[[Tensor], Tensor]:
    def answer(documents: Tensor) -> Tensor:
        same = documents[:, None] == documents[None, :]
        return same & allow(LAYER, 5, 5, torch.ones(5, 5, dtype=torch.bool))

    return answer


def test_two_documents_in_one_row() -> None:
    check = grader("no-peeking.md", "check_packed")
    check(packed(Steps().allow))
    answers = {name: packed(allow) for name, allow in ALLOWING.items()}
    answers["inverted-mask"] = lambda documents: ~packed(Steps().allow)(documents)
    assert refused(check, answers) == {
        *("no-causal-mask", "one-too-far", "without-itself", "inverted-mask"),
    }


def in_pieces(steps: Steps) -> Callable[..., Tensor]:
    def answer(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
        pieces = []
        for start in range(0, q.shape[-2], size):
            piece = q[..., start : start + size, :]
            end = start + piece.shape[-2]
            mask = steps.allow(LAYER, piece.shape[-2], end, None)
            scores = steps.score(piece, k[..., :end, :])
            pieces.append(steps.weigh(scores, mask) @ v[..., :end, :])
        return torch.cat(pieces, dim=-2)

    return answer


# With small scores, in double precision, without padding, dropout or a gradient, these
# compute what is right.
QUIET = {
    *("lost-with-dropout", "only-while-training", "padding-ignored"),
    *("padding-on-the-wrong-axis", "large-but-finite", "beyond-half"),
    *("no-maximum-taken", "nan-in-empty-rows", "nan-replaced"),
    "backward-without-mask",
}


def test_in_pieces() -> None:
    check = grader("no-peeking.md", "check_pieces")
    check(in_pieces(Steps()))
    answers = {
        name: in_pieces(e.steps)
        for name, e in EXHIBITS.items()
        if e.step in ("allow", "score", "weigh")
    }
    assert refused(check, answers) == set(answers) - QUIET
