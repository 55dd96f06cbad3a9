"""A table has each of its names once."""

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
