"""Figures become parts of the page, in its colors, and broken ones are refused."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from matplotlib import rc_context, rc_file
from matplotlib.figure import Figure

from bookbinder.drawing.palette import PALETTE
from bookbinder.drawing.undrawn import UndrawnError

FOLDER = Path("docs/assets/figures/page")
RC = Path(__file__).parents[3] / "src" / "bookbinder" / "running" / "book.matplotlibrc"


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)
    FOLDER.mkdir(parents=True)


def draw(name: str, color: str = "#3557c2", labels: float = 10) -> None:
    with rc_context():
        rc_file(RC)
        figure = Figure(figsize=(3, 2))
        axes = figure.add_subplot()
        axes.fill_between([0, 1], [0, 1], color=color, alpha=0.25)
        axes.set_title("a < b", color="#1b1f24")
        axes.tick_params(colors="#6b7280", labelcolor="#6b7280", labelsize=labels)
        for spine in axes.spines.values():
            spine.set_color("#d0d4dc")
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        figure.savefig(FOLDER / f"{name}.svg")


def rendered(text: str) -> BeautifulSoup:
    page = Path("docs/chapters/page.md")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return BeautifulSoup(
        Markdown(extensions=["bookbinder.drawing.inlining"]).convert(text),
        "html.parser",
    )


def test_a_figure_stands_in_the_page_by_itself() -> None:
    draw("one")
    page = rendered('Before.\n\n![Weights & "more"](../assets/figures/page/one.svg)\n')
    figure = page.find("figure")
    assert figure
    assert figure.parent is page
    assert figure.has_attr("data-search-exclude")
    svg = figure.find("svg")
    assert svg
    assert svg["role"] == "img"
    assert svg["aria-label"] == 'Weights & "more"'
    assert svg["viewbox"] == "-6 -6 228 156"
    assert svg["style"] == "--natural: 304px; --least: 207px"
    assert "a < b" in svg.get_text()


@pytest.mark.parametrize(
    ("points", "shown", "natural", "least"),
    # 9 pixels want 9.1 of them; 12 pixels, and more, may be drawn smaller. What is 304
    # wide has room for what "0.0" becomes longer: for three letters of 0.6 of that.
    [(6, 6.75, 308, 311), (8, 9, 309, 234), (8.5, 9, 306, 232), (10, 10, 304, 207)],
)
def test_small_letters_are_larger_and_may_not_be_drawn_small(
    points: float, shown: float, natural: int, least: int
) -> None:
    draw("one", labels=points)
    svg = rendered("![A](../assets/figures/page/one.svg)").find("svg")
    assert svg
    assert svg["style"] == f"--natural: {natural}px; --least: {least}px"
    assert f"font-size: {shown:g}px" in str(svg)
    assert shown == points or f"font-size: {points:g}px" not in str(svg)


def test_it_brings_no_colors_fonts_styles_or_addresses_of_its_own() -> None:
    draw("one")
    html = str(rendered("![A](../assets/figures/page/one.svg)"))
    for color in PALETTE:
        assert color not in html
    assert "fill: var(--book-accent); fill-opacity: 0.25" in html
    assert "var(--book-rule)" in html
    for word in ("<style", "DejaVu", "<metadata", "xmlns:", "matplotlib.org", "xlink"):
        assert word not in html


def test_ids_are_unique_on_the_page_and_still_refer() -> None:
    draw("one")
    draw("two")
    text = "\n\n".join(
        f"![A](../assets/figures/page/{name}.svg)" for name in ("one", "two", "one")
    )
    page = rendered(text)
    ids = [str(element["id"]) for element in page.select("[id]")]
    assert len(page.find_all("figure")) == 3
    assert len(ids) == len(set(ids))
    used = [str(element["href"]) for element in page.select("use[href]")]
    assert used
    assert all(href.removeprefix("#") in ids for href in used)
    clips = [str(element["clip-path"]) for element in page.select("[clip-path]")]
    assert clips
    assert all(clip[5:-1] in ids for clip in clips)


def test_a_figure_within_a_line_leaves_the_text() -> None:
    draw("one")
    page = rendered("Before ![A](../assets/figures/page/one.svg) after.")
    assert page.find("svg")
    assert page.get_text().startswith("Before ")
    assert page.get_text().endswith(" after.")


def test_other_images_are_left_alone() -> None:
    image = rendered("![A](other.png)").find("img")
    assert image
    assert image["src"] == "other.png"


MISSING = "figure page/gone.svg: there is no such file: make outputs"


def test_a_missing_figure_is_an_error_at_its_page_and_line() -> None:
    with pytest.raises(UndrawnError) as caught:
        rendered("One.\n\n![A](../assets/figures/page/gone.svg)\n")
    assert str(caught.value) == f"docs/chapters/page.md:3: {MISSING}"


def test_a_preview_shows_the_reason_in_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    box = rendered("![A](../assets/figures/page/gone.svg)").select_one("div.book-error")
    assert box
    assert box["data-source"] == "../assets/figures/page/gone.svg"
    assert box.get_text() == MISSING


def test_a_figure_without_text_alternative_is_refused() -> None:
    draw("one")
    with pytest.raises(UndrawnError, match=r"page\.md:1: .* no text alternative"):
        rendered("![](../assets/figures/page/one.svg)")


def test_a_color_that_is_not_the_books_is_refused() -> None:
    draw("one", color="#ff0000")
    wanted = "#ff0000 is none of the book's colors: draw with a function of .*plots"
    with pytest.raises(UndrawnError, match=wanted):
        rendered("![A](../assets/figures/page/one.svg)")


@pytest.mark.parametrize(
    ("svg", "reason"),
    [
        ("<svg", "no element found|unclosed token"),
        ('<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>', "<script>"),
        ('<svg xmlns="http://www.w3.org/2000/svg"><image/></svg>', "<image>"),
        ('<svg xmlns="http://www.w3.org/2000/svg"><animate/></svg>', "<animate>"),
        ('<svg xmlns="http://www.w3.org/2000/svg"><g onclick="x"/></svg>', "onclick"),
        (
            '<svg xmlns="http://www.w3.org/2000/svg"><use href="a.svg#x"/></svg>',
            "href='a.svg#x' acts or reaches out",
        ),
        (
            '<svg xmlns="http://www.w3.org/2000/svg">'
            '<path style="fill: url(a.svg#x)"/></svg>',
            "reaches out",
        ),
    ],
)
def test_what_is_not_a_picture_of_shapes_and_text_is_refused(
    svg: str, reason: str
) -> None:
    (FOLDER / "one.svg").write_text(svg, encoding="utf-8")
    with pytest.raises(UndrawnError, match=reason):
        rendered("![A](../assets/figures/page/one.svg)")
