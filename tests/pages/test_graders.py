"""The graders of the exercises on attention and masks, put to the exhibits.

A grader is taken from its page as a reader would take it, and is given answers that
are right but for one exhibit. It has to refuse each that can be seen in its exercise.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bookbinder.page import load_page
from bookbinder.running.state import fresh_state
from tested_transformer.checking import EXHIBITS, Steps

ROOT = Path(__file__).parents[2]


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
