"""Trace a pass, and record every tensor under its name in the code."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor

from bookbinder.places import PACKAGES, real_name

_SOURCE = Path(__file__).resolve().parents[1]
_OURS = tuple(str(_SOURCE / name) for name in PACKAGES)
# Written in Python inside torch, with steps that have names of their own.
_IN_TORCH = ("multi_head_attention_forward", "_in_projection_packed")
# The name of the code that comes from a page.
CODE_OF_PAGE = "<page>"


class Trace:
    """The tensors of a pass, by their names in the library's code.

    ``steps.q`` is the last value of the local variable ``q`` in the outermost function
    that has one; ``steps.values("x", "GPT.forward")`` returns every value that it had
    there, in order; ``steps.result`` is the result.
    """

    def __init__(self) -> None:
        self.result: Any = None
        # Each value that a variable has had: how far inside, where, its name, and it.
        self._values: list[tuple[int, FrameType, str, Any]] = []

    def values(self, name: str, function: str = "") -> list[Any]:
        """Return all values of a local variable in order.

        Args:
            name: The variable.
            function: The function, such as ``DecoderBlock.forward``; any by default.
        """
        values = [
            value
            for _, frame, known, value in self._values
            if known == name and frame.f_code.co_qualname.endswith(function)
        ]
        return list({id(value): value for value in values}.values())

    def __getattr__(self, name: str) -> Any:
        """Return the last value of a local variable."""
        steps = [step for step in self._values if step[2] == name]
        if not steps:
            raise AttributeError(f"no step of the pass is called {name}")
        _, outermost, *_ = min(steps, key=lambda step: step[0])
        return [value for _, frame, _, value in steps if frame is outermost][-1]


def traced(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Trace:
    """Run a model or a function, and record every tensor with a name in it."""
    steps = Trace()
    latest: dict[tuple[FrameType, str], object] = {}

    def note(frame: FrameType, event: str, argument: object) -> Any:
        for name, value in frame.f_locals.items():
            # Plain Python computes with lists of numbers.
            has_shape = isinstance(value, Tensor) or type(value) is list
            if has_shape and latest.get((frame, name)) is not value:
                latest[frame, name] = value
                steps._values.append((_depth(frame), frame, name, value))
        return note

    def begin(frame: FrameType, event: str, argument: object) -> Any:
        file = real_name(frame.f_code.co_filename)
        ours = file == CODE_OF_PAGE or file.startswith(_OURS)
        return note if ours or frame.f_code.co_name in _IN_TORCH else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        steps.result = run(*args, **kwargs)
    finally:
        sys.settrace(before)
    return steps


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame:
        depth, frame = depth + 1, frame.f_back
    return depth
