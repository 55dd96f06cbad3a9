"""A page has a heading once, and a table a name."""

import pytest

from bookbinder.names.labels import label_problems
from bookbinder.reading.pages import read_page

HEAD = "| name | what |\n|---|---|\n"


def problems(*labels: str) -> list[str]:
    rows = "".join(f"| {label} | it |\n" for label in labels)
    page = read_page(f"# Page\n\n{HEAD}{rows}\nWords.\n\n{HEAD}| `k` | it |\n", "p.md")
    return [str(each) for each in label_problems(page)]


@pytest.mark.parametrize("name", ["**cat**", "`q_proj`", "$W^Q$"])
def test_a_name_stands_once(name: str) -> None:
    assert problems(name, "`k`", f"{name} of two", "start", "start") == []
    wrong = f"p.md:7: {name}: line 5 of this table has this name already"
    assert problems(name, "`k`", name) == [wrong]


def test_a_heading_stands_once() -> None:
    text = "# Page\n\n## One\n\n```text\n## One\n```\n\n### Two\n"
    assert label_problems(read_page(text, "p.md")) == []
    (problem,) = label_problems(read_page(text + "\n#### One\n", "p.md"))
    assert str(problem) == "p.md:11: One: line 3 has this heading already"
