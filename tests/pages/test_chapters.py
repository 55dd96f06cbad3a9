"""Each chapter has the form of a chapter, and its place in the book."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bookbinder.chapter import chapter_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))


def test_every_chapter_has_its_form_and_its_place() -> None:
    pages = (load_page(chapter, ROOT) for chapter in CHAPTERS)
    found = [str(problem) for page in pages for problem in chapter_problems(page, ROOT)]
    assert "\n".join(found) == ""


@pytest.mark.slow
def test_for_one_page_the_tests_of_others_are_left_out() -> None:
    """As ``make test PAGE=`` asks; its notebook runs, otherwise left to the night."""
    files = ["test_notebooks.py", "test_plain_markdown.py", "test_pages.py"]
    publishing = ROOT / "tests/bookbinder/publishing"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", __file__]
    done = subprocess.run(
        [*command, *(str(publishing / file) for file in files)],
        cwd=ROOT,
        env={**os.environ, "BOOK_PAGE": "docs/chapters/order.md"},
        capture_output=True,
        text=True,
        check=True,
    )
    tests = done.stdout.split()
    given = {test.partition("[")[2] for test in tests if "[" in test}
    assert given == {"order]"}
    assert any("prints_what_the_page_shows[order]" in test for test in tests)
