"""Place labels next to curves and bars, clear of everything else."""

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray

__all__ = ["LETTERS", "Shape", "name_shapes", "shape_of_bars", "shape_of_line"]

# In points. On a figure as wide as a phone's screen, letters are 11 pixels high.
LETTERS = 11.0

# In pixels of the figure.
_STEP = 4.0  # between the points that represent a curve
_GAPS = (4.0, 9.0)  # between a label and its shape
_CLEAR = 3.0  # around a label, at least
_INSIDE = 2.0  # between a label and the frame
_APART = 8.0  # between two labels, at least
_FAR = 30.0  # from this distance on, other shapes do not matter
# Costs of a place: near the left end, in two lines, covering something.
_EARLY = 10.0
_BROKEN = 8.0
_HIDDEN = 100.0

Points = NDArray[np.float64]


class Shape(NamedTuple):
    """Something to label, in pixels of the figure.

    Attributes:
        color: Its color, and that of its label.
        anchors: Points next to which the label may be placed.
        outline: Points that no label may cover.
        above: Whether the label must be above its anchor.
    """

    color: str
    anchors: Points
    outline: Points
    above: bool = False


class _Place(NamedTuple):
    """A possible place for a label, its line breaks, and how good it is."""

    words: str
    low: Points
    high: Points
    score: float


def shape_of_line(axes: Axes, line: Line2D, *, above: bool = False) -> Shape:
    """Return the shape of a line, or of its markers if it draws no line.

    Args:
        axes: The axes of the line, already laid out.
        line: The line.
        above: Whether its label must be above its topmost marker.
    """
    color = to_hex(line.get_color())
    places = axes.transData.transform(line.get_xydata())
    if line.get_linestyle() == "None":
        reach = line.get_markersize() * axes.figure.dpi / 72 / 2
        around = np.array([(0, 1), (-1, 0), (1, 0), (0, -1)])
        marks = (places[:, None] + reach * around).reshape(-1, 2)
        highest = marks[:, 1] > marks[:, 1].max() - 1
        return Shape(color, marks[highest] if above else marks, marks, above)
    lengths = np.hypot(*np.diff(places, axis=0).T)
    along = np.concatenate([[0.0], lengths.cumsum()])
    steps = np.linspace(0, along[-1], 2 + int(along[-1] / _STEP))
    path = np.stack([np.interp(steps, along, axis) for axis in places.T], axis=1)
    return Shape(color, path, path)


def shape_of_bars(bars: BarContainer) -> Shape:
    """Return the shape of upright bars, whose label is above one of them."""
    boxes = [bar.get_window_extent() for bar in bars]
    tops = np.array([((box.x0 + box.x1) / 2, box.y1) for box in boxes])
    shares = np.linspace(0, 1, 12)[:, None]
    sides = [
        (x, box.y0) + shares * (0, box.height)
        for box in boxes
        for x in (box.x0, box.x1)
    ]
    return Shape(to_hex(bars[0].get_facecolor()), tops, np.concatenate(sides), True)


def name_shapes(axes: Axes, shapes: Mapping[str, Shape]) -> None:
    """Write each label next to its shape, where there is most room.

    Args:
        axes: The axes to write in, already laid out.
        shapes: The shapes, by label.
    """
    texts = [
        axes.text(
            *(0, 0, name),
            color=shape.color,
            fontsize=LETTERS,
            linespacing=1.1,
            transform=axes.transAxes,
            va="bottom",
            in_layout=False,
            # An id for pages, and for comparing two drawings.
            gid=f"label-{index}",
        )
        for index, (name, shape) in enumerate(shapes.items())
    ]
    places = [
        _places(axes, text, shape, [o for o in shapes.values() if o is not shape])
        for text, shape in zip(texts, shapes.values(), strict=True)
    ]
    for text, place in zip(texts, _apart(places), strict=True):
        text.set_text(place.words)
        x, y = axes.transAxes.inverted().transform(place.low)
        text.set_position((float(x), float(y)))


def _places(axes: Axes, text: Text, shape: Shape, others: list[Shape]) -> list[_Place]:
    """Return the places for a label within the axes, the best first."""
    lower, upper = axes.get_window_extent().get_points()
    rest = np.concatenate([np.full((1, 2), np.inf), *(o.outline for o in others)])
    places: list[_Place] = []
    for words in _in_lines(text.get_text()):
        text.set_text(words)
        size = np.array(text.get_window_extent().size)
        least = lower + _INSIDE
        most = np.maximum(upper - _INSIDE - size, least)
        low = _beside(shape, size).clip(least, most)
        to_own, to_rest = (_distances(low, size, p) for p in (shape.outline, rest))
        score = np.minimum(to_rest, _FAR) - to_own
        score += _EARLY * (low[:, 0] + size[0] - upper[0]) / (upper - lower)[0]
        score -= _HIDDEN * (np.minimum(to_own, to_rest) < _CLEAR)
        score -= _BROKEN * ("\n" in words)
        places += [
            _Place(words, corner, corner + size, float(points))
            for corner, points in zip(low, score, strict=True)
        ]
    return sorted(places, key=lambda place: -place.score)


def _in_lines(name: str) -> list[str]:
    """Return a label in one line, and broken into two of about the same length."""
    breaks = [at for at, letter in enumerate(name) if letter == " "]
    at = min(breaks, key=lambda at: abs(at - len(name) / 2), default=None)
    return [name] if at is None else [name, f"{name[:at]}\n{name[at + 1 :]}"]


def _beside(shape: Shape, size: Points) -> Points:
    """Return the lower left corners of possible boxes around each anchor."""
    width, height = size
    shifts: list[tuple[float, float]] = []
    for gap in _GAPS:
        shifts += [(-part * width, gap) for part in (0, 0.5, 1)]
        if not shape.above:
            shifts += [(-part * width, -gap - height) for part in (0, 0.5, 1)]
            shifts += [(gap, -height / 2), (-gap - width, -height / 2)]
    return (shape.anchors[:, None] + np.array(shifts)).reshape(-1, 2)


def _distances(low: Points, size: Points, points: Points) -> Points:
    """Return the distance from each box to the nearest point, 0 for one inside."""
    squares = np.zeros((len(low), len(points)))
    for corners, length, at in zip(low.T, size, points.T, strict=True):  # x, then y
        begin = corners[:, None]
        outside = np.maximum(np.maximum(begin - at, at - begin - length), 0)
        squares += np.square(outside)
    return np.sqrt(squares.min(axis=1))


def _apart(places: list[list[_Place]]) -> list[_Place]:
    """Choose a place for each label so that no two overlap."""
    best: tuple[_Place, ...] = ()
    most = -np.inf
    for order in itertools.permutations(range(len(places))):
        taken: dict[int, _Place] = {}
        for index in order:
            free = (p for p in places[index] if not _meets(p, taken.values()))
            taken[index] = next(free, places[index][0])
        total = sum(place.score for place in taken.values())
        if total > most:
            best, most = tuple(taken[index] for index in range(len(places))), total
    return [*best]


def _meets(place: _Place, taken: Iterable[_Place]) -> bool:
    return any(
        (place.low < placed.high + _APART).all()
        and (placed.low < place.high + _APART).all()
        for placed in taken
    )
