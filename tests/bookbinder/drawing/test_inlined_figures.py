"""Figures become parts of the page, in its colors, and broken ones are refused."""

import re
from pathlib import Path

import pytest
from matplotlib import rc_context, rc_file
from matplotlib.figure import Figure
from tests.bookbinder.conftest import Render

from bookbinder.drawing.undrawn import UndrawnError
from bookbinder.writing import write_whole

FILE = Path("docs/assets/figures/page/one.svg")
RC = Path(__file__).parents[3] / "src" / "bookbinder" / "running" / "book.matplotlibrc"
ONE = "![Weights](../assets/figures/page/one.svg)"


def draw(labels: float = 10) -> None:
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
        FILE.parent.mkdir(parents=True)
        figure.savefig(FILE)


@pytest.mark.parametrize(
    ("points", "least"),
    # Three inches and the margins are 304 pixels. Letters of more than 11 pixels may
    # become as small as that, smaller ones are enlarged; the title has 16 pixels.
    [(6, 418), (8.25, 304), (11, 228), (12, 209)],
)
def test_a_figure_stands_in_the_page_with_letters_that_can_be_read(
    points: float, least: int, rendered: Render
) -> None:
    draw(labels=points)
    page = rendered("Before.\n\n" + ONE.replace("Weights", 'Weights & "more"'))
    svg = page.select_one("figure[data-search-exclude] > svg[role=img]")
    assert svg
    assert not page.select("p figure")
    assert svg["aria-label"] == 'Weights & "more"'
    sizes, ratio = str(svg["style"]).split("; aspect-ratio: ")
    assert sizes == f"--natural: 304px; --least: {least}px"
    # Its room is that of what it shows, also while the browser leaves it out.
    assert ratio.split(" / ") == str(svg["viewbox"]).split()[2:]
    assert "a < b" in svg.get_text()
    assert {*re.findall(r"font-size: ([\d.]+)px", str(svg))} == {f"{points:g}", "12"}


def test_it_brings_no_colors_fonts_styles_or_addresses_of_its_own(
    rendered: Render,
) -> None:
    draw()
    html = str(rendered(ONE))
    assert "figcaption" not in html
    assert "fill: var(--book-accent); fill-opacity: 0.25" in html
    assert "var(--book-rule)" in html
    for word in ("<style", "DejaVu", "<metadata", "xmlns:", "matplotlib.org", "xlink"):
        assert word not in html
    assert not re.search(r"#[0-9a-f]{6}\b", html)


def test_ids_are_unique_on_the_page_and_still_refer(rendered: Render) -> None:
    draw()
    write_whole(FILE.with_name("two.svg"), FILE.read_text("utf-8"))
    titled = ONE.replace(".svg)", '.svg "What is a < b?")')
    page = rendered(f"{ONE}\n\n{ONE.replace('one', 'two')}\n\n{titled}")
    (caption,) = page.select("figure > svg + figcaption")
    assert caption.text == "What is a < b?"
    ids = [str(element["id"]) for element in page.select("[id]")]
    assert len(page.find_all("figure")) == 3
    assert len(ids) == len({*ids})
    used = [str(element["href"])[1:] for element in page.select("use[href]")]
    clips = [str(el["clip-path"])[5:-1] for el in page.select("[clip-path]")]
    assert used
    assert clips
    assert {*used, *clips} <= {*ids}


def test_a_missing_figure_is_an_error_and_a_box_in_a_preview(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = "figure page/one.svg: there is no such file: make outputs"
    with pytest.raises(UndrawnError, match=missing):
        rendered(ONE)
    monkeypatch.setenv("BOOKBINDER_PREVIEW", "1")
    (box,) = rendered(ONE).select("div.book-error")
    assert box["data-source"] == "../assets/figures/page/one.svg"
    assert box.get_text() == missing


def test_a_broken_picture_and_other_colors_are_refused(rendered: Render) -> None:
    for inside, reason in (
        ("<g>", "mismatched tag"),
        ('<g fill="#ff0000"/>', "#ff0000 is none of the book's colors: draw with a"),
    ):
        write_whole(FILE, f'<svg xmlns="http://www.w3.org/2000/svg">{inside}</svg>')
        with pytest.raises(UndrawnError, match=reason):
            rendered(ONE)
