"""Diagrams as the browser draws them: fit for a page, and the same each time."""

import re

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser

from bookbinder.drawing import __main__ as drawing

pytestmark = pytest.mark.browser

FLOW = """flowchart TD
accTitle: A flow
accDescr: A goes to B.
subgraph E["Encoder"]
  A["Q: (B, T)"] ==>|"softmax"| B(["out"])
end
B -. context .-> C{"last?"} --> D(("end"))"""


def test_a_drawing_is_fit_for_a_page(browser: Browser) -> None:
    draw = drawing.drawing_by(browser)
    svg = draw(FLOW)
    soup = BeautifulSoup(svg, "html.parser")
    words = ["A flow", "A goes to B.", "Encoder", "Q: (B, T)", "softmax", "context"]
    assert all(word in soup.get_text() for word in words)
    assert soup.select_one("svg[role=img][viewbox][style^=--natural] > title[id]")
    assert soup.select_one("[marker-end], [marker-start]")
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) >= {"--book-ink", "--book-paper"}
    for element in soup.select("[fill], [stroke]"):
        for name in ("fill", "stroke"):
            color = str(element.get(name, "none"))
            assert re.fullmatch(r"none|var\(--book-\w+\)", color)
    assert not soup.select("[class], style, script, foreignobject")
    # Everything that paints says in what, itself or through what it stands in:
    # without, it would be black on a dark page.
    for element in soup.select("path, rect, circle, polygon, text"):
        assert element.has_attr("fill"), element
    markers = re.findall(r"url\(#([^)]*)\)", svg)
    assert markers
    assert all(f'id="{name}"' in svg for name in markers)
    for line, reason in (
        ("style A fill:#ff0000", r"rgb\(255, 0, 0\) .* none of the book's colors"),
        ("A --> --> B", "Parse error on line"),
    ):
        with pytest.raises(drawing.DrawingError, match=reason):
            draw(f"{FLOW}\n{line}")
    assert draw(FLOW) == svg, "the next one is drawn all the same"
