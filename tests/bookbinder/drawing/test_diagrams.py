"""Diagrams are drawn once, kept by what they say, and read back without a browser."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from playwright.sync_api import Browser

from bookbinder.browser.chromium import HOW_TO_GET
from bookbinder.drawing import __main__ as command
from bookbinder.drawing import diagrams
from bookbinder.drawing.diagrams import drawing, format_diagram
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


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)


def write(*sources: str) -> str:
    text = "One.\n\n" + "\n".join(f"```mermaid\n{source}\n```\n" for source in sources)
    write_whole(PAGE, text)
    return text


def rendered(*sources: str) -> BeautifulSoup:
    fence = {"name": "mermaid", "class": "mermaid", "format": format_diagram}
    markdown = Markdown(
        extensions=["pymdownx.superfences"],
        extension_configs={"pymdownx.superfences": {"custom_fences": [fence]}},
    )
    return BeautifulSoup(markdown.convert(write(*sources)), "html.parser")


def test_drawn_diagrams_are_put_into_the_page_with_ids_of_their_own() -> None:
    write_whole(drawing(FLOW), DRAWN)
    write_whole(drawing(OTHER), DRAWN)
    page = rendered(FLOW, OTHER, FLOW)
    assert len(page.select("figure.diagram[data-search-exclude] > svg")) == 3
    assert "mermaid" not in str(page)
    ids = [str(element["id"]) for element in page.select("[id]")]
    assert len(ids) == len(set(ids)) == 6
    for svg in page.find_all("svg"):
        title, marker, path = svg.find("title"), svg.find("marker"), svg.find("path")
        assert title
        assert marker
        assert path
        assert svg["aria-labelledby"] == title["id"]
        assert path["marker-end"] == f"url(#{marker['id']})"


def test_a_changed_diagram_is_an_undrawn_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(drawing(FLOW), DRAWN)
    assert drawing(f"\n{FLOW}\n".replace("rand", "zeros")) == drawing(FLOW)
    assert drawing(OTHER) != drawing(FLOW)
    with pytest.raises(UndrawnError) as caught:
        rendered(FLOW, OTHER)
    assert str(caught.value) == f"{PAGE}:11: diagram not drawn: run make diagrams"
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    left = rendered(FLOW, OTHER).select_one("div.mermaid[data-undrawn]")
    assert left
    assert left.get_text() == OTHER


def test_another_way_of_drawing_is_another_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawing(FLOW)
    script = tmp_path / "drawing.js"
    script.write_text("another", encoding="utf-8")
    monkeypatch.setattr(diagrams, "DRAWING_SCRIPT", script)
    monkeypatch.setattr(diagrams, "_how_drawn", diagrams._how_drawn.__wrapped__)
    assert drawing(FLOW) != before


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        (r"(accTitle:).*", r"\1", "has no accTitle, which screen readers read out"),
        (r"(accDescr:).*", r"\1", "has no accDescr, which screen readers read out"),
        ("flowchart LR", "sequenceDiagram", "is no flowchart, the one kind that"),
    ],
)
def test_a_diagram_is_a_flowchart_and_says_what_it_shows(
    right: str, wrong: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slip = re.sub(right, wrong, FLOW)
    with pytest.raises(UndrawnError, match=rf"page\.md:3: diagram {reason}"):
        rendered(slip)
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    box = rendered(slip).select_one("div.book-error")
    assert box
    assert reason in box.get_text()
    assert str(box["data-source"]).strip() == slip


def test_what_is_new_is_drawn_and_what_is_left_over_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def chromium() -> Generator[None]:
        yield

    def drawing_by(_: Browser) -> command.Draw:
        def draw(source: str) -> str:
            if source.strip() == OTHER:
                return DRAWN
            raise command.DrawingError("cannot be drawn")

        return draw

    monkeypatch.setattr(command, "chromium", chromium)
    monkeypatch.setattr(command, "drawing_by", drawing_by)
    broken = f"{FLOW} -->"
    write(FLOW, OTHER, broken, OTHER)
    write_whole(drawing(FLOW), DRAWN)
    write_whole(drawing("left over"), DRAWN)
    assert command.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{PAGE}:27: drawn as {drawing(OTHER)}",
        f"{PAGE}:19: diagram cannot be drawn",
        f"deleted {drawing('left over')}: no page has it",
    ]
    assert drawing(OTHER).read_text("utf-8") == DRAWN
    write(FLOW, OTHER)
    assert command.new_and_old() == ({}, [])
    assert command.main() == 0


def test_without_a_browser_the_line_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    write(FLOW)
    assert command.main() == 1
    said = capsys.readouterr().err.strip()
    assert said == f"{HOW_TO_GET}; or leave it to the pull request's check"


def test_the_diagrams_of_this_book_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    assert command.new_and_old() == ({}, [])
