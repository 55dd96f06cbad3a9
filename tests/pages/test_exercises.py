"""Each chapter has exercises, each with a grader that refuses wrong answers.

A grader of ``tested_transformer.book`` has its wrong answers in the tests of that
package. One that stands on a page refuses them there: what it says is an output of the
page, compared when the page runs. Here it is counted.
"""

import re
from pathlib import Path

import pytest

from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "docs/chapters").glob("*.md"))
GRADER = re.compile(r"\b(?:check|grade)_\w+\(")
IMPORTED = re.compile(r"from tested_transformer\.book import .*\bgrade_\w+")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_each_exercise_refuses_three_wrong_answers(chapter: Path) -> None:
    page = load_page(chapter, ROOT)
    headings = [(n, line) for n, line in page.prose if re.match(r"##+ ", line)]
    start = next((n for n, line in headings if line == "## Exercises"), None)
    assert start, f"{page.path}:1: no heading ## Exercises"
    end = next((n for n, line in headings if n > start and line[2] == " "), 10**6)
    begins = [n for n, _ in headings if start < n < end]
    assert begins, f"{page.path}:{start}: no exercise, which begins with ###"
    for first, last in zip(begins, [*begins[1:], end], strict=True):
        blocks = [block for block in page.blocks if first < block.line < last]
        code = "".join(block.code for block in blocks)
        assert GRADER.search(code), f"{page.path}:{first}: no check_... or grade_..."
        if IMPORTED.search(code):
            continue
        outputs = [block.output.text for block in blocks if block.output]
        said = "".join(outputs).splitlines()
        refused = {line for line in said if line not in ("right", "correct")}
        assert len(refused) >= 3, f"{page.path}:{first}: refuses {len(refused)} answers"
