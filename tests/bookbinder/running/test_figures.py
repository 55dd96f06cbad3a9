"""Pictures are the same when they draw the same data."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from matplotlib.figure import Figure

from bookbinder.page import read_page
from bookbinder.running.figures import compare_figures, same_drawing
from bookbinder.running.state import fresh_state
from bookbinder.writing import write_whole
from transformer_book.plots import curves, head_maps, weight_map

PAGE = read_page(
    "# Title\n\n![A map](../assets/figures/page/map.svg)\n", "docs/chapters/page.md"
)


def saved(figure: Figure) -> str:
    figure.savefig("map.svg")
    return Path("map.svg").read_text("utf-8")


def drawing(weights: list[list[float]], labels: str = "ab") -> str:
    with fresh_state():
        return saved(weight_map(torch.tensor(weights), queries=list(labels)))


def cells(weights: list[list[float]]) -> str:
    """Draw cells alone, without the numbers written into them."""
    with fresh_state():
        return saved(head_maps(torch.tensor([weights]), queries=["a", "b"]))


@cache
def right() -> str:
    return drawing([[1.0, 0.0], [0.3, 0.7]])


def test_a_hair_does_not_matter():
    assert same_drawing(right(), drawing([[1.0, 0.0], [0.3, 0.7]]))
    assert same_drawing(right(), drawing([[0.998, 0.002], [0.3, 0.7]]))
    one, other = [[1.0, 0.0], [0.3, 0.7]], [[0.99, 0.01], [0.31, 0.69]]
    assert same_drawing(cells(one), cells(other))
    assert not same_drawing(cells(one), cells([[1.0, 0.0], [0.35, 0.65]]))
    line = '<svg><path d="M 10 20"/></svg>'
    assert same_drawing(line, line.replace("20", "20.9"))
    assert not same_drawing(line, line.replace("20", "22"))


def named(name: str = "falls fast") -> str:
    lines = {name: [(0.0, 1.0), (1.0, 0.0)], "rises": [(0.0, 0.0), (1.0, 1.0)]}
    with fresh_state():
        return saved(curves(lines, x_label="x", y_label="y"))


def test_where_a_name_stands_does_not_matter():
    drawn = named()
    label = re.search(r'(label-0">.*?)( x="[^>]*>)falls fast', drawn, re.DOTALL)
    assert label
    start, place = label.groups()
    elsewhere = drawn.replace(start + place, f'{start} x="1" y="2">')
    assert elsewhere != drawn
    assert same_drawing(drawn, elsewhere)
    two_lines = elsewhere.replace("falls fast", 'falls</text><text x="1" y="9">fast')
    assert same_drawing(drawn, two_lines)
    assert not same_drawing(drawn, named("falls slowly"))
    assert not same_drawing(drawn, drawn.replace("falls fast", "rises fast"))
    recolored = start.replace("fill: #3557c2", "fill: #c2562e")
    assert not same_drawing(drawn, drawn.replace(start, recolored))
    # Any other text has its place.
    moved = re.sub(r'x="([\d.]+)"(?=[^>]*>0.2<)', 'x="1"', drawn)
    assert moved != drawn
    assert not same_drawing(drawn, moved)


def test_other_data_labels_and_colors_differ():
    for other in (
        drawing([[1.0, 0.0], [0.34, 0.66]]),
        drawing([[0.0, 1.0], [0.3, 0.7]]),
        drawing([[1.0, 0.0], [0.3, 0.7]], labels="ac"),
        drawing([[1.0, 0, 0], [0.3, 0.7, 0], [0, 0, 1]], labels="abc"),
        right().replace("#3557c2", "#c2562e"),
        right().replace("</svg>", "<rect/></svg>"),
    ):
        assert not same_drawing(right(), other)


def kept(root: Path, **pictures: str) -> Path:
    for name, text in pictures.items():
        write_whole(root / "docs" / "assets" / "figures" / "page" / f"{name}.svg", text)
    return root


def test_a_page_shows_what_its_blocks_draw_and_the_book_keeps(tmp_path: Path):
    svg, other = right(), drawing([[1.0, 0.0], [0.5, 0.5]])
    old, folder = {"map": svg, "old": svg}, "docs/assets/figures/page"
    for number, (drawn, kept, report) in enumerate(
        (
            ("map", {"map": svg}, ""),
            ("map", {"map": other}, "3: map.svg is not what the page draws: make outp"),
            ("", {"map": svg}, "3: no block of this page draws map.svg"),
            ("map", {}, "3: map.svg is drawn but not kept: make outputs"),
            ("map new", {"map": svg}, "1: a block draws new.svg, but the page does no"),
            ("map", old, "1: old.svg is kept, but the page does not show it: delete"),
        )
    ):
        root = tmp_path / str(number)
        for name, text in kept.items():
            write_whole(root / folder / f"{name}.svg", text)
        now = {f"{name}.svg": svg for name in drawn.split()}
        problems = [str(problem) for problem in compare_figures(PAGE, now, root)]
        assert len(problems) == bool(report), problems
        assert all(p.startswith(f"docs/chapters/page.md:{report}") for p in problems)
    # A page of the reference may have the name of a chapter.
    reference = replace(PAGE, path="docs/reference/page.md")
    write_whole(tmp_path / f"{folder.replace('page', 'reference-page')}/map.svg", svg)
    assert compare_figures(reference, {"map.svg": svg}, tmp_path) == []
