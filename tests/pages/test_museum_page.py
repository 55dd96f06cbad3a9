"""The museum's page shows every exhibit, with the threads about it."""

import re
from pathlib import Path

from attention_check import EXHIBITS, KNOWN

PAGE = Path(__file__).parents[2] / "docs" / "chapters" / "the-bug-museum.md"
TEXT = PAGE.read_text("utf-8")


def test_the_page_shows_each_bug_with_every_thread_about_it() -> None:
    sections = re.split(r"^### ", TEXT, flags=re.MULTILINE)
    for name, known in KNOWN.items():
        if known.section:
            assert name not in EXHIBITS
            mistake = f" | {known.mistake} | "
            (shown,) = (row for row in TEXT.splitlines() if mistake in row)
            assert _anchor(shown.split(" | ")[0].removeprefix("| ")) == name
        else:
            (shown,) = (s for s in sections if _anchor(s.split("\n")[0]) == name)
            listed = re.findall(r'^--8<-- "src/.*:(\w+)"$', shown, re.MULTILINE)
            assert name.replace("-", "_") in listed or name == "backward-without-mask"
        links = set(re.findall(r"\]\((https://github\.com/[^)]+)\)", shown))
        threads = (*known.published, *known.related)
        assert links == {thread.url for thread in threads}, name


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
