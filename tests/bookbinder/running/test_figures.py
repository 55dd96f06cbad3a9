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


@cache
def drawing(weights: str = "1 0 .3 .7", labels: str = "ab") -> str:
    values = torch.tensor([*map(float, weights.split())]).view(len(labels), -1)
    with fresh_state():
        return saved(weight_map(values, queries=list(labels)))


def cells(last: float) -> str:
    """Draw cells alone, without the numbers written into them."""
    with fresh_state():
        weights = torch.tensor([[[1.0, 0.0], [1 - last, last]]])
        return saved(head_maps(weights, queries=["a", "b"]))


def test_a_hair_does_not_matter_and_other_data_labels_and_colors_do():
    line = '<svg><path d="M 10 20"/></svg>'
    for first, second, same in (
        (drawing(), drawing("0.998 0.002 .3 .7"), True),
        (cells(0.7), cells(0.69), True),
        (cells(0.7), cells(0.65), False),
        (line, line.replace("20", "20.9"), True),
        (line, line.replace("20", "22"), False),
        (drawing(), drawing("1 0 .34 .66"), False),
        (drawing(), drawing("0 1 .3 .7"), False),
        (drawing(), drawing(labels="ac"), False),
        (drawing(), drawing("1 0 0 .3 .7 0 0 0 1", "abc"), False),
        (drawing(), drawing().replace("#3557c2", "#c2562e"), False),
        (drawing(), drawing().replace("</svg>", "<rect/></svg>"), False),
    ):
        assert same_drawing(first, second) is same


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
    two_lines = elsewhere.replace("falls fast", 'falls</text><text x="1" y="9">fast')
    for variant in (drawn, elsewhere, two_lines):
        assert same_drawing(drawn, variant)
    recolored = start.replace("fill: #3557c2", "fill: #c2562e")
    # Any other text has its place.
    moved = re.sub(r'x="([\d.]+)"(?=[^>]*>0.2<)', 'x="1"', drawn)
    assert moved != drawn
    for variant in (
        named("falls slowly"),
        drawn.replace("falls fast", "rises fast"),
        drawn.replace(start, recolored),
        moved,
    ):
        assert not same_drawing(drawn, variant)


def test_a_page_shows_what_its_blocks_draw_and_the_book_keeps(tmp_path: Path):
    svg, stale, folder = drawing(), drawing("1 0 .5 .5"), "docs/assets/figures/page"
    for number, (drawn, kept, report) in enumerate(
        (
            ("map", {"map": svg}, ""),
            ("map", {"map": stale}, "3: map.svg is not what the page draws: make outp"),
            ("", {"map": svg}, "3: no block of this page draws map.svg"),
            ("map", {}, "3: map.svg is drawn but not kept: make outputs"),
            ("map new", {"map": svg}, "1: a block draws new.svg, but the page does no"),
            ("map", {"map": svg, "old": svg}, "1: old.svg is kept, but the page does"),
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
