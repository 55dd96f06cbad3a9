"""Terms become links the first time that a section uses them, and nowhere else."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from markdown.treeprocessors import Treeprocessor
from zensical.extensions.context import ContextExtension, Page

from bookbinder.wayfinding.tips import TipExtension

GLOSSARY = """# Glossary

## Mask

Which query may attend to which key. See [The mask](chapters/06.md#the-mask).

## Causal mask

A mask that hides the future. See [The mask](chapters/07.md#the-mask).

## Query

What a token looks for.

## Vocabulary

All tokens that a model knows.
"""


class _Page(Treeprocessor):
    """What MkDocs leaves in the converter of a page."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = SimpleNamespace(src_uri=path)


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/glossary.md").write_text(GLOSSARY, "utf-8")
    monkeypatch.chdir(tmp_path)


def made(text: str, page: str | None = "chapters/01.md") -> BeautifulSoup:
    md = Markdown(extensions=["tables", TipExtension()])
    if page:
        md.treeprocessors.register(_Page(page), "relpath", 0)
    return BeautifulSoup(md.convert(text), "html.parser")


def links(soup: BeautifulSoup) -> list[tuple[str, str, str]]:
    return [
        (link.get_text(), str(link["href"]), str(link["title"]))
        for link in soup.select("a.term")
    ]


MASK = ("../glossary.md#mask", "Which query may attend to which key.")
CAUSAL = ("../glossary.md#causal-mask", "A mask that hides the future.")
QUERY = ("../glossary.md#query", "What a token looks for.")


@pytest.mark.usefixtures("book")
def test_the_first_use_in_a_section_is_linked_and_nothing_is_lost() -> None:
    text = "One mask, *masks* and a Causal mask.\n\n- a query\n\n## Next\n\nA mask."
    soup = made(text)
    assert links(soup) == [
        ("mask", *MASK),
        ("Causal mask", *CAUSAL),
        ("query", *QUERY),
        ("mask", *MASK),
    ]
    assert soup.get_text() == made(text, page=None).get_text()


@pytest.mark.usefixtures("book")
def test_many_are_one_term_and_parts_of_words_are_none() -> None:
    soup = made("Vocabularies, unmasked, mask-like, the queries; masks.")
    assert [text for text, *_ in links(soup)] == ["Vocabularies", "queries", "masks"]


@pytest.mark.usefixtures("book")
@pytest.mark.parametrize(
    "text",
    [
        "`mask`",
        "[the mask](x.md)",
        "**mask**",
        "# A mask",
        "### A mask",
        "| mask |\n|---|\n| mask |",
        "    mask",
    ],
)
def test_code_links_headings_tables_and_bold_print_are_left_alone(text: str) -> None:
    assert links(made(text)) == []


@pytest.mark.usefixtures("book")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("index.md", ["glossary.md#mask", "glossary.md#query"]),
        ("chapters/06.md", ["../glossary.md#query"]),
        ("glossary.md", []),
        ("reference/masks.md", []),
        (None, []),
    ],
)
def test_the_page_that_explains_a_term_does_not_link_it(
    page: str | None, wanted: list[str]
) -> None:
    found = links(made("A mask and a query.", page))
    assert [target for _, target, _ in found] == wanted


@pytest.mark.usefixtures("book")
def test_zensical_says_in_its_own_way_which_page_it_is() -> None:
    context = ContextExtension(page=Page(url="", path="chapters/01.md"), config={})
    md = Markdown(extensions=[context, TipExtension()])
    assert 'href="../glossary.md#mask"' in md.convert("A mask.")
