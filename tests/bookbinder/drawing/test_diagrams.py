"""Diagrams are drawn once, kept by what they say, and read back without a browser."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.bookbinder.conftest import Render

from bookbinder.drawing import __main__ as command
from bookbinder.drawing.diagrams import drawing
from bookbinder.drawing.undrawn import UndrawnError
from bookbinder.writing import write_whole

FLOW = """flowchart LR
accTitle: A flow
accDescr: A goes to B.
%% Q = rand(B, T)
A["Q: (B, T)"] -->|"softmax"| B["out"]"""
OTHER = FLOW.replace("softmax", "norm")
DRAWN = (
    '<svg role="img" aria-labelledby="t"><title id="t">A flow</title>'
    '<marker id="m"/><path marker-end="url(#m)"/></svg>\n'
)
PAGE = Path("docs/chapters/page.md")


def fences(*sources: str) -> str:
    return "One.\n\n" + "\n".join(f"```mermaid\n{source}\n```\n" for source in sources)


def test_drawn_diagrams_are_put_into_the_page_with_ids_of_their_own(
    rendered: Render,
) -> None:
    write_whole(drawing(FLOW), DRAWN)
    write_whole(drawing(OTHER), DRAWN)
    page = rendered(fences(FLOW, OTHER, FLOW))
    drawn = page.select("figure.diagram[data-search-exclude] > svg")
    assert len(drawn) == 3
    captions = [caption.text for caption in page.select("figure > svg + figcaption")]
    assert captions == ["A flow."] * 3
    assert "mermaid" not in str(page)
    assert len({str(element["id"]) for element in page.select("[id]")}) == 6
    for svg in drawn:
        assert svg.select_one(f"#{svg['aria-labelledby']}")
        (path,) = svg("path")
        assert svg.select_one(str(path["marker-end"])[4:-1])


def test_symbols_are_set_as_in_formulas(rendered: Render) -> None:
    words = "W^Q, (B, H_kv, d_k) d_model x_0 -inf"
    drawn = f"<svg><text><tspan>{words}</tspan><tspan>W_O</tspan></text></svg>\n"
    write_whole(drawing(FLOW), drawn)
    svg = rendered(fences(FLOW)).select_one("svg")
    assert svg
    small = svg.select('tspan[font-size="75%"]')
    assert [(symbol.text, str(symbol["dy"])[0]) for symbol in small] == [
        *[("Q", "-"), ("kv", "0"), ("k", "0"), ("0", "0")],
        ("O", "0"),
    ]
    assert svg.text == "WQ, (B, Hkv, dk) d_model x0 −∞WO\u200b"
    # The line goes on where it was: what is moved down or up is moved back.
    for symbol in small:
        back = symbol.find_next_sibling("tspan")
        assert back
        shift = 0.75 * float(str(symbol["dy"])[:-2]) + float(str(back["dy"])[:-2])
        assert abs(shift) < 0.001


def test_a_changed_diagram_is_an_undrawn_one(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(drawing(FLOW), DRAWN)
    assert drawing(f"\n{FLOW}\n".replace("rand", "zeros")) == drawing(FLOW)
    with pytest.raises(UndrawnError, match="diagram not drawn: run make diagrams"):
        rendered(fences(FLOW, OTHER))
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    left = rendered(fences(FLOW, OTHER)).select("div.mermaid[data-undrawn]")
    assert [box.get_text() for box in left] == [OTHER]


def test_a_diagram_is_a_flowchart_and_says_what_it_shows(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    for right, wrong, reason in (
        (r"(accTitle:).*", r"\1", "has no accTitle, which screen readers read out"),
        (r"(accDescr:).*", r"\1", "has no accDescr, which screen readers read out"),
        ("flowchart LR", "sequenceDiagram", "is not a flowchart, the only kind"),
    ):
        slip = re.sub(right, wrong, FLOW)
        monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)
        with pytest.raises(UndrawnError, match=f"diagram {reason}"):
            rendered(fences(slip))
        monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
        (box,) = rendered(fences(slip)).select("div.book-error")
        assert reason in box.get_text()
        assert str(box["data-source"]).strip() == slip


def test_what_is_new_is_drawn_and_what_is_left_over_deleted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def chromium() -> Generator[None]:
        yield

    def draw(source: str) -> str:
        if source.strip() == OTHER:
            return DRAWN
        raise command.DrawingError("cannot be drawn")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "chromium", chromium)
    monkeypatch.setattr(command, "drawing_by", lambda _: draw)
    write_whole(PAGE, fences(FLOW, OTHER, f"{FLOW} -->", OTHER))
    write_whole(drawing(FLOW), DRAWN)
    write_whole(drawing("left over"), DRAWN)
    assert command.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{PAGE}:27: drawn as {drawing(OTHER)}",
        f"{PAGE}:19: diagram cannot be drawn",
        f"deleted {drawing('left over')}: no page has it",
    ]
    assert drawing(OTHER).read_text("utf-8") == DRAWN
    write_whole(PAGE, fences(FLOW, OTHER))
    assert command.new_and_old() == ({}, [])
    assert command.main() == 0


def test_the_diagrams_of_this_book_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    assert command.new_and_old() == ({}, [])
