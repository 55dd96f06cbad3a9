"""Pictures are checked by the data they draw.

That they keep to the palette and to their edges is checked where pages show them.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from transformer_book import plots
from transformer_book.plots import (
    arrows,
    bar_panels,
    bars,
    cells,
    curves,
    head_maps,
    head_slices,
    marks,
    shared_heads,
    side_by_side,
    strips,
    turns,
    weight_map,
)

# Two heads, three queries, four keys.
WEIGHTS = torch.tensor(
    [
        [[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]],
        [[0.0, 0.0, 0.9, 0.1], [0.5, 0.5, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1]],
    ]
)
QUERIES, KEYS = ["a", "b", "c"], ["w", "x", "y", "z"]


def drawn_weights(figure: Figure) -> list[torch.Tensor]:
    """Read the weights back from the cells of each map."""
    meshes = [
        mesh
        for axes in figure.axes
        for mesh in axes.collections
        if isinstance(mesh, QuadMesh)
    ]
    return [torch.tensor(mesh.get_array().tolist()) for mesh in meshes]


def cell_labels(tables: int) -> dict:
    return {
        "names": ["kept", "new"],
        "rows": ["1", "2"],
        "columns": ["a", "b", "c"],
        "titles": ["first", "second"][:tables],
    }


def head_tables(heads: int) -> dict[str, torch.Tensor]:
    return {
        **{name: torch.rand(heads, 5, 3) for name in ("q", "k", "v", "heads")},
        **{name: torch.rand(5, 6) for name in ("x", "output")},
        **{name: torch.rand(6, heads * 3) for name in ("w_q", "w_k", "w_v")},
        "weights": torch.rand(heads, 5, 5),
        "w_o": -torch.rand(heads * 3, 6),
    }


def words(artists: Iterable[Text]) -> list[str]:
    return [artist.get_text() for artist in artists]


def drawn_points(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    return {
        str(line.get_label()): [tuple(point) for point in line.get_xydata().tolist()]
        for line in axes.get_lines()
    }


def drawn_bars(axes: Axes) -> list[Rectangle]:
    return [bar for bar in axes.patches if isinstance(bar, Rectangle)]


def test_each_head_has_a_map_of_its_weights():
    figure = head_maps(WEIGHTS, queries=QUERIES, keys=KEYS, titles=["one", "two"])
    torch.testing.assert_close(torch.stack(drawn_weights(figure)), WEIGHTS)
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    first = figure.axes[0]
    assert words(first.get_xticklabels()) == KEYS
    assert words(first.get_yticklabels()) == QUERIES
    assert first.yaxis_inverted()  # the first query is the top row
    # Heads are numbered and keys are queries by default; columns may be fewer.
    figure = head_maps(torch.eye(3).expand(4, 3, 3), queries=QUERIES, columns=2)
    assert [axes.get_title() for axes in figure.axes] == [f"head {h}" for h in range(4)]
    assert words(figure.axes[3].get_xticklabels()) == QUERIES
    lefts = [round(axes.get_window_extent().x0) for axes in figure.axes]
    assert lefts[0] == lefts[2] < lefts[1] == lefts[3]


def test_marks_fill_the_cells_that_are_true():
    marked = torch.tensor([[True, False, True], [False, False, True]])
    figure = marks(marked, rows=["p", "q"], columns=["x", "y", "z"])
    (drawn,) = drawn_weights(figure)
    assert drawn.tolist() == marked.float().tolist()
    (axes,) = figure.axes
    assert words(axes.get_yticklabels()) == ["p", "q"]
    assert words(axes.get_xticklabels()) == ["x", "y", "z"]
    # Columns named by two digits are told apart.
    names = [str(number) for number in range(12)]
    figure = marks(torch.ones(2, 12, dtype=torch.bool), rows=["a", "b"], columns=names)
    figure.draw_without_rendering()
    boxes = [tick.get_window_extent() for tick in figure.axes[0].get_xticklabels()]
    apart = [after.x0 - before.x1 for before, after in pairwise(boxes)]
    assert min(apart) > 0.04 * figure.dpi


def test_letters_have_the_room_they_need_even_where_a_figure_is_wider_for_it():
    wide = head_maps(torch.eye(40)[None], queries=["a"] * 40)
    assert wide.get_figwidth() > plots._PHONE
    long, short = (
        head_maps(torch.eye(3)[None], queries=[name] * 3) for name in ("query", "a")
    )
    assert long.get_figheight() > short.get_figheight()


def test_a_weight_map_writes_every_weight():
    figure = weight_map(WEIGHTS[0], queries=QUERIES, keys=KEYS)
    (axes,) = figure.axes
    torch.testing.assert_close(drawn_weights(figure)[0], WEIGHTS[0])
    written = {text.get_position(): text.get_text() for text in axes.texts}
    cells = {(s, t): f"{WEIGHTS[0, t, s]:.2f}" for t in range(3) for s in range(4)}
    assert written == cells
    # Lines set off each cell, along an axis from side to side: 0 to 1 of its length.
    ends = [line.get_xydata().tolist() for line in axes.get_lines()]
    across = {y for (left, y), (right, _) in ends if (left, right) == (0, 1)}
    down = {x for (x, low), (_, high) in ends if (low, high) == (0, 1)}
    assert (len(ends), across, down) == (5, {0.5, 1.5}, {0.5, 1.5, 2.5})


def test_curves_draw_their_points_and_dots_on_scales_with_plain_numbers():
    lines = {"open": [(256.0, 0.5), (1024.0, 3000.0)], "fused": [(512.0, 1.0)]}
    dots = {"signposts": [(256.0, 5.0), (512.0, 8.0)]}
    labels = {"x_label": "T", "y_label": "ms"}
    figure = curves(lines, dots=dots, **labels, log_x=True, log_y=True)
    (axes,) = figure.axes
    assert drawn_points(axes) == lines | dots
    assert words(axes.texts) == [*lines, *dots]
    styles = [(line.get_linestyle(), line.get_marker()) for line in axes.get_lines()]
    assert [style for style, _ in styles] == ["-", "--", "None"]
    assert styles[2][1] != "None"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("T", "ms")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {"256", "512", "1024"} <= {*words(axes.get_xticklabels())}
    assert {"1", "10", "100", "1000"} <= {*words(axes.get_yticklabels())}


CROSSING = {
    "rising": [(float(x), x / 50) for x in range(101)],
    "a name that is long": [(float(x), 2 - x / 60) for x in range(101)],
    "level": [(0.0, 1.0), (100.0, 1.0)],
    "low": [(0.0, 0.2), (100.0, 0.1)],
}
LABELS = {"x_label": "step", "y_label": "loss"}


def close(box: Bbox, points: torch.Tensor) -> float:
    """Return how far a box is from the nearest point, 0 where it covers one."""
    low, high = torch.tensor(box.min), torch.tensor(box.max)
    outside = torch.clamp(torch.maximum(low - points, points - high), min=0)
    return outside.norm(dim=-1).min().item()


def along(line: Line2D) -> torch.Tensor:
    """Return a thousand points of a line of two or more points, in pixels."""
    ends = torch.tensor(line.get_transform().transform(line.get_xydata()))
    shares = torch.linspace(0, 1, 1000 // (len(ends) - 1), dtype=ends.dtype)
    return torch.cat([a + shares[:, None] * (b - a) for a, b in pairwise(ends)])


def marks_of(line: Line2D) -> torch.Tensor:
    return torch.tensor(line.get_transform().transform(line.get_xydata()))


def dotted(groups: dict, **labels: str) -> Figure:
    """Draw the first as a line of one point, and the others as marks."""
    (name, pairs), *others = groups.items()
    return curves({name: pairs}, dots=dict(others), **labels)


@pytest.mark.parametrize(
    ("draw", "places", "near"),
    [(curves, along, 8), (dotted, marks_of, 12)],
    ids=["lines", "marks"],
)
def test_each_name_stands_beside_its_own_line_and_on_nothing(draw, places, near):
    figure = draw(CROSSING, **LABELS)
    (axes,) = figure.axes
    lines = axes.get_lines()
    assert [" ".join(text.get_text().split()) for text in axes.texts] == [*CROSSING]
    assert [text.get_color() for text in axes.texts] == [
        line.get_color() for line in lines
    ]
    boxes = [text.get_window_extent() for text in axes.texts]
    frame = axes.get_window_extent()
    for own, box in enumerate(boxes):
        distances = [close(box, places(line)) for line in lines]
        assert min(distances) > 2  # it covers nothing,
        assert distances[own] == min(distances)  # it is nearest to what it names,
        assert distances[own] < near
        assert frame.x0 < box.x0 < box.x1 < frame.x1
        assert frame.y0 < box.y0 < box.y1 < frame.y1
        assert not any(
            box.overlaps(neighbor) for neighbor in boxes if neighbor is not box
        )
    # A single line has no name but the one at the axis; names take no room from lines.
    alone = draw({"rising": CROSSING["rising"]}, **LABELS).axes[0]
    assert not alone.texts
    assert frame.height == pytest.approx(alone.get_window_extent().height, rel=0.02)


def test_lines_that_are_one_have_their_names_beside_each_other():
    same = [(0.0, 1.0), (100.0, 1.0)]
    (axes,) = curves({"one": same, "other": same}, **LABELS).axes
    first, second = (text.get_window_extent() for text in axes.texts)
    assert not first.padded(4).overlaps(second)


def test_a_name_without_room_in_one_line_stands_in_two():
    named = {"a name as long as the axes are wide": [(0.0, 0.0), (1.0, 1.0)]}
    named |= {"b " * 70: [(0.0, 1.0), (1.0, 0.0)]}
    (axes,) = curves(named, **LABELS).axes
    first, endless = axes.texts
    assert first.get_text() == "a name as long as\nthe axes are wide"
    # What has no room in two begins where it can be read.
    assert endless.get_window_extent().x0 == pytest.approx(
        axes.get_window_extent().x0, abs=3
    )


@pytest.mark.parametrize(("keys", "columns"), [(4, 4), (28, 1), (9, 2)])
def test_maps_stand_side_by_side_as_far_as_they_can_be_read(keys: int, columns: int):
    weights = torch.rand(4, 5, keys)
    figure = head_maps(weights, queries=list("abcde"), keys=list("k" * keys))
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert len({round(box.x0) for box in boxes}) == columns
    assert figure.get_figwidth() <= plots._PHONE
    for box in boxes:
        # Room for a letter and for a line; as tall as wide, but for that.
        wide, tall = box.width / keys, box.height / 5
        assert wide > 0.12 * figure.dpi
        assert tall == pytest.approx(max(wide, 0.17 * figure.dpi), rel=0.05)


NO_STATES = torch.zeros(2, 2, 3, dtype=torch.long)
FIVE = {name: [(1.0, 1.0)] for name in "abcde"}
# One of each kind: labels, numbers of things, what is in them, and what they may be.
REFUSED = {
    "keys has 3 labels; weights need 4": lambda: head_maps(WEIGHTS, queries=QUERIES),
    "titles has 1 labels; weights need 2": lambda: head_maps(
        WEIGHTS, queries=QUERIES, keys=KEYS, titles=["one"]
    ),
    "queries has 4 labels; weights need 3": lambda: weight_map(
        WEIGHTS[0], queries=KEYS, keys=KEYS
    ),
    "columns has 2 labels; weights need 4": lambda: marks(
        WEIGHTS[0] > 0, rows=QUERIES, columns=["x", "y"]
    ),
    "words has 3 labels; weights need 5": lambda: head_slices(
        **head_tables(2), words="abc", features="uvwxyz"
    ),
    "q has 4 heads; it takes at most 3": lambda: head_slices(
        **head_tables(4), words="abcde", features="uvwxyz"
    ),
    "names has 1 labels; weights need 2": lambda: cells(
        NO_STATES, **cell_labels(2) | {"names": ["kept"]}
    ),
    "states must be 0, 1 or 2": lambda: cells(NO_STATES + 3, **cell_labels(2)),
    "lines has 5 entries; it takes 1 to 4": lambda: curves(FIVE, **LABELS),
    "lines['b'] has no points": lambda: curves({"a": [(1.0, 2.0)], "b": []}, **LABELS),
    "groups has 0 entries; it takes 1 to 3": lambda: arrows({}, **LABELS),
    "groups['a'] has no arrows": lambda: arrows({"a": {}}, **LABELS),
    "lengths has 0 entries; it takes 1 or more": lambda: bars({}, x_label="ms"),
    "lengths['a']=-1.0 must not be negative": lambda: bars({"a": -1.0}, x_label="ms"),
    "groups must be 1 to 4 with the same names; they have [['a'], ['b']]": lambda: (
        strips({"x": {"a": [1.0]}, "y": {"b": [1.0]}}, x_label="x")
    ),
    "panels must have one or more cases with the same bars; they have []": lambda: (
        bar_panels({})
    ),
    "num_kv_heads['odd']=4 must divide num_heads=6": lambda: shared_heads(
        6, {"odd": 4}
    ),
    "planes['p'] has 5 arrows; it takes 1 to 4": lambda: turns({"p": FIVE}),
    "panels has 0 entries; it takes 1 or more": lambda: side_by_side({}, **LABELS),
    "panels['p'] has 5 groups; it takes 1 to 4": lambda: side_by_side(
        {"p": FIVE}, **LABELS
    ),
}


@pytest.mark.usefixtures("as_a_caller")
def test_what_cannot_be_drawn_is_named():
    batch = "weights must be (H, T, S), for one sequence; it is (1, 2, 3, 4)"
    refused = REFUSED | {batch: lambda: head_maps(WEIGHTS[None], queries=QUERIES)}
    for message, draw in refused.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            draw()


def test_arrows_lead_from_the_origin_to_their_tips():
    groups = {
        "query": {"sat asks": (0.0, 1.0)},
        "keys": {"cat": (0.0, 1.0), "The": (1.0, -1.0)},
    }
    figure = arrows(groups, x_label="x", y_label="y")
    (axes,) = figure.axes
    drawn = [arrow for arrow in axes.texts if arrow.arrow_patch is not None]
    assert [arrow.xy for arrow in drawn] == [(0.0, 1.0), (0.0, 1.0), (1.0, -1.0)]
    assert {arrow.xyann for arrow in drawn} == {(0, 0)}
    # The first is broad, since another lies on it; both names can be read.
    broad, *narrow = (arrow.arrow_patch.get_linewidth() for arrow in drawn)
    assert broad > max(narrow)
    names = {arrow.get_text(): arrow for arrow in axes.texts if arrow.get_text()}
    assert [*names] == ["sat asks", "cat", "The"]
    first, second = (names[name].get_window_extent() for name in ("sat asks", "cat"))
    assert second.y0 >= first.y0 + 0.8 * first.height
    (legend,) = figure.legends
    assert words(legend.get_texts()) == ["query", "keys"]
    plot = axes.get_window_extent()
    for name in names.values():
        box = name.get_window_extent()
        assert plot.x0 <= box.x0 <= box.x1 <= plot.x1
        assert plot.y0 <= box.y0 <= box.y1 <= plot.y1


def test_bars_are_as_long_as_their_numbers_and_say_so():
    figure = bars({"all heads": 1.5, "shared": 0.25}, x_label="ms", form="{:.1f} ms")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in drawn_bars(axes)] == [1.5, 0.25]
    assert words(axes.get_yticklabels()) == ["all heads", "shared"]
    assert words(axes.texts) == ["1.5 ms", "0.2 ms"]
    assert axes.yaxis_inverted()  # the first is the topmost
    assert axes.get_xlabel() == "ms"


def test_strips_have_a_mark_for_every_number():
    groups = {"one": {"a": [1.0, 2.0], "b": [4.0]}, "two": {"a": [8.0], "b": [3.0]}}
    figure = strips(groups, x_label="error", log_x=True)
    (axes,) = figure.axes
    marks = [[*zip(*line.get_data(), strict=True)] for line in axes.lines]
    assert marks == [[(1, 0), (2, 0), (4, 1)], [(8, 0), (3, 1)]]
    assert words(axes.get_yticklabels()) == ["a", "b"]
    assert axes.yaxis_inverted()
    assert axes.get_xlabel() == "error"
    assert axes.get_xscale() == "log"
    assert words(axes.texts) == [*groups]
    for text, line in zip(axes.texts, axes.lines, strict=True):
        box, marks = text.get_window_extent(), marks_of(line)
        highest = marks[:, 1].max()
        assert highest < box.y0 < highest + 20  # above the first row
        first = marks[marks[:, 1] > highest - 1, 0]
        assert ((box.x0 - 15 < first) & (first < box.x1 + 15)).any()
    assert not strips({"one": {"a": [1.0]}}, x_label="x").axes[0].texts


def test_bar_panels_share_a_scale_and_leave_out_what_is_cut():
    cases = {"all": (0.5, 0.5), "one": (1.0, 0.0), "c": (1.0, 0.0)}
    figure = bar_panels({name: {"a": a, "b": b} for name, (a, b) in cases.items()})
    for axes, (name, case) in zip(figure.axes, cases.items(), strict=True):
        assert tuple(bar.get_width() for bar in drawn_bars(axes)) == case
        assert axes.get_title(loc="left") == name
        assert words(axes.texts) == [f"{part:.2f}" if part else "" for part in case]
        assert axes.yaxis_inverted()
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert words(figure.axes[0].get_yticklabels()) == ["a", "b"]


def test_cells_have_the_color_of_their_state_and_their_text():
    states = torch.tensor([[[0, 1, 2], [2, 0, 1]], [[1, 1, 1], [0, 0, 2]]])
    texts = [[[f"{p}{r}{c}" for c in "xyz"] for r in range(2)] for p in range(2)]
    figure = cells(states, **cell_labels(2), texts=texts)
    colors = {0: (0, 0, 0, 0), 1: (53, 87, 194, 89), 2: (194, 86, 46, 140)}
    for axes, table, expected in zip(figure.axes, states, texts, strict=True):
        fills = [patch.get_facecolor() for patch in axes.patches]
        shown = [tuple(round(255 * part) for part in fill) for fill in fills]
        assert shown == [colors[state] for state in table.flatten().tolist()]
        assert words(axes.texts) == [text for line in expected for text in line]
        assert axes.yaxis_inverted()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["first", "second"]
    (legend,) = figure.legends
    assert words(legend.get_texts()) == ["kept", "new"]


def test_each_head_is_joined_to_the_keys_that_it_reads():
    figure = shared_heads(6, {"all": 6, "two": 2})
    all_heads, two = (
        [tuple(line.get_xdata()) for line in axes.get_lines()] for axes in figure.axes
    )
    assert all_heads == [(h, h) for h in range(6)]
    assert two == [(0, 1), (1, 1), (2, 1), (3, 4), (4, 4), (5, 4)]
    assert figure.axes[1].get_title(loc="left") == "two"


def test_turned_arrows_lead_from_the_center_to_their_tips():
    planes = {
        "p": {"q": (1.0, 0.0), "k": (0.0, -1.0)},
        "r": {"q": (-0.6, 0.8)},
        "s": {"k": (0.0, 1.0)},
    }
    figure = turns(planes)
    assert [axes.get_title() for axes in figure.axes] == ["p", "r", "s"]
    for axes, tips in zip(figure.axes, planes.values(), strict=True):
        drawn = [text for text in axes.texts if getattr(text, "arrow_patch", None)]
        assert [arrow.xy for arrow in drawn] == list(tips.values())
        assert {arrow.get_position() for arrow in drawn} == {(0, 0)}
        names = [text.get_text() for text in axes.texts if text.get_text()]
        assert names == list(tips)


def test_slices_have_the_color_of_their_head():
    tables = head_tables(2)
    figure = head_slices(**tables, words="abcde", features="uvwxyz")
    for name in ("w_q", "w_k", "w_v"):
        tables[name] = torch.stack(tables[name].split(3, dim=1))
    tables["w_o"] = torch.stack(tables["w_o"].split(3))
    order = ("x", "w_q", "w_k", "w_v", "q", "k", "v", "weights", "heads", "w_o")
    expected = [
        part
        for name in (*order, "output")
        for part in tables[name].abs().reshape(-1, *tables[name].shape[-2:])
    ]
    for drawn, part in zip(drawn_weights(figure), expected, strict=True):
        torch.testing.assert_close(drawn, part)
    color = ["gray", *["blue", "orange"] * 9, "gray"]
    frames = [patch.get_edgecolor() for patch in figure.axes[0].patches]
    palette = {"gray": plots.INK, "blue": plots.ACCENT, "orange": plots.WARM}
    assert frames == [to_rgba(palette[color]) for color in color]


def test_bars_side_by_side_are_as_high_as_given():
    panels = {"p": {"a": [1.0, 2.0], "b": [3.0, 0.5]}, "r": {"a": [0.0, 1.0]}}
    labels = {"x_label": "expert", "y_label": "load"}
    figure = side_by_side(panels, level=0.5, **labels)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["p", "r"]
    for axes, groups in zip(figure.axes, panels.values(), strict=True):
        drawn = [[bar.get_height() for bar in bars] for bars in axes.containers]
        assert drawn == list(groups.values())
        (line,) = axes.lines
        assert set(line.get_ydata()) == {0.5}
        for place in range(2):
            bars = [container[place] for container in axes.containers]
            ends = [bar.get_x() + bar.get_width() for bar in bars]
            assert place - 0.5 < bars[0].get_x()
            assert ends[-1] < place + 0.5
    assert words(figure.axes[0].texts) == ["a", "b"]
    for text, bars in zip(figure.axes[0].texts, figure.axes[0].containers, strict=True):
        box = text.get_window_extent()
        tops = [bar.get_window_extent() for bar in bars]
        assert any(0 < box.y0 - top.y1 < 15 and box.x0 < top.x1 for top in tops)
    assert not figure.axes[1].texts
    assert not side_by_side(panels, **labels).axes[0].lines
