"""Hold the shapes and names that a diagram draws against the tensors of a pass."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from torch import Tensor

from bookbinder.diagrams.flowcharts import SHAPE, Arrow, Flowchart, Node
from bookbinder.diagrams.sizes import SIZES
from bookbinder.diagrams.tracing import Steps

__all__ = ["shape_problems"]

_LETTER = re.compile(r"[A-Za-z]\w*")
_Problem = tuple[int, str]


def shape_problems(chart: Flowchart, made: Mapping[str, Any]) -> Iterator[_Problem]:
    """Find what the labels of a diagram say otherwise than the pass.

    Args:
        chart: The diagram.
        made: What its program made, by name.
    """
    sizes = SIZES | {name: value for name, value in made.items() if type(value) is int}
    unclear = [*_unclear_sizes(chart, sizes)]
    if unclear:
        yield from unclear
        return
    for node in chart.nodes.values():
        yield from _node_problems(node, made, sizes)
    written = " ".join(node.label for node in chart.nodes.values())
    letters = {*made, *sizes, *re.findall(r"\w+", written), "a"}
    for arrow in chart.arrows:
        yield from _arrow_problems(arrow, made, sizes, letters)
    drawn = {shape[0] for _, label in chart.labels for shape in SHAPE.finditer(label)}
    for line, text in chart.spoken:
        for shape in SHAPE.finditer(text):
            if "," in shape[0] and shape[0] not in drawn:
                yield line, f"accDescr says {shape[0]}, which the diagram does not draw"


def _unclear_sizes(chart: Flowchart, sizes: Mapping[str, int]) -> Iterator[_Problem]:
    """Refuse a letter without a size, and two letters for one size."""
    first: dict[str, int] = {}
    for line, label in chart.labels:
        for shape in SHAPE.finditer(label):
            parts = shape["sizes"].split(", ")
            if any(part.isdigit() and part != "1" for part in parts):
                yield line, f"{shape[0]}: a size other than 1 is a letter"
            for letter in _LETTER.findall(shape["sizes"]):
                first.setdefault(letter, line)
    for letter, line in first.items():
        if letter not in sizes:
            yield line, f"{letter} is no size of the legend, and the pass sets none"
    known = sorted((sizes[letter], letter) for letter in first if letter in sizes)
    for (size, one), (other_size, other) in pairwise(known):
        if size == other_size:
            line = max(first[one], first[other])
            yield line, f"{one} and {other} are both {size}: the sizes must differ"


def _node_problems(
    node: Node, made: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[_Problem]:
    shapes = [*SHAPE.finditer(node.label)]
    if not shapes:
        return
    if node.name not in made:
        reason = f"draws {shapes[0][0]}, but its pass makes no {node.name}"
        yield node.line, f"node {node.name} {reason}"
        return
    value = made[node.name]
    groups = [value] if len(shapes) == 1 else [*value]
    if len(groups) != len(shapes):
        reason = f"draws {len(shapes)} shapes, but stands for {len(groups)} tensors"
        yield node.line, f"node {node.name} {reason}"
        return
    begin = 0
    for shape, group in zip(shapes, groups, strict=True):
        head = node.label[begin : shape.start()]
        begin = shape.end()
        wrong = _wrong_name(head, _names(group, made))
        if wrong:
            yield node.line, f"node {node.name} {wrong}"
        for tensor in _members(group):
            wrong = _wrong_shape(shape, tensor, sizes)
            if wrong:
                yield node.line, f"node {node.name} {wrong}"


def _arrow_problems(
    arrow: Arrow, made: Mapping[str, Any], sizes: Mapping[str, int], letters: set[str]
) -> Iterator[_Problem]:
    """Check a shape on an arrow, and that it names no letter of nothing."""
    where = f"the arrow from {arrow.start} to {arrow.end}"
    for shape in SHAPE.finditer(arrow.label):
        name = arrow.label[: shape.start()].strip(" :")
        if name not in made:
            yield arrow.line, f"{where} draws {shape[0]}, but its pass makes no {name}"
        elif wrong := _wrong_shape(shape, made[name], sizes):
            yield arrow.line, f"{where} {wrong}"
    for letter in re.findall(r"(?<![\w-])\w(?![\w-])", SHAPE.sub("", arrow.label)):
        if letter not in letters:
            yield arrow.line, f"{where} says {letter}, which its pass does not make"


def _members(group: Any) -> list[Any]:
    """Give the tensors that share one shape; a list of numbers is one thing."""
    return list(group) if isinstance(group, tuple) else [group]


def _wrong_shape(
    shape: re.Match[str], value: Any, sizes: Mapping[str, int]
) -> str | None:
    wanted = [_size(text, sizes) for text in shape["sizes"].split(", ")]
    seen = _shape(value)
    if seen == wanted:
        return None
    letters = {size: letter for letter, size in sizes.items()}
    read = ", ".join(letters.get(size, str(size)) for size in seen)
    return f"draws {shape[0]}, but the pass gives ({read}): {tuple(seen)}"


def _size(text: str, sizes: Mapping[str, int]) -> int:
    """Read one size, as ``3D`` or ``B * H`` or ``1``."""
    size = 1
    for part in re.findall(r"\d+(?=\D|$)|[A-Za-z]\w*", text):
        size *= int(part) if part.isdigit() else sizes[part]
    return size


def _shape(value: Any) -> list[int]:
    if isinstance(value, Tensor):
        return [*value.shape]
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0]
    return shape


def _names(group: Any, made: Mapping[str, Any]) -> set[str]:
    """Give the names that a tensor, or one of several, has in the code."""
    members = _members(group)
    ids = {id(value) for value in [group, *members]}
    names = {name for name, value in made.items() if id(value) in ids}
    for steps in made.values():
        if isinstance(steps, Steps):
            names.update(*(steps.names(tensor) for tensor in members))
    return names


def _wrong_name(head: str, names: set[str]) -> str | None:
    """Say so if a label names its tensor otherwise than the code.

    A name may be written in several words, as ``cross-attention``. Beside it other
    words may stand, but no letter that is not a name of this tensor.
    """
    words = [word.lower().replace("_", "") for word in re.findall(r"\w+", head)]
    called = {re.sub(r"\W|_", "", name.lower()) for name in names}
    named: set[int] = set()
    for first in range(len(words)):
        for end in range(first + 1, len(words) + 1):
            if "".join(words[first:end]) in called:
                named |= {*range(first, end)}
    letters = [
        word for i, word in enumerate(words) if len(word) == 1 and i not in named
    ]
    if not words or (named and not letters):
        return None
    said = letters[0] if letters else head.strip(" :,")
    return f"says {said!r}, but the tensor is called {', '.join(sorted(names))}"
