"""Figures become parts of the page, in its colors, and broken ones are refused."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from markdown import Markdown
from matplotlib import rc_context, rc_file
from matplotlib.figure import Figure

from bookbinder.drawing.palette import PALETTE
from bookbinder.drawing.undrawn import UndrawnError
from bookbinder.writing import write_whole

FOLDER = Path("docs/assets/figures/page")
RC = Path(__file__).parents[3] / "src" / "bookbinder" / "running" / "book.matplotlibrc"
ONE = "![Weights](../assets/figures/page/one.svg)"


@pytest.fixture(autouse=True)
def _book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKBINDER_PREVIEW", raising=False)
    FOLDER.mkdir(parents=True)


def draw(name: str, labels: float = 10) -> None:
    with rc_context():
        rc_file(RC)
        figure = Figure(figsize=(3, 2))
        axes = figure.add_subplot()
        axes.fill_between([0, 1], [0, 1], color="#3557c2", alpha=0.25)
        axes.set_title("a < b", color="#1b1f24")
        axes.tick_params(colors="#6b7280", labelcolor="#6b7280", labelsize=labels)
        for spine in axes.spines.values():
            spine.set_color("#d0d4dc")
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        figure.savefig(FOLDER / f"{name}.svg")


def rendered(text: str) -> BeautifulSoup:
    write_whole(Path("docs/chapters/page.md"), text)
    html = Markdown(extensions=["bookbinder.drawing.extension"]).convert(text)
    return BeautifulSoup(html, "html.parser")


@pytest.mark.parametrize(
    ("points", "shown", "natural", "least"),
    # 9 pixels want 9.1 of them; 12 pixels, and more, may be drawn smaller. What is 304
    # wide has room for what "0.0" becomes longer: for three letters of 0.6 of that.
    [(6, 6.75, 308, 311), (8, 9, 309, 234), (8.5, 9, 306, 232), (10, 10, 304, 207)],
)
def test_a_figure_stands_in_the_page_with_letters_that_can_be_read(
    points: float, shown: float, natural: int, least: int
) -> None:
    draw("one", labels=points)
    page = rendered('Before.\n\n![Weights & "more"](../assets/figures/page/one.svg)\n')
    figure, svg = page.find("figure"), page.find("svg")
    assert figure
    assert svg
    assert figure.parent is page
    assert figure.has_attr("data-search-exclude")
    assert svg["role"] == "img"
    assert svg["aria-label"] == 'Weights & "more"'
    assert svg["style"] == f"--natural: {natural}px; --least: {least}px"
    assert "a < b" in svg.get_text()
    assert f"font-size: {shown:g}px" in str(svg)
    assert shown == points or f"font-size: {points:g}px" not in str(svg)


def test_it_brings_no_colors_fonts_styles_or_addresses_of_its_own() -> None:
    draw("one")
    html = str(rendered(ONE))
    for color in PALETTE:
        assert color not in html
    assert "fill: var(--book-accent); fill-opacity: 0.25" in html
    assert "var(--book-rule)" in html
    for word in ("<style", "DejaVu", "<metadata", "xmlns:", "matplotlib.org", "xlink"):
        assert word not in html


def test_ids_are_unique_on_the_page_and_still_refer() -> None:
    draw("one")
    draw("two")
    page = rendered(f"{ONE}\n\n{ONE.replace('one', 'two')}\n\n{ONE}")
    ids = [str(element["id"]) for element in page.select("[id]")]
    assert len(page.find_all("figure")) == 3
    assert len(ids) == len(set(ids))
    used = [str(element["href"])[1:] for element in page.select("use[href]")]
    clips = [str(el["clip-path"])[5:-1] for el in page.select("[clip-path]")]
    assert used
    assert clips
    assert {*used, *clips} <= {*ids}


def test_the_text_around_a_figure_and_other_images_are_left_alone() -> None:
    draw("one")
    page = rendered(f"Before {ONE} after ![A](other.png).")
    assert page.find("svg")
    assert page.get_text().startswith("Before ")
    assert page.get_text().endswith(" after .")
    assert [image["src"] for image in page.find_all("img")] == ["other.png"]


def test_a_missing_figure_is_an_error_at_its_page_and_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = "figure page/one.svg: there is no such file: make outputs"
    with pytest.raises(UndrawnError) as caught:
        rendered(f"One.\n\n{ONE}\n")
    assert str(caught.value) == f"docs/chapters/page.md:3: {missing}"
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    box = rendered(ONE).select_one("div.book-error")
    assert box
    assert box["data-source"] == "../assets/figures/page/one.svg"
    assert box.get_text() == missing
    silent = rendered(ONE.replace("Weights", "")).select_one("div.book-error")
    assert silent
    assert "it has no text alternative" in silent.get_text()


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("<script/>", "<script>"),
        ('<g onclick="x"/>', "onclick"),
        ('<use href="a.svg#x"/>', "href='a.svg#x' acts or reaches out"),
        ('<path style="fill: url(a.svg#x)"/>', "reaches out"),
        ("<g>", "mismatched tag"),
        ('<g fill="#ff0000"/>', "#ff0000 is none of the book's colors: draw with a"),
    ],
)
def test_what_is_not_a_picture_of_shapes_and_text_is_refused(
    inside: str, reason: str
) -> None:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg">{inside}</svg>'
    (FOLDER / "one.svg").write_text(svg, encoding="utf-8")
    with pytest.raises(UndrawnError, match=reason):
        rendered(ONE)
