"""The pictures of the book: attention as heat maps, and curves.

Every function returns a matplotlib figure, to show in a notebook or save to a file.
Needs matplotlib: ``pip install "tested-transformer[plots]"``.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from jaxtyping import Bool, Float, Int
from torch import Tensor

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, to_rgba
    from matplotlib.container import BarContainer
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import LogLocator, MaxNLocator

    from transformer_book._labels import (
        LETTERS,
        name_shapes,
        shape_of_bars,
        shape_of_line,
    )
except ImportError as error:
    raise ImportError(
        'plots need matplotlib: pip install "tested-transformer[plots]"'
    ) from error

__all__ = [
    "arrows",
    "bar_panels",
    "bars",
    "cells",
    "curves",
    "head_maps",
    "head_slices",
    "marks",
    "shared_heads",
    "side_by_side",
    "strips",
    "turns",
    "weight_map",
]

# A few colors, each with a meaning. The book's pages replace them with their light and
# dark palettes, so no picture may use any other color.
INK = "#1b1f24"
MUTED = "#6b7280"
ACCENT = "#3557c2"
WARM = "#c2562e"
PAPER = "#ffffff"
RULE = "#d0d4dc"

_LINES = (ACCENT, WARM, MUTED, INK)
_STYLES = ("-", "--", ":", "-.")
_SHAPES = ("o", "^", "s", "x")

# Of titles, numbers and labels of axes; and of what stands in the middle of a cell.
_TEXT = {"color": INK, "fontsize": LETTERS}
_MIDDLE = {"ha": "center", "va": "center", "fontsize": LETTERS}

# In inches, the width that a phone shows completely with letters of 11 pixels.
_PHONE = 4.1
_KEY = {
    "ncols": 2,
    "frameon": False,
    "fontsize": LETTERS,
    "labelcolor": INK,
    "handlelength": 1.4,
    "columnspacing": 1.4,
}

# In inches, the largest width of a letter.
_LETTER = 0.1


def bar_panels(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw the same bars for several cases, in two columns on one scale.

    A bar of length 0 is not drawn and has no number, only its name.

    Args:
        panels: For each case, the length of each bar by name; the same names in all.

    Raises:
        ValueError: If there are no cases, or their names differ.
    """
    names = [list(lengths) for lengths in panels.values()]
    if not names or any(labels != names[0] for labels in names):
        raise ValueError(
            f"panels must have one or more cases with the same bars; they have {names}"
        )
    most = max(length for lengths in panels.values() for length in lengths.values())
    rows, places = -(-len(panels) // 2), range(len(names[0]))
    figure = _figure(_PHONE, rows * (0.6 + 0.27 * len(names[0])))
    for index, (title, lengths) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, 2, index + 1)
        drawn = axes.barh(places, [*lengths.values()], height=0.68, color=ACCENT)
        labels = [f"{length:.2f}" if length else "" for length in lengths.values()]
        axes.bar_label(drawn, labels, padding=3, **_TEXT)
        axes.set_title(title, loc="left", **_TEXT)
        axes.set_yticks(places, names[0] if index % 2 == 0 else [""] * len(names[0]))
        axes.set_xlim(0, 1.22 * most)
        _lying(axes)
    return _settled(figure)


def bars(lengths: Mapping[str, float], *, x_label: str, form: str = "{:.2f}") -> Figure:
    """Draw horizontal bars from top to bottom, each with its length at its end.

    Args:
        lengths: The length of each bar, by name.
        x_label: What the lengths are, with their unit.
        form: How to write a length.

    Raises:
        ValueError: If there are no bars, or one has a negative length.
    """
    _check_number("lengths", len(lengths))
    for name, length in lengths.items():
        if length < 0:
            raise ValueError(f"lengths[{name!r}]={length} must not be negative")
    figure = _figure(_PHONE, 0.9 + 0.42 * len(lengths))
    axes = figure.add_subplot()
    places = range(len(lengths))
    drawn = axes.barh(places, [*lengths.values()], height=0.62, color=ACCENT)
    labels = [form.format(length) for length in lengths.values()]
    axes.bar_label(drawn, labels, padding=4, **_TEXT)
    axes.set_yticks(places, [*lengths])
    axes.margins(x=0.2)
    axes.set_xlabel(x_label, loc="right", **_TEXT)
    _lying(axes)
    return _settled(figure)


def cells(
    states: Int[Tensor, "P R C"],
    *,
    names: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: Sequence[str],
    texts: Sequence[Sequence[Sequence[str]]] | None = None,
) -> Figure:
    """Draw tables of cells, one below the other, colored by their state.

    Args:
        states: The state of each cell: 0 is empty, 1 and 2 have a color each.
        names: The names of states 1 and 2.
        rows: A label for each row.
        columns: A label for each column.
        titles: A title for each table.
        texts: What to write into each cell; nothing by default.

    Raises:
        ValueError: If there are no tables, labels do not fit them, or a state is not 0,
            1 or 2.
    """
    _check_axes(states, "(P, R, C)")
    _check_labels("names", names, 2)
    _check_labels("titles", titles, states.shape[0])
    _check_labels("rows", rows, states.shape[1])
    _check_labels("columns", columns, states.shape[2])
    if states.min() < 0 or states.max() > 2:
        raise ValueError("states must be 0, 1 or 2")
    fills = ("none", to_rgba(ACCENT, 0.35), to_rgba(WARM, 0.55))
    width = min(_PHONE, 1.3 + 0.5 * len(columns))
    height = 0.4 + len(titles) * (0.75 + 0.34 * len(rows))
    figure = _figure(width, height)
    for index, (table, title) in enumerate(zip(states.tolist(), titles, strict=True)):
        axes = figure.add_subplot(len(titles), 1, index + 1)
        for row, line in enumerate(table):
            for column, state in enumerate(line):
                corner = column - 0.5, row - 0.5
                fill = fills[state]
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=fill, edgecolor=RULE))
                if texts is not None:
                    text = texts[index][row][column]
                    axes.text(column, row, text, color=INK, **_MIDDLE)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(columns)), columns, fontsize=LETTERS)
        axes.set_yticks(range(len(rows)), rows, fontsize=LETTERS)
        axes.set_title(title, **_TEXT, loc="left")
        _quiet(axes, labels=INK)
    handles = [
        Patch(facecolor=fill, edgecolor=RULE, label=name)
        for fill, name in zip(fills[1:], names, strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper left", **_KEY)
    return _settled(figure)


def head_maps(
    weights: Float[Tensor, "H T S"],
    *,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    columns: int = 4,
) -> Figure:
    """Draw one heat map per head: row = query, column = key, stronger = attends more.

    Args:
        weights: The weights of every head for one sequence of the batch.
        queries: A label for each row.
        keys: A label for each column; those of the rows by default.
        titles: A title for each head; ``head 0``, ``head 1``, ... by default.
        columns: At most this many heads side by side; fewer if the cells would be too
            small on a phone.

    Raises:
        ValueError: If ``weights`` has other axes, or labels do not fit it.
    """
    _check_axes(weights, "(H, T, S)")
    keys = queries if keys is None else keys
    if titles is None:
        titles = [f"head {head}" for head in range(len(weights))]
    _check_labels("titles", titles, weights.shape[0])
    _check_labels("queries", queries, weights.shape[1])
    _check_labels("keys", keys, weights.shape[2])
    beside = 0.1 + _LETTER * max(map(len, queries))
    wide = max(len(line) for title in titles for line in title.split("\n"))
    min_width = 0.15 + max(
        len(keys) * (0.16 if any(keys) else 0.1), 0.9 * _LETTER * wide
    )
    most = max(1, min(columns, len(weights), int((_PHONE - beside) / min_width)))
    rows = -(-len(weights) // most)
    columns = -(-len(weights) // rows)  # equally many in each row
    width_left = (_PHONE - beside) / columns - 0.15
    large = 0.2 if rows > 2 else 2.4 / max(len(queries), len(keys))
    # Adjacent letters must not touch, even if that makes the figure wider.
    cell = max(1.25 * _LETTER if any(keys) else 0, min(large, width_left / len(keys)))
    # Nor do labels below each other touch.
    close = any(upper and lower for upper, lower in pairwise(queries))
    tall = max(cell, 1.7 * _LETTER) if close else cell
    lines = max(title.count("\n") for title in titles)
    beyond = 0 if _upright(keys) else _LETTER * max(map(len, keys))
    above = 0.55 + 0.18 * lines + beyond
    width = beside + columns * (cell * len(keys) + 0.15)
    figure = _figure(width, rows * (tall * len(queries) + above))
    for index, (head, title) in enumerate(zip(weights, titles, strict=True)):
        axes = figure.add_subplot(rows, columns, index + 1)
        _draw_map(axes, head, queries if index % columns == 0 else None, keys)
        axes.set_aspect(tall / cell)
        axes.set_title(title, **_TEXT)
    return _settled(figure)


def head_slices(
    *,
    x: Float[Tensor, "T D"],
    w_q: Float[Tensor, "D width"],
    w_k: Float[Tensor, "D width"],
    w_v: Float[Tensor, "D width"],
    q: Float[Tensor, "H T d_k"],
    k: Float[Tensor, "H T d_k"],
    v: Float[Tensor, "H T d_k"],
    weights: Float[Tensor, "H T T"],
    heads: Float[Tensor, "H T d_k"],
    w_o: Float[Tensor, "width D"],
    output: Float[Tensor, "T D"],
    words: Sequence[str],
    features: Sequence[str],
) -> Figure:
    """Draw every table of multi-head self-attention, with a color for each head.

    The farther a number is from 0, the stronger its cell, on a scale for each table.

    Args:
        x: The sequence that attends to itself.
        w_q: The projection to the queries of every head; three heads at most.
        w_k: The projection to the keys.
        w_v: The projection to the values.
        q: The queries of every head.
        k: The keys of every head.
        v: The values of every head.
        weights: The weights of every head.
        heads: The output of every head.
        w_o: The output projection.
        output: The output.
        words: A label for each row of ``x``.
        features: A label for each column of ``x``.

    Raises:
        ValueError: If there are more than three heads, or labels do not fit ``x``.
    """
    if len(q) > 3:
        raise ValueError(f"q has {len(q)} heads; it takes at most 3")
    _check_labels("words", words, len(x))
    _check_labels("features", features, x.shape[1])
    cut = {
        f"$W^{name}$": matrix.unflatten(1, (len(q), -1)).transpose(0, 1)
        for name, matrix in {"Q": w_q, "K": w_k, "V": w_v}.items()
    }
    steps: dict[str, tuple[Sequence[str], dict[str, Tensor]]] = {
        "the words": (words, {"X": x[None]}),
        "the projections": (features, cut),
        "project, and cut into heads": (words, {"Q": q, "K": k, "V": v}),
        "attend, in each head": (
            words,
            {f"head {head}": weights[[head]] for head in range(len(weights))},
        ),
        "concatenate, and mix": (
            words,
            {
                "heads": heads,
                "$W^O$": w_o.unflatten(0, (len(q), -1)),
                "output": output[None],
            },
        ),
    }
    figure = _figure(_PHONE, _PHONE)
    axes = figure.add_subplot()
    width, top = x.shape[1] + 1.5, 0.0
    for step, (rows, tables) in steps.items():
        axes.text(-4.5, top, step, **_TEXT, va="top")
        top += 2.6
        for column, (name, table) in enumerate(tables.items()):
            axes.text(column * width, top - 0.3, name, color=MUTED, fontsize=LETTERS)
            colors = [INK] if len(table) == 1 else _LINES
            colors = [_LINES[column]] if name.startswith("head ") else colors
            _draw_slices(axes, table, colors, (column * width, top), name == "$W^O$")
        for row, label in enumerate(rows):
            style = {"ha": "right", "va": "center", "fontsize": LETTERS}
            axes.text(-0.4, top + row + 0.5, label, color=MUTED, **style)
        top += len(rows) + 0.9
        if name == "X":
            style = {"ha": "center", "va": "top", "rotation": 90, "fontsize": LETTERS}
            for column, label in enumerate(features):
                axes.text(column + 0.5, top - 0.6, label, color=MUTED, **style)
            top += 0.55 * max(map(len, features)) + 0.4
    top += max(0, len(w_o) - len(x))  # which may be higher
    axes.set(xlim=(-4.6, 3 * width - 1.3), ylim=(top - 0.8, -0.2), aspect="equal")
    axes.axis("off")
    figure.set_size_inches(_PHONE, _PHONE * (top - 0.6) / (3 * width + 3.3))
    return _settled(figure)


def weight_map(
    weights: Float[Tensor, "T S"],
    *,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
) -> Figure:
    """Draw one large heat map with every weight written into its cell.

    Args:
        weights: One row of weights per query.
        queries: A label for each row.
        keys: A label for each column; those of the rows by default.

    Raises:
        ValueError: If ``weights`` has other axes, or labels do not fit it.
    """
    _check_axes(weights, "(T, S)")
    keys = queries if keys is None else keys
    _check_labels("queries", queries, weights.shape[0])
    _check_labels("keys", keys, weights.shape[1])
    figure = _figure(1.4 + 0.62 * len(keys), 0.9 + 0.5 * len(queries))
    axes = figure.add_subplot()
    _draw_map(axes, weights, queries, keys)
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            color = PAPER if value > 0.8 else INK
            axes.text(column, row, f"{value:.2f}", color=color, **_MIDDLE)
    return _settled(figure)


def arrows(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
) -> Figure:
    """Draw named arrows from the origin, in groups that differ in color and width.

    Args:
        groups: For each group, its arrows: a name and the tip ``(x, y)``; at most three
            groups. The arrows of the first are wide, so that one on top of them does
            not hide them.
        x_label: The label of the horizontal axis.
        y_label: The label of the vertical axis.

    Raises:
        ValueError: If there are no groups, more than three, or one without arrows.
    """
    _check_number("groups", len(groups), 3)
    figure = _figure(_PHONE, 3.5)
    axes = figure.add_subplot()
    tips = [(0.0, 0.0)]
    for (group, named), color, width in zip(
        groups.items(), _LINES, (5.0, 2.0, 2.0), strict=False
    ):
        if not named:
            raise ValueError(f"groups[{group!r}] has no arrows")
        axes.plot([], [], color=color, linewidth=width, label=group)
        for name, (x, y) in named.items():
            style = {"arrowstyle": "-|>,head_width=0.4,head_length=0.7"}
            style |= {"color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", xy=(x, y), xytext=(0, 0), arrowprops=style)
            # Outward from the tip; a second name at the same tip is placed beyond it.
            length = (x * x + y * y) ** 0.5 or 1.0
            beyond = 13 * tips.count((x, y)) * (1 if y >= 0 else -1)
            tips.append((x, y))
            axes.annotate(
                name,
                xy=(x, y),
                xytext=(12 * x / length, 12 * y / length + beyond),
                textcoords="offset points",
                ha="left" if x > 0.3 * length else "right" if x < 0 else "center",
                va="center",
                color=color,
                fontsize=LETTERS,
            )
    xs, ys = zip(*tips, strict=True)
    margin = 0.25 * max(max(xs) - min(xs), max(ys) - min(ys))
    axes.set_xlim(min(xs) - margin, max(xs) + 2 * margin)
    names = max(tips.count(tip) for tip in tips if tip[1] == max(ys))
    axes.set_ylim(min(ys) - margin, max(ys) + margin * (0.6 + 0.4 * names))
    axes.set_aspect("equal")
    axes.locator_params(prune="lower")  # two numbers would collide in the corner
    if len(groups) > 1:
        figure.legend(loc="outside lower left", **_KEY)
    return _with_axes(figure, axes, x_label, y_label)


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str,
    y_label: str,
    dots: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Draw named lines over a common axis that differ in color and dashes.

    Args:
        lines: For each name, its points ``(x, y)``; at most four lines.
        x_label: The label of the horizontal axis, with its unit.
        y_label: The label of the vertical axis, with its unit.
        dots: For each name, points to draw on top without a line.
        log_x: Whether the horizontal axis is logarithmic, in powers of two.
        log_y: Whether the vertical axis is logarithmic.

    Raises:
        ValueError: If there are no lines, more than four, or one without points.
    """
    _check_number("lines", len(lines), len(_LINES))
    figure = _figure(_PHONE, 2.9)
    axes = figure.add_subplot()
    for (name, pairs), color, style in zip(
        lines.items(), _LINES, _STYLES, strict=False
    ):
        if not pairs:
            raise ValueError(f"lines[{name!r}] has no points")
        xs, ys = zip(*pairs, strict=True)
        axes.plot(xs, ys, style, color=color, label=name, linewidth=1.8)
    for (name, pairs), shape in zip((dots or {}).items(), _SHAPES, strict=False):
        xs, ys = zip(*pairs, strict=True)
        axes.plot(xs, ys, shape, color=INK, label=name, markersize=8)
    if log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=7))
        axes.xaxis.set_major_formatter("{x:g}")
    if log_y:
        axes.set_yscale("log")
        if axes.get_ylim()[1] < 1e6:  # beyond, powers of ten are easier to read
            axes.yaxis.set_major_formatter("{x:g}")
    return _named(_with_axes(figure, axes, x_label, y_label))


def marks(
    marked: Bool[Tensor, "R C"], *, rows: Sequence[str], columns: Sequence[str]
) -> Figure:
    """Draw a table of small cells, filled where ``marked`` is true.

    Args:
        marked: Which cells to fill.
        rows: A label for each row.
        columns: A label for each column.

    Raises:
        ValueError: If labels do not fit the table.
    """
    _check_labels("rows", rows, marked.shape[0])
    _check_labels("columns", columns, marked.shape[1])
    cell = (2.6 if max(map(len, columns)) == 2 else 1.6) * _LETTER
    beside = 0.1 + 0.8 * _LETTER * max(map(len, rows))
    above = 0.3 if _upright(columns) else 0.9 * _LETTER * max(map(len, columns))
    figure = _figure(beside + cell * len(columns), above + cell * len(rows))
    _draw_map(figure.add_subplot(), marked, rows, columns)
    return _settled(figure)


def shared_heads(num_heads: int, num_kv_heads: Mapping[str, int]) -> Figure:
    """Draw which heads of queries read which head of keys and values.

    Args:
        num_heads: How many heads of queries.
        num_kv_heads: For each title, how many heads of keys and values.

    Raises:
        ValueError: If there are no titles, or a number does not divide ``num_heads``.
    """
    _check_number("num_kv_heads", len(num_kv_heads))
    for title, number in num_kv_heads.items():
        if number < 1 or num_heads % number:
            raise ValueError(
                f"num_kv_heads[{title!r}]={number} must divide num_heads={num_heads}"
            )
    figure = _figure(_PHONE, 1.4 * len(num_kv_heads))
    for index, (title, number) in enumerate(num_kv_heads.items()):
        axes = figure.add_subplot(len(num_kv_heads), 1, index + 1)
        group = num_heads // number
        for head in range(num_heads):
            shared = head // group
            middle = shared * group + (group - 1) / 2
            axes.plot([head, middle], [1, 0], color=MUTED, linewidth=1.4, zorder=1)
        centers = [shared * group + (group - 1) / 2 for shared in range(number)]
        axes.scatter(range(num_heads), [1] * num_heads, s=170, color=ACCENT)
        axes.scatter(centers, [0] * number, s=200, color=WARM, marker="s")
        axes.set_xlim(-0.6, num_heads - 0.4)
        axes.set_ylim(-0.45, 1.45)
        axes.set_title(title, **_TEXT, loc="left")
        axes.set_yticks([0, 1], ["keys, values", "queries"], fontsize=LETTERS)
        axes.set_xticks([])
        _quiet(axes, labels=INK, frame=())
    return _settled(figure)


def side_by_side(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    x_label: str,
    y_label: str,
    level: float | None = None,
) -> Figure:
    """Draw grouped vertical bars in panels, one below the other.

    Args:
        panels: For each panel's title, the heights of each group's bars by its name,
            one height for each position; at most four groups.
        x_label: The label of the positions, which are numbered from 0.
        y_label: The label of the heights, with their unit.
        level: The height of a dashed line across each panel, if any.

    Raises:
        ValueError: If there are no panels, or one has no groups or more than four.
    """
    _check_number("panels", len(panels))
    figure = _figure(_PHONE, 0.6 + 1.35 * len(panels))
    first: Axes | None = None
    named: dict[str, BarContainer] = {}
    for index, (title, groups) in enumerate(panels.items()):
        _check_number(f"panels[{title!r}]", len(groups), len(_LINES), "groups")
        axes = figure.add_subplot(len(panels), 1, index + 1, sharex=first, sharey=first)
        first = first or axes
        width = 0.8 / len(groups)
        for group, ((name, heights), color) in enumerate(
            zip(groups.items(), _LINES, strict=False)
        ):
            left = [place - 0.4 + group * width for place in range(len(heights))]
            drawn = axes.bar(left, heights, width * 0.9, align="edge", color=color)
            if axes is first:
                named[name] = drawn
        if level is not None:
            axes.axhline(level, color=INK, linewidth=1, linestyle="--")
        axes.set_title(title, **_TEXT, loc="left")
        axes.set_ylabel(y_label, **_TEXT)
        axes.tick_params(labelbottom=index == len(panels) - 1)
        axes.margins(y=0.45)  # with room for the groups' names
        _quiet(axes)
    axes.set_xlabel(x_label, **_TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _settled(figure)
    if len(named) > 1:
        shapes = {name: shape_of_bars(bars) for name, bars in named.items()}
        name_shapes(figure.axes[0], shapes)
    return figure


def strips(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    x_label: str,
    log_x: bool = False,
) -> Figure:
    """Draw a horizontal line for each name, with a mark for each of its numbers.

    Args:
        groups: For each group, the numbers of each name; the same names in all, and at
            most four groups.
        x_label: What the numbers are, with their unit.
        log_x: Whether the axis is logarithmic.

    Raises:
        ValueError: If there are no groups, more than four, or their names differ.
    """
    names = [list(numbers) for numbers in groups.values()]
    if not 1 <= len(groups) <= len(_SHAPES) or any(
        labels != names[0] for labels in names
    ):
        raise ValueError(
            f"groups must be 1 to 4 with the same names; they have {names}"
        )
    figure = _figure(_PHONE, 1.1 + 0.42 * len(names[0]))
    axes = figure.add_subplot()
    for (name, numbers), shape, color in zip(
        groups.items(), _SHAPES, _LINES, strict=False
    ):
        places = [(x, y) for y, xs in enumerate(numbers.values()) for x in xs]
        xs, ys = zip(*places, strict=True)
        axes.plot(xs, ys, shape, color=color, label=name, markersize=7)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(names[0])), names[0])
    axes.set_ylim(len(names[0]) - 0.4, -1.1)  # with room for the groups' names
    axes.set_xlabel(x_label, **_TEXT)
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    _quiet(axes)
    axes.tick_params(axis="y", colors=INK)
    return _named(_settled(figure), above=True)


def turns(planes: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """Draw named arrows from the center of a circle, one circle for each plane.

    Args:
        planes: For each title, the tips of its arrows by name; at most four arrows. The
            circle has a radius of 1. There are two circles in a row.

    Raises:
        ValueError: If there are no planes, or a circle has no arrows or more than four.
    """
    _check_number("planes", len(planes))
    rows = -(-len(planes) // 2)
    columns = min(2, len(planes))
    figure = _figure(_PHONE / 2 * columns, 2.2 * rows)
    turn = [step * math.tau / 120 for step in range(121)]
    for index, (title, tips) in enumerate(planes.items()):
        _check_number(f"planes[{title!r}]", len(tips), len(_LINES), "arrows")
        axes = figure.add_subplot(rows, columns, index + 1)
        circle = [math.cos(a) for a in turn], [math.sin(a) for a in turn]
        axes.plot(*circle, color=RULE, linewidth=1)
        for (name, (x, y)), color in zip(tips.items(), _LINES, strict=False):
            style = {"arrowstyle": "-|>", "color": color, "linewidth": 2.2}
            style |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 14}
            axes.annotate("", (x, y), (0, 0), arrowprops=style)
            beyond = 1.28 / max(math.hypot(x, y), 1e-9)
            axes.text(x * beyond, y * beyond, name, color=color, **_MIDDLE)
        axes.set_title(title, **_TEXT)
        axes.set(xlim=(-1.6, 1.6), ylim=(-1.5, 1.5), xticks=[], yticks=[])
        axes.set_aspect("equal")
        axes.set_frame_on(False)
    return _settled(figure)


def _draw_map(
    axes: Axes, weights: Tensor, queries: Sequence[str] | None, keys: Sequence[str]
) -> None:
    """Draw weights as cells of one color whose opacity is the weight."""
    rows, columns = weights.shape
    axes.pcolormesh(
        [edge - 0.5 for edge in range(columns + 1)],
        [edge - 0.5 for edge in range(rows + 1)],
        weights.detach().float().cpu().tolist(),
        cmap=_clear_to_full(ACCENT),
        vmin=0.0,
        vmax=1.0,
    )
    # Thin lines show the edges of faint cells, and which row they belong to.
    for between in range(1, rows):
        axes.axhline(between - 0.5, color=RULE, linewidth=0.5)
    for between in range(1, columns):
        axes.axvline(between - 0.5, color=RULE, linewidth=0.5)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    turned = 0 if _upright(keys) else 90
    axes.set_xticks(range(columns), keys, rotation=turned, fontsize=LETTERS)
    axes.set_yticks(range(rows), queries or [""] * rows, fontsize=LETTERS)
    _quiet(axes)


def _upright(keys: Sequence[str]) -> bool:
    """Whether all labels are about as narrow as a cell."""
    return all(len(key) <= 2 for key in keys)


def _draw_slices(
    axes: Axes,
    slices: Float[Tensor, "H R C"],
    colors: Sequence[str],
    corner: tuple[float, float],
    stacked: bool,
) -> None:
    """Draw the slices of one table side by side or stacked, each in its own color."""
    numbers = slices.detach().float().cpu().abs()
    (left, top), (_, rows, columns) = corner, slices.shape
    for part, color in zip(numbers, colors, strict=False):
        axes.pcolormesh(
            [left + edge for edge in range(columns + 1)],
            [top + edge for edge in range(rows + 1)],
            part.tolist(),
            cmap=_clear_to_full(color),
            vmin=0.0,
            vmax=max(numbers.max().item(), 1e-12),
            edgecolors=RULE,
            linewidth=0.5,
        )
        edge = {"facecolor": "none", "edgecolor": color, "linewidth": 1.4}
        axes.add_patch(Rectangle((left, top), columns, rows, **edge))
        left, top = (left, top + rows) if stacked else (left + columns, top)


def _clear_to_full(color: str) -> LinearSegmentedColormap:
    """Return a color map whose ends are not quite transparent and not quite opaque.

    Fully transparent or opaque cells would be drawn differently from the others.
    """
    ends = [to_rgba(color, 0.005), to_rgba(color, 0.995)]
    return LinearSegmentedColormap.from_list("weight", ends, N=101)


def _figure(width: float, height: float) -> Figure:
    """Return an empty figure without a background, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_visible(False)
    return figure


def _settled(figure: Figure) -> Figure:
    """Lay out the figure, twice, because titles get their room only the second time."""
    figure.draw_without_rendering()
    figure.draw_without_rendering()
    return figure


def _with_axes(figure: Figure, axes: Axes, x_label: str, y_label: str) -> Figure:
    """Finish a drawing over two axes: labels, and a grid."""
    axes.set_xlabel(x_label, **_TEXT)
    # The label of the vertical axis stands above it, to save width.
    axes.set_ylabel(y_label, rotation=0, loc="top", **_TEXT)
    axes.yaxis.label.set(ha="left", va="bottom")
    axes.yaxis.set_label_coords(0, 1.03)
    axes.grid(color=RULE, linewidth=0.6)
    _quiet(axes)
    return _settled(figure)


def _named(figure: Figure, *, above: bool = False) -> Figure:
    """Label several lines or groups of marks, next to each or above its top."""
    (axes,) = figure.axes
    lines = [(str(line.get_label()), line) for line in axes.get_lines()]
    if len(lines) > 1:
        shapes = {name: shape_of_line(axes, line, above=above) for name, line in lines}
        name_shapes(axes, shapes)
    return figure


def _quiet(
    axes: Axes,
    *,
    labels: str = MUTED,
    frame: Sequence[str] = ("left", "right", "top", "bottom"),
) -> None:
    """Use thin borders on some sides and muted labels, without a background."""
    axes.patch.set_visible(False)
    axes.tick_params(length=0, colors=labels, labelsize=LETTERS, which="both")
    for side, spine in axes.spines.items():
        spine.set(color=RULE, visible=side in frame)


def _lying(axes: Axes) -> None:
    """Finish bars that lie below each other, whose numbers need no axis."""
    axes.invert_yaxis()
    axes.set_xticks([])
    _quiet(axes, frame=("left",))
    axes.tick_params(axis="y", colors=INK)


def _check_axes(weights: Tensor, axes: str) -> None:
    if weights.ndim != len(axes.split(",")) or 0 in weights.shape:
        raise ValueError(
            f"weights must be {axes}, for one sequence; it is {tuple(weights.shape)}"
        )


def _check_labels(name: str, labels: Sequence[str], num_labels: int) -> None:
    if len(labels) != num_labels:
        raise ValueError(f"{name} has {len(labels)} labels; weights need {num_labels}")


def _check_number(
    name: str, number: int, most: int | None = None, things: str = "entries"
) -> None:
    if number < 1 or number > (most or number):
        allowed = f"1 to {most}" if most else "1 or more"
        raise ValueError(f"{name} has {number} {things}; it takes {allowed}")
