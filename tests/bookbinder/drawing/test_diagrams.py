"""Diagrams are drawn once, kept by what they say, and read back without a browser."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown

from bookbinder.browser.chromium import HOW_TO_GET, find_chromium
from bookbinder.drawing import __main__ as drawing
from bookbinder.drawing import diagrams
from bookbinder.drawing.diagrams import diagram_name, drawings_folder, format_diagram
from bookbinder.drawing.undrawn import UndrawnError

SPOKEN = "accTitle: A flow\naccDescr: A goes to B."
FLOW = f'flowchart LR\n{SPOKEN}\nA["Q: (B, T)"] -->|"softmax"| B["out"]'
SEQUENCE = f"""sequenceDiagram
{SPOKEN}
participant D as Decoder
participant C as Cache
D->>+C: append
C-->>-D: all keys
Note over D,C: a step
loop every token
  D->>D: sample
end"""


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)
    Path("docs/chapters").mkdir(parents=True)


def write(*sources: str, page: str = "docs/chapters/page.md") -> str:
    text = "One.\n\n" + "\n".join(f"```mermaid\n{source}\n```\n" for source in sources)
    Path(page).write_text(text, encoding="utf-8")
    return text


def rendered(*sources: str) -> BeautifulSoup:
    fence = {"name": "mermaid", "class": "mermaid", "format": format_diagram}
    markdown = Markdown(
        extensions=["pymdownx.superfences"],
        extension_configs={"pymdownx.superfences": {"custom_fences": [fence]}},
    )
    return BeautifulSoup(markdown.convert(write(*sources)), "html.parser")


def keep(source: str, svg: str) -> None:
    drawings_folder().mkdir(parents=True, exist_ok=True)
    file = drawings_folder() / f"{diagram_name(source)}.svg"
    file.write_text(svg, encoding="utf-8")


DRAWN = (
    '<svg role="img" aria-labelledby="t"><title id="t">A flow</title>'
    '<marker id="m"/><path marker-end="url(#m)"/></svg>\n'
)


def test_a_drawn_diagram_is_put_into_the_page() -> None:
    keep(FLOW, DRAWN)
    figure = rendered(FLOW).find("figure")
    assert figure
    assert figure["class"] == ["diagram"]
    assert figure.has_attr("data-search-exclude")
    assert "mermaid" not in str(figure)


def test_ids_are_unique_on_the_page_and_still_refer() -> None:
    keep(FLOW, DRAWN)
    keep(SEQUENCE, DRAWN)
    page = rendered(FLOW, SEQUENCE, FLOW)
    ids = [str(element["id"]) for element in page.select("[id]")]
    assert len(ids) == len(set(ids)) == 6
    for svg in page.find_all("svg"):
        title, marker, path = svg.find("title"), svg.find("marker"), svg.find("path")
        assert title
        assert marker
        assert path
        assert svg["aria-labelledby"] == title["id"]
        assert path["marker-end"] == f"url(#{marker['id']})"


def test_a_changed_diagram_is_an_undrawn_one() -> None:
    keep(FLOW, DRAWN)
    with pytest.raises(UndrawnError) as caught:
        rendered(FLOW.replace("out", "output"))
    assert str(caught.value) == (
        "docs/chapters/page.md:4: diagram not drawn: run make diagrams"
    )


def test_the_name_is_of_the_content_and_not_of_its_margins() -> None:
    assert diagram_name(f"\n{FLOW}\n") == diagram_name(FLOW)
    assert diagram_name(FLOW) != diagram_name(FLOW + "x")
    assert re.fullmatch("[0-9a-f]{16}", diagram_name(FLOW))


def test_another_way_of_drawing_is_another_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = diagram_name(FLOW)
    script = tmp_path / "drawing.js"
    script.write_text("another", encoding="utf-8")
    diagrams._how_drawn.cache_clear()
    monkeypatch.setattr(diagrams, "DRAWING_SCRIPT", script)
    try:
        assert diagram_name(FLOW) != before
    finally:
        monkeypatch.undo()
        diagrams._how_drawn.cache_clear()
    assert diagram_name(FLOW) == before


def test_a_preview_leaves_an_undrawn_diagram_to_the_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    left = rendered(FLOW).select_one("div.mermaid[data-undrawn]")
    assert left
    assert left.get_text() == FLOW


@pytest.mark.parametrize("name", ["accTitle", "accDescr"])
def test_a_diagram_must_say_what_it_shows(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = re.sub(rf"{name}: .*\n", f"{name}:\n", FLOW)
    message = f"diagram has no {name}, which screen readers read out"
    with pytest.raises(UndrawnError, match=rf"page\.md:4: {message}"):
        rendered(silent)
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    box = rendered(silent).select_one("div.book-error")
    assert box
    assert box.get_text() == message
    assert str(box["data-source"]).strip() == silent


def test_renew_draws_what_is_missing_and_deletes_what_is_left_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drew: list[str] = []

    def draw_all(missing: dict[str, str], folder: Path) -> bool:
        drew.extend(missing.values())
        for source in missing.values():
            keep(source, DRAWN)
        return True

    monkeypatch.setattr(drawing, "_draw_all", draw_all)
    write(FLOW, SEQUENCE, FLOW)
    keep(FLOW, DRAWN)
    keep("left over", DRAWN)
    orphan = drawings_folder() / f"{diagram_name('left over')}.svg"

    assert drawing.main(["--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "docs/chapters/page.md:11: diagram not drawn: run make diagrams",
        f"{orphan}: no page has this diagram: run make diagrams",
    ]
    assert drew == []

    assert drawing.main([]) == 0
    assert drew == [SEQUENCE]
    assert not orphan.exists()
    assert "2 diagrams: 1 drawn, 1 deleted" in capsys.readouterr().out
    assert drawing.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_what_a_changed_drawing_says_otherwise_is_shown() -> None:
    def drawing_of(*words: str) -> str:
        return f"<svg>{''.join(f'<text>{word}</text>' for word in words)}</svg>"

    before = [drawing_of("A flow", "Q", "scores"), drawing_of("Gone", "x")]
    after = [drawing_of("A flow", "Q &amp; K", "scores"), drawing_of("New", "y")]
    lines = drawing.changed_words(before, after)
    assert [line for line in lines if line[:1] in "+-"][2:] == ["-Q", "+Q & K"]
    assert drawing.changed_words(before, before) == []


def test_without_a_browser_the_line_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    write(FLOW)
    assert drawing.main([]) == 1
    said = capsys.readouterr().err.strip()
    assert said == f"{HOW_TO_GET}; or leave it to the pull request's check"


def test_a_browser_that_is_named_and_not_there_is_not_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    assert find_chromium() is None


def test_the_diagrams_of_this_book_are_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    assert drawing.main(["--check"]) == 0, capsys.readouterr().out
