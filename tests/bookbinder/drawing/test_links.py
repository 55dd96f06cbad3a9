"""Boxes of a diagram lead to pages, and so do lines in a box."""

import re

import pytest
from tests.bookbinder.conftest import Render

from bookbinder.drawing import links
from bookbinder.drawing.diagrams import drawing
from bookbinder.drawing.undrawn import UndrawnError
from bookbinder.writing import write_whole

FLOW = """flowchart LR
accTitle: A flow
accDescr: A goes to B.
A["one<br/>two words<br/>three"] --> B["the whole<br/>box"]
%% [two words](#two)
%% [the whole box](other.md#part)"""


def row(text: str) -> str:
    words = "".join(f"<tspan>{word}</tspan>" for word in re.split(r"(?= )", text))
    return f'<tspan x="0">{words}</tspan>'


def box(*rows: str) -> str:
    return f"<g><rect/><g><text>{''.join(map(row, rows))}</text></g></g>"


DRAWN = (
    '<svg xmlns="http://www.w3.org/2000/svg" role="img"><title id="t">A flow</title>'
    f"{box('one', 'two words', 'three')}{box('the whole', 'box')}</svg>\n"
)


def page(source: str) -> str:
    return f"```mermaid\n{source}\n```\n"


def test_a_box_and_a_line_lead_on(rendered: Render) -> None:
    write_whole(drawing(FLOW), DRAWN)
    html = rendered(page(FLOW))
    line, box_link = html.select("svg a")
    assert (line["href"], line.get_text()) == ("#two", "two words")
    assert [child.name for child in line.parent or ()] == ["tspan", "a", "tspan"]
    assert box_link["href"] == "other.md#part"
    assert [child.name for child in box_link] == ["rect", "g"]
    # A picture would have no parts for a screen reader, and no link is text.
    assert html.select_one("svg[role=group] > title")
    assert html.get_text().count("two words") == 1


def test_a_link_of_no_box_is_refused(rendered: Render) -> None:
    slip = FLOW.replace("[two words]", "[two word]")
    write_whole(drawing(slip), DRAWN)
    with pytest.raises(UndrawnError, match="has no box or line “two word” to make"):
        rendered(page(slip))


def test_a_box_leads_to_where_a_page_is_built(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "current_page", lambda _: "chapters/here.md")
    write_whole(drawing(FLOW), DRAWN)
    (_, box_link) = rendered(page(FLOW)).select("svg a")
    assert box_link["href"] == "../other/#part"
