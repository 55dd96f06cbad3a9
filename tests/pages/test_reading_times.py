"""The times that the home page and the map name are those of the pages to read."""

import re
from pathlib import Path

import pytest

from bookbinder.page import load_page
from bookbinder.reading import minutes

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"(?:(\d+) h)?\s*(?:(\d+) min)?\Z")
LINK = re.compile(r"\[[^]]+\]\(([\w/-]+\.md)\)")
BETWEEN = " and on, to "  # links so joined stand for all chapters from one to the other


def read_order() -> list[str]:
    """Return the chapters in the order of the home page's table."""
    _, _, table = (ROOT / "docs/index.md").read_text("utf-8").partition("## All")
    return LINK.findall(table)


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
    timed_ways = ways(name)
    assert len(timed_ways) >= 5
    for time, way in timed_ways:
        parts = TIME.match(time)
        assert parts, f"{name}: not a time: {time}"
        stated = 60 * int(parts[1] or 0) + int(parts[2] or 0)
        pages = [load_page(ROOT / "docs" / chapter, ROOT) for chapter in chapters(way)]
        reckoned = sum(minutes(page, ROOT) for page in pages)
        slack = max(10, reckoned / 8)
        assert abs(stated - reckoned) <= slack, (
            f"{name}: {time} for {way}: it takes about {reckoned:.0f} minutes"
        )
