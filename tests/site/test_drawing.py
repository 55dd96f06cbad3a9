"""Diagrams as the browser draws them: fit for a page, and the same each time."""

import re

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import Browser

from bookbinder.drawing import __main__ as drawing

pytestmark = pytest.mark.browser

SPOKEN = "accTitle: A flow\naccDescr: A goes to B."
FLOW = f'flowchart LR\n{SPOKEN}\nA["Q: (B, T)"] -->|"softmax"| B["out"]'
SUBGRAPHS = f"""flowchart TD
{SPOKEN}
subgraph E["Encoder"]
  A["in"] ==> B(["out"])
end
B -. context .-> C{{"last?"}} --> D(("end"))"""


@pytest.fixture(scope="module")
def draw(browser: Browser) -> drawing.Draw:
    return drawing.drawing_by(browser)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (FLOW, ["Q: (B, T)", "softmax", "out"]),
        (SUBGRAPHS, ["Encoder", "context", "last?"]),
    ],
)
def test_a_drawing_is_fit_for_a_page(
    source: str, words: list[str], draw: drawing.Draw
) -> None:
    svg = draw(source)
    assert draw(source) == svg
    soup = BeautifulSoup(svg, "html.parser")
    text = soup.get_text()
    assert all(word in text for word in ["A flow", "A goes to B.", *words])
    assert soup.select_one("svg[role=img][viewbox][style^=--natural] > title[id]")
    assert soup.select_one("[marker-end], [marker-start]")
    assert set(re.findall(r"var\((--[\w-]+)\)", svg)) >= {"--book-ink", "--book-paper"}
    for element in soup.select("[fill], [stroke]"):
        for name in ("fill", "stroke"):
            assert re.fullmatch(
                r"none|var\(--book-\w+\)", str(element.get(name, "none"))
            )
    assert not soup.select("[class], style, script, foreignobject")
    # Everything that paints says in what, itself or through what it stands in:
    # without, it would be black on a dark page.
    for element in soup.select("path, rect, circle, polygon, text"):
        assert element.has_attr("fill"), element
    assert re.findall(r"url\(#([^)]*)\)", svg)
    assert all(f'id="{name}"' in svg for name in re.findall(r"url\(#([^)]*)\)", svg))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("style A fill:#ff0000", r"rgb\(255, 0, 0\) .* none of the book's colors"),
        ("A --> --> B", "Parse error on line"),
    ],
)
def test_a_diagram_that_cannot_be_drawn_says_why(
    line: str, reason: str, draw: drawing.Draw
) -> None:
    with pytest.raises(drawing.DrawingError, match=reason):
        draw(f"{FLOW}\n{line}")
    assert draw(FLOW), "the next one is drawn all the same"
