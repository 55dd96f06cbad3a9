"""Each chapter has the form of a chapter, and its place in the book."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests import conftest

from bookbinder.chapter import chapter_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))


def test_every_chapter_has_its_form_and_its_place() -> None:
    pages = (load_page(chapter, ROOT) for chapter in CHAPTERS)
    problems = [
        str(problem) for page in pages for problem in chapter_problems(page, ROOT)
    ]
    assert "\n".join(problems) == ""


def test_for_one_page_the_tests_of_others_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As ``make test PAGE=`` asks."""
    monkeypatch.setattr(conftest, "PAGE", "order")
    for name, left_out in {
        "order": False,
        "padding": True,
        "reference-masks.md": True,
        "causal": False,  # no page
    }.items():
        item: Any = SimpleNamespace(callspec=SimpleNamespace(id=name))
        assert conftest._is_of_another_page(item) is left_out
    assert not conftest._is_of_another_page(cast(Any, SimpleNamespace()))
