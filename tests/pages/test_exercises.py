"""Each exercise of each chapter has what an exercise needs.

A chapter is held to it by ``make page`` as well; what the check refuses is in
``tests/bookbinder/contributing/test_exercising.py``.
"""

from pathlib import Path

import pytest

from bookbinder.contributing.exercising import exercise_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_each_exercise_refuses_three_wrong_answers(chapter: Path) -> None:
    assert exercise_problems(load_page(chapter, ROOT)) == []
