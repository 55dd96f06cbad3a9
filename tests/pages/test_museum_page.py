"""The museum's page shows every exhibit, with the threads about it."""

import re
from pathlib import Path

import pytest

from tested_transformer.checking import EXHIBITS

PAGE = Path(__file__).parents[2] / "docs" / "chapters" / "the-bug-museum.md"


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_page_shows_it_with_every_thread_about_it(name):
    text = PAGE.read_text("utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    (section,) = [
        each
        for each in sections
        if each.partition("\n")[0].lower().replace(" ", "-") == name
    ]
    listed = re.findall(r'^--8<-- "src/.*:(\w+)"$', section, re.MULTILINE)
    assert name.replace("-", "_") in listed or name == "backward-without-mask"
    links = set(re.findall(r"\]\((https://github\.com/[^)]+)\)", section))
    known = EXHIBITS[name]
    assert links == {each.url for each in (*known.published, *known.related)}
