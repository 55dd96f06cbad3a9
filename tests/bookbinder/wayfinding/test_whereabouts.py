"""Ways from page to page, in the sources and in the built site."""

import pytest
from markdown import Markdown
from zensical.extensions.context import ContextExtension, Page

from bookbinder.wayfinding.whereabouts import (
    address,
    current_page,
    raw_way,
    way,
)


@pytest.mark.parametrize(
    ("page", "target", "source", "built"),
    [
        ("index.md", "glossary.md", "glossary.md", "glossary/"),
        ("glossary.md", "index.md", "index.md", "../"),
        ("chapters/01.md", "glossary.md", "../glossary.md", "../../glossary/"),
        ("chapters/01.md", "chapters/02.md", "02.md", "../02/"),
        ("reference/a.md", "reference/index.md", "index.md", "../"),
        (
            "reference/index.md",
            "chapters/01.md",
            "../chapters/01.md",
            "../chapters/01/",
        ),
    ],
)
def test_the_way_from_page_to_page(
    page: str, target: str, source: str, built: str
) -> None:
    assert way(page, target) == source
    assert address(page, target) == built


def test_an_audit_is_on_no_page() -> None:
    assert current_page(Markdown()) is None


def test_zensical_turns_the_links_of_finished_html_and_mkdocs_does_not() -> None:
    page, target = "chapters/01.md", "glossary.md"
    assert raw_way(Markdown(), page, target) == "../../glossary/"
    context = ContextExtension(page=Page(url="", path=page), config={})
    md = Markdown(extensions=[context])
    assert current_page(md) == page
    assert raw_way(md, page, target) == "../glossary.md"
