"""Pictures are the same when they draw the same data."""

from functools import cache
from pathlib import Path

import pytest
import torch

from bookbinder.page import read_page
from bookbinder.running.figures import compare_figures, same_drawing
from bookbinder.running.state import fresh_state
from tested_transformer.plots import head_maps, weight_map

PAGE = read_page(
    "# Title\n\n![A map](../assets/figures/page/map.svg)\n", "docs/chapters/page.md"
)


@pytest.fixture(autouse=True)
def _drawn_as_in_the_book(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")


def drawing(weights: list[list[float]], labels: str = "ab") -> str:
    with fresh_state() as folder:
        weight_map(torch.tensor(weights), queries=list(labels)).savefig("map.svg")
        return (folder / "map.svg").read_text()


@cache
def right() -> str:
    return drawing([[1.0, 0.0], [0.3, 0.7]])


def test_the_same_data_draws_the_same():
    assert same_drawing(right(), drawing([[1.0, 0.0], [0.3, 0.7]]))


def test_a_hair_does_not_matter():
    assert same_drawing(right(), drawing([[0.998, 0.002], [0.3, 0.7]]))
    # Cells alone, without the numbers written into them.
    one, other = [[1.0, 0.0], [0.3, 0.7]], [[0.99, 0.01], [0.31, 0.69]]
    assert same_drawing(*(maps(weights) for weights in (one, other)))


def maps(weights: list[list[float]]) -> str:
    with fresh_state() as folder:
        head_maps(torch.tensor([weights]), queries=["a", "b"]).savefig("map.svg")
        return (folder / "map.svg").read_text()


@pytest.mark.parametrize(
    "other",
    [
        lambda: drawing([[1.0, 0.0], [0.34, 0.66]]),
        lambda: drawing([[0.0, 1.0], [0.3, 0.7]]),
        lambda: drawing([[1.0, 0.0], [0.7, 0.3]]),
        lambda: drawing([[1.0, 0.0], [0.3, 0.7]], labels="ac"),
        lambda: drawing([[1.0, 0, 0], [0.3, 0.7, 0], [0, 0, 1]], labels="abc"),
        lambda: right().replace("#3557c2", "#c2562e"),
        lambda: right().replace("0.30", "0.31"),
        lambda: right().replace("</svg>", "<rect/></svg>"),
    ],
)
def test_other_data_labels_and_colors_differ(other):
    assert not same_drawing(right(), other())


def test_cells_alone_differ_too():
    assert not same_drawing(
        maps([[1.0, 0.0], [0.3, 0.7]]), maps([[1.0, 0.0], [0.35, 0.65]])
    )


def kept(root: Path, **pictures: str) -> Path:
    folder = root / "docs" / "assets" / "figures" / "page"
    folder.mkdir(parents=True)
    for name, text in pictures.items():
        (folder / f"{name}.svg").write_text(text)
    return root


def test_a_page_shows_what_its_blocks_draw(tmp_path: Path):
    svg = right()
    assert compare_figures(PAGE, {"map.svg": svg}, kept(tmp_path, map=svg)) == []


@pytest.mark.parametrize(
    ("drawn", "on_disk", "report"),
    [
        ([], ["map"], "page.md:3: no block of this page draws map.svg"),
        (["map"], [], "page.md:3: map.svg is drawn but not kept: make outputs"),
        (
            ["map", "other"],
            ["map"],
            "page.md:1: a block draws other.svg, but the page does not show it",
        ),
        (
            ["map"],
            ["map", "old"],
            "page.md:1: old.svg is kept, but the page does not show it: delete it",
        ),
    ],
)
def test_what_is_not_drawn_kept_or_shown_is_reported(
    tmp_path: Path, drawn: list[str], on_disk: list[str], report: str
):
    root = kept(tmp_path, **{name: right() for name in on_disk})
    (problem,) = compare_figures(PAGE, {f"{n}.svg": right() for n in drawn}, root)
    assert str(problem) == f"docs/chapters/{report}"


def test_a_picture_that_drifted_is_reported(tmp_path: Path):
    root = kept(tmp_path, map=drawing([[1.0, 0.0], [0.5, 0.5]]))
    (problem,) = compare_figures(PAGE, {"map.svg": right()}, root)
    reason = "map.svg is not what the page draws: make outputs"
    assert str(problem) == f"docs/chapters/page.md:3: {reason}"


def test_no_picture_of_this_book_belongs_to_a_page_that_is_gone():
    docs = Path(__file__).parents[3] / "docs"
    pages = {page.stem for page in docs.rglob("*.md")}
    folders = {folder.name for folder in (docs / "assets" / "figures").iterdir()}
    assert folders - pages == set()
