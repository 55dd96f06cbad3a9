"""Pictures are the same when they draw the same data."""

from pathlib import Path

import pytest
import torch

from bookbinder.figures import compare_figures, same_drawing
from bookbinder.pages import read_page
from bookbinder.running import fresh_state
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


RIGHT = drawing([[1.0, 0.0], [0.3, 0.7]])


def test_the_same_data_draws_the_same():
    assert same_drawing(RIGHT, drawing([[1.0, 0.0], [0.3, 0.7]]))


def test_a_hair_does_not_matter():
    assert same_drawing(RIGHT, drawing([[0.998, 0.002], [0.3, 0.7]]))
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
        drawing([[1.0, 0.0], [0.34, 0.66]]),
        drawing([[0.0, 1.0], [0.3, 0.7]]),
        drawing([[1.0, 0.0], [0.7, 0.3]]),
        drawing([[1.0, 0.0], [0.3, 0.7]], labels="ac"),
        drawing([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]], labels="abc"),
        RIGHT.replace("#3557c2", "#c2562e"),
        RIGHT.replace("0.30", "0.31"),
        RIGHT.replace("</svg>", "<rect/></svg>"),
    ],
)
def test_other_data_labels_and_colors_differ(other: str):
    assert not same_drawing(RIGHT, other)


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
    assert compare_figures(PAGE, {"map.svg": RIGHT}, kept(tmp_path, map=RIGHT)) == []


@pytest.mark.parametrize(
    ("drawn", "on_disk", "report"),
    [
        ({}, {"map": RIGHT}, "page.md:3: no block of this page draws map.svg"),
        (
            {"map.svg": RIGHT},
            {},
            "page.md:3: map.svg is drawn but not kept: make outputs",
        ),
        (
            {"map.svg": RIGHT},
            {"map": drawing([[1.0, 0.0], [0.5, 0.5]])},
            "page.md:3: map.svg is not what the page draws: make outputs",
        ),
        (
            {"map.svg": RIGHT, "other.svg": RIGHT},
            {"map": RIGHT},
            "page.md:1: a block draws other.svg, but the page does not show it",
        ),
        (
            {"map.svg": RIGHT},
            {"map": RIGHT, "old": RIGHT},
            "page.md:1: old.svg is kept, but the page does not show it: delete it",
        ),
    ],
)
def test_what_is_not_drawn_kept_or_shown_is_reported(
    tmp_path: Path, drawn: dict[str, str], on_disk: dict[str, str], report: str
):
    (problem,) = compare_figures(PAGE, drawn, kept(tmp_path, **on_disk))
    assert str(problem) == f"docs/chapters/{report}"
