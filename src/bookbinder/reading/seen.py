"""What the functions of a page had under their names when they first ran: its shapes.

Also the sizes that their letters stand for, as far as a run says so: a variable that is
called as the letter is, or an attribute of a module, as ``model.config.num_heads``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

__all__ = ["Seen", "Shape", "note_frame"]

Shape = tuple[int, ...]

# Under what names code has the letters of Notation.
_LETTERS = {
    **{"num_heads": "H", "num_kv_heads": "H_kv", "head_dim": "d_k", "d_model": "D"},
    **{"num_layers": "L", "vocab_size": "V", "d_ff": "d_ff"},
}
_MOST = 8  # things that a function returns, or a list has, that are looked at


@dataclass
class Seen:
    """A function of a page, or the lines of a chain, when they ended.

    ``line`` is its first line on the page, 1 for the lines of a chain; ``values`` are
    the shapes of arguments and variables, ``returned`` those of what came back, and
    ``sizes`` what letters stand for.
    """

    line: int
    values: dict[str, list[Shape]] = field(default_factory=dict[str, list[Shape]])
    returned: list[Shape] = field(default_factory=list[Shape])
    sizes: dict[str, int] = field(default_factory=dict[str, int])


def note_frame(frame: FrameType, returned: Any) -> Seen:
    """Keep the shapes of a frame that ends."""
    own = dict(frame.f_locals)
    values = {name: [*_shapes(value)] for name, value in own.items()}
    every = [*own.values()]
    if frame.f_locals is not frame.f_globals:
        every += [value for value in frame.f_globals.values() if _is_module(value)]
    return Seen(
        frame.f_code.co_firstlineno,
        {name: shapes for name, shapes in values.items() if shapes},
        [*_shapes(returned)],
        {**_sizes_of(every), **{n: v for n, v in own.items() if type(v) is int}},
    )


def _shapes(value: Any, depth: int = 0) -> Iterator[Shape]:
    """Give the shape of a tensor, or those of the tensors in a list."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        yield tuple(map(int, shape))
    elif isinstance(value, (list, tuple)) and depth < 2:
        for each in value[:_MOST]:
            yield from _shapes(each, depth + 1)


def _is_module(value: Any) -> bool:
    return hasattr(value, "named_modules") and not isinstance(value, type)


def _sizes_of(values: list[Any]) -> Mapping[str, int]:
    """Give the sizes of modules, but for letters that two of them have otherwise."""
    found: dict[str, set[int]] = {}
    for value in filter(_is_module, values):
        for place in (value, getattr(value, "config", None)):
            for name, letter in _LETTERS.items():
                size = getattr(place, name, None)
                if type(size) is int:
                    found.setdefault(letter, set()).add(size)
    return {letter: sizes.pop() for letter, sizes in found.items() if len(sizes) == 1}
