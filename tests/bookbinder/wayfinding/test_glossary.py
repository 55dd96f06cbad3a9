"""Terms become links the first time that a section uses them, and nowhere else."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from tests.bookbinder.conftest import Render

from bookbinder.wayfinding.glossary import read_glossary
from bookbinder.writing import write_whole

GLOSSARY = """---
everyday: [Block]
---

# Glossary

## Mask

Which query may attend to which key. See [The mask](chapters/06.md#the-mask).

## Causal mask

A mask of $H_\\text{kv}$, `head_dim`; *not* of $-\\infty$: [The mask](chapters/07.md).

## Query

What a token looks for, at $1 / \\sqrt{d_k}$ vs. a key.

## Vocabulary

All tokens that a model knows. Also: *words*.

## Block

Whatever [this](x.md) says.
"""
MASK = ("../glossary.md#mask", "Which query may attend to which key.")
CAUSAL = ("../glossary.md#causal-mask", "A mask of H_kv, head_dim; not of −∞.")
QUERY = ("../glossary.md#query", "What a token looks for, at 1 / √d_k vs. a key.")


@pytest.fixture
def linked(rendered: Render) -> Render:
    write_whole(Path("docs/glossary.md"), GLOSSARY)
    write_whole(Path("src/tested_transformer/__init__.py"), "")
    return lambda text, page="chapters/01.md": rendered(text, page)


def links(soup: BeautifulSoup) -> list[tuple[str, str, str]]:
    return [
        (link.get_text(), str(link["href"]), str(link["title"]))
        for link in soup.select("a.term")
    ]


def test_the_first_use_in_a_section_is_linked_and_nothing_is_lost(
    linked: Render,
) -> None:
    text = (
        "One mask, *masks*, Causal mask.\n\n- a query\n\n## A mask\n\nA mask, a block."
    )
    soup = linked(text)
    assert links(soup) == [
        ("mask", *MASK),
        ("Causal mask", *CAUSAL),
        ("query", *QUERY),
        ("mask", *MASK),
    ]
    assert soup.get_text() == linked(text, "").get_text()


def test_code_links_headings_tables_and_bold_print_are_left_alone(
    linked: Render,
) -> None:
    table = "| mask |\n|---|\n| mask |"
    code = "    mask"
    for text in ("`mask`", "[the mask](x.md)", "**mask**", "### A mask", table, code):
        assert links(linked(text)) == [], text


def test_the_page_that_explains_a_term_does_not_link_it(linked: Render) -> None:
    for page, expected in {
        "index.md": ["glossary.md#mask", "glossary.md#query"],
        "chapters/06.md": ["../glossary.md#query"],
        "reference/masks.md": [],
        "": [],
    }.items():
        targets = links(linked("A mask and a query.", page))
        assert [target for _, target, _ in targets] == expected


def test_an_entry_without_a_plain_sentence_is_refused() -> None:
    message = "Mask: no tip can show the first sentence"
    for entry in ("[This](x.md) is.", "At $\\frac{1}{2}$.", "No stop"):
        with pytest.raises(ValueError, match=message):
            read_glossary(f"# Glossary\n\n## Mask\n\n{entry}\n")
