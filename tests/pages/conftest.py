"""What tests of pages may ask for: the formulas that stand on a page."""

import difflib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from bookbinder.page import load_page

DOCS = Path(__file__).resolve().parents[2] / "docs"

FORMULA = re.compile(r"\$\$(.*?)\$\$|(?<![\\$])\$([^$\n]+)\$", re.DOTALL)
# One formula may hold several equations: this stands before one of them, and after.
BREAK = r"\\q?quad|\\\\(?:\[[^]]*\])?|\\(?:begin|end)\{aligned\}|,|&(?![=\\])"
BEFORE, AFTER = rf"(?:^|{BREAK})\s*", rf"\s*[.,]?\s*(?:$|{BREAK})"


def folded(text: str) -> str:
    return " ".join(text.split())


@cache
def formulas(page: Path) -> list[tuple[int, str]]:
    """Return each formula of a page, its white space folded, with its line."""
    loaded = load_page(page, DOCS)
    prose = dict(loaded.prose)
    lines = (prose.get(number, "") for number in range(1, len(loaded.lines) + 1))
    text = "\n".join(re.sub("`[^`]*`", "", line) for line in lines)
    return [
        (text.count("\n", 0, formula.start()) + 1, folded(formula[1] or formula[2]))
        for formula in FORMULA.finditer(text)
    ]


@cache
def pages() -> dict[str, Path]:
    """Return each page by its name, which has no number: chapters may move."""
    folders = (DOCS, DOCS / "chapters", DOCS / "in-depth")
    files = [file for folder in folders for file in folder.glob("*.md")]
    return {re.sub(r"^\d+-", "", file.stem): file for file in files}


@pytest.fixture(scope="session")
def find_formula() -> Callable[[str, str], None]:
    """Offer a search for a formula, to the letter, on the page of that name."""

    def find(name: str, formula: str) -> None:
        assert name in pages(), f"no page is called {name}: {', '.join(pages())}"
        there = formulas(pages()[name])
        pattern = re.compile(BEFORE + re.escape(folded(formula)) + AFTER)
        if any(pattern.search(text) for _, text in there):
            return
        where = f"{pages()[name].relative_to(DOCS.parent)} has no formula\n  {formula}"
        parts = {
            folded(part): line
            for line, text in there
            for part in [text, *re.split(BREAK, text)]
        }
        near = difflib.get_close_matches(folded(formula), parts, n=1, cutoff=0.0)
        hints = [f"nearest, in line {parts[part]}:\n  {part}" for part in near]
        pytest.fail("\n".join([where, *hints]), pytrace=False)

    return find
