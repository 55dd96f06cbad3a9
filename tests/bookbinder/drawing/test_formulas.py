"""Formulas are drawn while the page is made, or refused at their page and line."""

import re

import pytest
from tests.bookbinder.conftest import Render

from bookbinder.drawing.undrawn import UndrawnError


def test_a_formula_becomes_html_and_mathml(rendered: Render) -> None:
    page = rendered("A key $k_i$ for \\$5, `$x$`.\n\n$$\na < b \\& c\n$$\n")
    line, block = page.select(".arithmatex[data-search-exclude]")
    assert line.select_one("math msub")
    assert line.select_one(".katex-html[aria-hidden=true]")
    # Material's search resumes at the first end tag of the same name.
    assert not line.find(line.name)
    assert block.select_one(".katex-display math[display=block]")
    assert [source.get_text() for source in block("annotation")] == [r"a < b \& c"]
    line.decompose()
    assert "A key  for $5, $x$." in page.get_text()


def test_a_refused_formula_is_an_error_and_a_box_in_a_preview(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\\nope is a macro.\n\n$\\nope$ and $x < 1$\n\n$$ \\nope $$\n"
    reason = r"formula \nope: Undefined control sequence: \nope at character 1"
    with pytest.raises(UndrawnError, match=re.escape(reason)):
        rendered(text)
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    page = rendered(text)
    boxes = page.select(".book-error")
    assert [box.name for box in boxes] == ["span", "div"]
    assert [box["data-source"] for box in boxes] == [r"\nope"] * 2
    assert [box.get_text() for box in boxes] == [reason] * 2
    assert len(page.select(".katex")) == 1


def test_what_cannot_be_drawn_as_it_should_is_refused(rendered: Render) -> None:
    for text, reason in (
        ("$a^b^c$", "Double superscript at character 4"),
        (r"$é$", "unicodeTextInMathMode"),
        (r"$\href{https://example.org}{x}$", "trust"),
        ("## The width $d_k$", "formula d_k: the table of contents cannot show it"),
    ):
        with pytest.raises(UndrawnError, match=reason):
            rendered(f"\n{text}\n")


def test_a_line_ends_behind_a_relation_of_a_long_one(rendered: Render) -> None:
    for tex, broken in (
        ("a = 1 / (1 + e)", "a=1/(1+e)"),
        ("h_t = q_t + x_t + y_t + z_t + b_t", "ht​=|qt​+xt​+yt​+zt​+bt​"),
        (" + ".join("abcdefghijklmnopq"), "+|".join("abcdefghijklmnopq")),
    ):
        page = rendered(f"So ${tex}$.\n\n$$\n{tex}\n$$\n")
        for place in page.select("wbr"):
            place.insert_before("|")
        line, display = (html.get_text() for html in page.select(".katex-html"))
        assert line == broken
        assert "|" not in display


def test_formulas_side_by_side_may_come_apart(rendered: Render) -> None:
    inner = r"\left(c \qquad d\right), \qquad \text{e \qquad f}"
    page = rendered(f"$$\na = b, \\qquad\n{inner}\n$$\n")
    for formula in page.select(".katex-html .apart"):
        formula.insert_before("|")
    (drawn,) = page.select(".katex-html")
    assert [part.strip() for part in drawn.get_text().split("|")] == [
        "a=b,",
        "(cd),",
        "e\xa0f",
    ]
    (source,) = page("annotation")
    assert "allowbreak" not in source.get_text()
