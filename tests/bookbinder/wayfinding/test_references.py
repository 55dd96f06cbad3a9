"""Names in backticks and titles of listings lead to the reference."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor

from bookbinder.wayfinding.references import ReferenceExtension

ROOT = Path(__file__).parents[3]
CAUSAL = "reference/masks.md#tested_transformer.masks.causal_mask"

RUN = "```python\nfrom tested_transformer import causal_mask\n```\n\n"
LISTING = """```py title="src/tested_transformer/masks.py"
--8<-- "src/tested_transformer/masks.py:causal"
```
"""


class _Page(Treeprocessor):
    """What MkDocs leaves in the converter of a page."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = SimpleNamespace(src_uri=path)


def made(text: str, page: str = "index.md") -> BeautifulSoup:
    extensions = ["pymdownx.highlight", "pymdownx.superfences", "pymdownx.snippets"]
    md = Markdown(extensions=[*extensions, ReferenceExtension()])
    md.treeprocessors.register(_Page(page), "relpath", 0)
    return BeautifulSoup(md.convert(text), "html.parser")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def names(soup: BeautifulSoup) -> list[tuple[str, str]]:
    return [(link.get_text(), str(link["href"])) for link in soup.select("a.name")]


def test_a_name_that_the_page_imports_is_linked_once_a_section() -> None:
    text = RUN + "`causal_mask`, `causal_mask`.\n\n## Again\n\n*So `causal_mask(3)`!*"
    soup = made(text)
    assert names(soup) == [("causal_mask", CAUSAL), ("causal_mask(3)", CAUSAL)]
    assert [p.get_text() for p in soup.select("p")] == [
        "causal_mask, causal_mask.",
        "So causal_mask(3)!",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`causal_mask`",  # a name that this page has nothing to do with
        RUN + "`padding_mask`",
        RUN + "[`causal_mask`](x.md)",
        RUN + "## `causal_mask`",
    ],
)
def test_other_names_are_left_alone(text: str) -> None:
    assert names(made(text)) == []


def test_the_title_of_a_listing_leads_to_what_it_shows() -> None:
    soup = made(LISTING + "\n`causal_mask`", "chapters/06.md")
    (title,) = soup.select("span.filename > a")
    assert title.get_text() == "src/tested_transformer/masks.py"
    assert title["href"] == (
        "../../reference/masks/#tested_transformer.masks.causal_mask"
    )
    assert names(soup) == [("causal_mask", "../" + CAUSAL)]


def test_the_reference_does_not_lead_to_itself() -> None:
    assert names(made(RUN + "`causal_mask`", "reference/masks.md")) == []
