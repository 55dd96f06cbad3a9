"""Chapters lead to the reference, and the reference to the chapters."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from tests.bookbinder.conftest import Render

from bookbinder.wayfinding.appearances import appearances_in, exports, pages_of
from bookbinder.wayfinding.entries import appearance_line
from bookbinder.writing import write_whole

MASKS = '''"""Masks."""

__all__ = ["LIMIT", "Window", "causal"]

LIMIT = 5


def causal():
    # --8<-- [start:inside]
    return 1
    # --8<-- [end:inside]


class Window:
    # --8<-- [start:method]
    def width(self):
        return _two()
    # --8<-- [end:method]


# --8<-- [start:private]
def _two():
    return 2
# --8<-- [end:private]
'''

RUN = """```python
from tested_transformer import causal
from tested_transformer.gpt import (
    GPT,
    Unlisted,
)
from elsewhere.masks import Window
```

"""
LISTING = """```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:{}"
```

"""
FIRST, SECOND, THIRD = map(LISTING.format, ("inside", "private", "method"))
PAGE = f"# On `masks`\n\n{RUN}## First\n\n{FIRST}{SECOND}## First\n\n{THIRD}"
MASKS_AT = "tested_transformer.masks"
CAUSAL = f"{MASKS_AT}.causal"


@pytest.fixture
def linked(rendered: Render, tmp_path: Path) -> Render:
    for file, text in {
        "tested_transformer/__init__.py": "if TYPE_CHECKING:\n"
        "    from tested_transformer.masks import causal\n\n__all__ = []\n",
        "tested_transformer/masks.py": MASKS,
        "tested_transformer/gpt/__init__.py": '__all__ = ["GPT"]\n',
        "tested_transformer/gpt/model.py": '__all__ = ["Unlisted"]\n',
        "transformer_book/__init__.py": '__all__ = ["load_record"]\n',
        "transformer_book/plots.py": '__all__ = ["curves"]\n',
        "transformer_book/microgpt/__init__.py": '__all__ = ["Scalar"]\n',
    }.items():
        write_whole(tmp_path / "src" / file, text)
    return lambda text, page="index.md": rendered(text, page)


def names(soup: BeautifulSoup) -> list[tuple[str, str]]:
    return [(link.get_text(), str(link["href"])) for link in soup.select("a.name")]


def test_a_page_lists_what_it_shows_lines_of_and_uses_what_it_imports(
    linked: Render, tmp_path: Path
) -> None:
    linked(PAGE, "one.md")
    linked(PAGE, "reference/masks.md")
    assert exports(tmp_path) == {
        "transformer_book": ["load_record"],
        "transformer_book.microgpt": ["Scalar"],
        "transformer_book.plots": ["curves"],
        "tested_transformer.gpt": ["GPT"],
        "tested_transformer.masks": ["LIMIT", "Window", "causal"],
    }
    shown = appearances_in("one.md", tmp_path)
    window = "tested_transformer.masks.Window"
    assert shown.title == "On masks"
    assert shown.listed == {CAUSAL: "first", window: "first_1"}
    assert shown.listings == [(MASKS_AT, CAUSAL), (MASKS_AT, ""), (MASKS_AT, window)]
    assert shown.used == {CAUSAL, "tested_transformer.gpt.GPT"}
    pages = pages_of(tmp_path)
    assert [*pages] == ["one.md"]
    line = appearance_line(CAUSAL, pages)
    assert line == "**In the book**: listed in [On masks](../one.md#first)."
    line = appearance_line("tested_transformer.gpt.GPT", pages)
    assert line == "**In the book**: used in [On masks](../one.md)."
    assert appearance_line("tested_transformer.masks.LIMIT", pages) == ""


def test_a_name_that_the_page_imports_is_linked_once_a_section(linked: Render) -> None:
    soup = linked(RUN + "`causal`, `causal`.\n\n## Again\n\n*So `causal(3)`!*")
    target = f"reference/masks.md#{CAUSAL}"
    assert names(soup) == [("causal", target), ("causal(3)", target)]
    texts = [p.get_text() for p in soup.select("p")]
    assert texts == ["causal, causal.", "So causal(3)!"]


def test_other_names_are_left_alone(linked: Render) -> None:
    assert names(linked("`causal`")) == []  # with which this page has nothing to do
    fold = "/// details | `causal`\nSo.\n///\n"
    for text in ("`LIMIT`", "[`causal`](x.md)", "## `causal`", fold):
        assert names(linked(RUN + text)) == [], text


def test_the_title_of_a_listing_leads_to_what_it_shows(linked: Render) -> None:
    listing = LISTING.format("inside")
    soup = linked(f"{listing}`causal`", "chapters/06.md")
    (title,) = soup.select("span.filename > a")
    assert title.get_text() == "src/tested_transformer/masks.py"
    assert title["href"] == f"../../reference/masks/#{CAUSAL}"
    assert names(soup) == [("causal", f"../reference/masks.md#{CAUSAL}")]
    (title,) = linked(listing, "index.md").select("span.filename > a")
    assert title["href"] == f"reference/masks/#{CAUSAL}"
    assert names(linked(RUN + "`causal`", "reference/masks.md")) == []


def test_a_name_on_a_further_page_of_its_module_is_linked_there(
    linked: Render,
) -> None:
    options = "    options:\n      members:\n        - causal\n"
    linked(f"# More masks\n\n::: {MASKS_AT}\n{options}", "reference/masks-more.md")
    soup = linked(f"{RUN}`causal`\n\n`Window`\n\n{FIRST}", "one.md")
    assert names(soup) == [("causal", f"reference/masks-more.md#{CAUSAL}")]
    (title,) = soup.select("span.filename > a")
    assert title["href"] == f"../reference/masks-more/#{CAUSAL}"
