"""The museum's page shows every exhibit, with the threads about it."""

import re
from pathlib import Path

import pytest

from attention_check import EXHIBITS, KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "chapters" / "the-bug-museum.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.parametrize("name", KNOWN)
def test_the_page_shows_it_with_every_thread_about_it(name: str) -> None:
    known = KNOWN[name]
    if known.section:
        assert name not in EXHIBITS
        (shown,) = (row for row in TEXT.splitlines() if f" | {known.mistake} | " in row)
        assert _anchor(shown.split(" | ")[0].removeprefix("| ")) == name
    else:
        sections = re.split(r"^### ", TEXT, flags=re.MULTILINE)
        (shown,) = (part for part in sections if _anchor(part.split("\n")[0]) == name)
        listed = re.findall(r'^--8<-- "src/.*:(\w+)"$', shown, re.MULTILINE)
        assert name.replace("-", "_") in listed or name == "backward-without-mask"
    links = set(re.findall(r"\]\((https://github\.com/[^)]+)\)", shown))
    assert links == {each.url for each in (*known.published, *known.related)}


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
