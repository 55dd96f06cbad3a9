"""Reckon how long a page takes to read: what is open on it, listings included.

Three words are read in a second, and a line of code in four. What is folded is left
out, and with it the solutions of the exercises.
"""

from pathlib import Path

from bookbinder.listings import listed_sections
from bookbinder.page import Page


def minutes(page: Page, root: Path) -> float:
    """Return how many minutes the open parts of a page take."""
    shut = {line for fold in page.folds for line in fold}
    words = sum(len(line.split()) for n, line in page.prose if n not in shut)
    code = sum(_height(b.code) for b in page.blocks if b.line not in shut)
    for listing, section in listed_sections(page, root):
        if listing.line not in shut:
            code += _height(section.text)
    return words / 180 + code / 15


def _height(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())
