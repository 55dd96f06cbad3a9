"""Record which lines of a page's code, and of the files that it lists, have run."""

import sys
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bookbinder.places import real_name

__all__ = ["PAGE", "Lines", "recorded_lines"]

# The name under which pytest-codeblocks runs a block.
PAGE = "<string>"

Lines = dict[tuple[str, int], int]
"""For each line that ran, as (file, line), the line of the page that first ran it.

A file has its real name, ``real_name``.
"""


@contextmanager
def recorded_lines(files: Collection[str]) -> Generator[Lines]:
    """Record every line of a page and of source files that runs.

    Code is no longer watched once all of it has run, and other files are not watched at
    all, so that training is not slowed down.

    Args:
        files: The source files, by any of their names.
    """
    wanted_files = {real_name(file) for file in files}
    lines: Lines = {}
    missing: dict[int, set[int]] = {}
    kept: list[Any] = []  # Ids are unique only among living objects.

    def trace_lines(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            place = real_name(frame.f_code.co_filename), frame.f_lineno
            if place not in lines:
                lines[place] = _asking_line(frame)
            left = missing[id(frame.f_code)]
            left.discard(frame.f_lineno)
            frame.f_trace_lines = bool(left)
        return trace_lines

    def trace_calls(frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        left = missing.get(id(code))
        if left is None:
            name = real_name(code.co_filename)
            wanted = name in wanted_files or is_of_a_page(frame)
            left = {line for *_, line in code.co_lines() if line} if wanted else set()
            # A function's first line does not run, unless the function is on it alone.
            left = left - {code.co_firstlineno} or left
            missing[id(code)] = left
            kept.append(code)
        if left:
            return trace_lines
        frame.f_trace_lines = False  # A frame may be traced again, line by line.
        return None

    before = sys.gettrace()
    threading.settrace(trace_calls)
    sys.settrace(trace_calls)
    try:
        yield lines
    finally:
        sys.settrace(before)
        threading.settrace(before)


def is_of_a_page(frame: FrameType) -> bool:
    """Return whether code is a block's own; dataclasses are named <string> too."""
    return frame.f_code.co_filename == PAGE and "__MODULE__" in frame.f_globals


def _asking_line(frame: FrameType) -> int:
    """Return the line of the page that called a frame, directly or indirectly.

    It is 0 in another thread, whose frames do not lead back to the page.
    """
    asking: FrameType | None = frame
    while asking is not None:
        if asking.f_code.co_name == "<module>" and is_of_a_page(asking):
            return asking.f_lineno
        asking = asking.f_back
    return 0
