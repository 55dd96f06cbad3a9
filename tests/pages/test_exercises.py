"""Each exercise has a grader, a right answer, and wrong ones that it refuses.

What a grader says is an output of its page, and compared there. Here the outputs are
counted: a grader that lets a wrong answer pass would say ``right`` once more.
"""

import re
from pathlib import Path

import pytest

from bookbinder.reading.pages import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))
PASSED = {"right", "correct"}


def exercises(chapter: Path) -> dict[str, tuple[str, list[str]]]:
    """Give the code of each exercise, and all that its grader said."""
    page = load_page(chapter, ROOT)
    titles = {0: ""}
    inside = False
    for number, line in enumerate(page.lines, start=1):
        if line.startswith("## "):
            inside = line == "## Exercises"
            titles[number] = ""
        elif inside and line.startswith("### "):
            titles[number] = line.removeprefix("### ")
    found = {title: ("", []) for title in titles.values() if title}
    for block in page.blocks:
        title = titles[max(number for number in titles if number < block.line)]
        if title:
            code, said = found[title]
            lines = block.output.text.splitlines() if block.output else []
            found[title] = (code + block.code, said + lines)
    return found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_each_exercise_refuses_three_wrong_answers(chapter: Path) -> None:
    found = exercises(chapter)
    assert len(found) >= 2, "a chapter has two exercises"
    for title, (code, said) in found.items():
        assert re.search(r"^def (check|grade)_\w+\(", code, re.MULTILINE), title
        refusals = [line for line in said if line not in PASSED]
        assert len(said) - len(refusals) <= 1, f"{title}: a wrong answer passes"
        assert len(refusals) >= 3, f"{title}: {refusals}"
        assert len({*refusals}) >= 2, f"{title}: {refusals}"
