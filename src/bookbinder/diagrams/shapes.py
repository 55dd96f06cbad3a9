"""Compare the shapes that a diagram draws with those of the tensors of a pass."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from bookbinder.diagrams.labels import Diagram, Label
from bookbinder.diagrams.sizes import SIZES

__all__ = ["shape_problems"]

_LETTER = re.compile(r"[A-Za-z]\w*")


def shape_problems(
    diagram: Diagram, made: Mapping[str, Any]
) -> Iterator[tuple[int, str]]:
    """Return the shapes that differ from those of the program, each with its line.

    Args:
        diagram: The diagram.
        made: The variables of its program, by name.
    """
    sizes = SIZES | {name: value for name, value in made.items() if type(value) is int}
    unclear = [*_unclear_sizes(diagram, sizes)]
    if unclear:
        yield from unclear
        return
    for label in diagram.labels:
        for reason in _label_problems(label, made, sizes):
            yield label.line, reason
    drawn = {shape for label in diagram.labels for shape in label.shapes}
    for label in diagram.spoken:
        for shape in label.shapes:
            if shape not in drawn:
                yield label.line, f"{shape} is read out, but the diagram draws none"


def _unclear_sizes(
    diagram: Diagram, sizes: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    """Yield letters without a size, sizes without a letter, and equal sizes."""
    first: dict[str, int] = {}
    for label in diagram.labels:
        for shape in label.shapes:
            if any(part.isdigit() and part != "1" for part in _parts(shape)):
                yield label.line, f"{shape}: a size other than 1 is a letter"
            for letter in _LETTER.findall(shape):
                first.setdefault(letter, label.line)
    for letter, line in first.items():
        if letter not in sizes:
            yield line, f"{letter} is no size of the legend, and the pass sets none"
    known = sorted((sizes[letter], letter) for letter in first if letter in sizes)
    for (size, one), (other_size, other) in pairwise(known):
        if size == other_size:
            line = max(first[one], first[other])
            yield line, f"{one} and {other} are both {size}: the sizes must differ"


def _label_problems(
    label: Label, made: Mapping[str, Any], sizes: Mapping[str, int]
) -> Iterator[str]:
    draws = f"{label.name} draws"
    if label.name not in made:
        yield f"{draws} {label.shapes[0]}, but the pass makes no {label.name}"
        return
    value = made[label.name]
    tensors = [value] if len(label.shapes) == 1 else [*value]
    if len(tensors) != len(label.shapes):
        yield f"{draws} {len(label.shapes)} shapes, but is {len(tensors)} tensors"
        return
    letters = {size: letter for letter, size in sizes.items()}
    for shape, tensor in zip(label.shapes, tensors, strict=True):
        wanted = tuple(_size(part, sizes) for part in _parts(shape))
        # Several tensors may share one shape.
        for each in tensor if isinstance(tensor, tuple) else [tensor]:
            seen = _shape(each)
            if seen != wanted:
                read = ", ".join(letters.get(size, str(size)) for size in seen)
                yield f"{draws} {shape}, but the pass gives ({read}): {seen}"


def _parts(shape: str) -> list[str]:
    return shape.strip("(,)").split(", ")


def _size(part: str, sizes: Mapping[str, int]) -> int:
    """Return the value of one size, such as ``3D`` or ``B * H`` or ``1``."""
    size = 1
    for factor in re.findall(r"\d+|[A-Za-z]\w*", part):
        size *= int(factor) if factor.isdigit() else sizes[factor]
    return size


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, or of nested lists of numbers."""
    if isinstance(value, list) and value:
        return (len(value), *_shape(value[0]))
    return tuple(getattr(value, "shape", ()))
