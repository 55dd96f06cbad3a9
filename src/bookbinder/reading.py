"""Reckon how long a page takes to read: what is open on it, listings included.

Three words are read in a second, and a line of code in four. What is folded is left
out, and with it the solutions of the exercises.
"""

from pathlib import Path

from bookbinder.listings import find_section
from bookbinder.page import Page


def minutes(page: Page, root: Path) -> float:
    """Return how many minutes the open parts of a page take."""
    shut = _folded(page.lines)
    words = sum(len(line.split()) for n, line in page.prose if n not in shut)
    code = sum(_height(b.code) for b in page.blocks if b.line not in shut)
    for listing in page.listings:
        if listing.line not in shut:
            code += _height(find_section(root, listing.path, listing.section).text)
    return words / 180 + code / 15


def _folded(lines: list[str]) -> set[int]:
    """Return the numbers of the lines that a reader sees only after a click."""
    inside, stack = set[int](), list[str]()
    for number, line in enumerate(lines, start=1):
        if line.startswith("/// "):
            stack.append(line.split()[1])
        if "details" in stack:
            inside.add(number)
        if line.strip() == "///" and stack:
            stack.pop()
    return inside


def _height(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())
