"""Each chapter has the form of a chapter, and its place in the book."""

from pathlib import Path

import pytest

from bookbinder.chapter_form import chapter_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_has_its_form_and_its_place(chapter: Path) -> None:
    found = chapter_problems(load_page(chapter, ROOT), ROOT)
    assert "\n".join(map(str, found)) == ""
