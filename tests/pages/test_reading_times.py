"""The times that the home page and the map name are those of the pages to read.

Reading is reckoned at three words a second and four seconds for a line of code. What is
folded is left out, and with it the solutions of the exercises.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from bookbinder.page import load_page

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"(?:(\d+) h)?\s*(?:(\d+) min)?\Z")
LINK = re.compile(r"\[[^]]+\]\(([\w/-]+\.md)\)")
BETWEEN = " and on, to "  # links so joined stand for all chapters from one to the other


def read_order() -> list[str]:
    """Return the chapters in the order of the home page's table."""
    _, _, table = (ROOT / "docs/index.md").read_text("utf-8").partition("## All")
    return LINK.findall(table)


def folded(lines: list[str]) -> set[int]:
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


def height(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


@cache
def minutes(page: str) -> float:
    """Reckon how long the open parts of a page take to read, listings included."""
    loaded = load_page(ROOT / "docs" / page, ROOT)
    shut = folded(loaded.lines)
    words = sum(len(line.split()) for n, line in loaded.prose if n not in shut)
    code = sum(height(b.code) for b in loaded.blocks if b.line not in shut)
    for listing in loaded.listings:
        if listing.line not in shut:
            text = (ROOT / listing.path).read_text("utf-8")
            _, _, rest = text.partition(f"[start:{listing.section}]")
            code += height(rest.partition(f"[end:{listing.section}]")[0])
    return words / 180 + code / 15


def ways(page: str) -> list[tuple[str, str]]:
    """Return each way of a page: its time, and the text with its links."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    table = re.findall(r"^\| [^|]+ \| (\d[^:|]*): (.*) \|$", text, re.M)
    lines = re.findall(r"^\*\*To [^*]+\*\*[^(]* \((\d[^)]*)\): (.*)$", text, re.M)
    return table + lines


def chapters(way: str) -> list[str]:
    """Return the pages that a way leads through."""
    order, through = read_order(), list[str]()
    for link in LINK.finditer(way):
        page = link[1]
        if way[: link.start()].endswith(BETWEEN):
            through += order[order.index(through[-1]) + 1 : order.index(page)]
        through.append(page)
    return through


@pytest.mark.parametrize("name", ["index.md", "map.md"])
def test_a_way_takes_as_long_as_its_pages(name: str) -> None:
    found = ways(name)
    assert len(found) >= 5
    for time, way in found:
        parts = TIME.match(time)
        assert parts, f"{name}: not a time: {time}"
        said = 60 * int(parts[1] or 0) + int(parts[2] or 0)
        reckoned = sum(minutes(each) for each in chapters(way))
        slack = max(10, reckoned / 8)
        assert abs(said - reckoned) <= slack, (
            f"{name}: {time} for {way}: it takes about {reckoned:.0f} minutes"
        )
