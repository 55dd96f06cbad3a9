"""Record which lines of a page, of the files that it lists, and of scripts have run."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit
from urllib.request import url2pathname

from bookbinder.places import real_name

# The name under which pytest-codeblocks runs a block.
PAGE = "<string>"

Lines = dict[tuple[str, int], int]
"""For each line that ran, as (file, line), the line of the page that first ran it.

A file has its real name, ``real_name``.
"""

Idle = dict[str, set[int]]
"""For each script that was loaded, the places of the characters that never ran."""


@contextmanager
def recorded_lines(files: Collection[str]) -> Generator[Lines]:
    """Record every line of a page and of source files that runs.

    Code is no longer watched once all of it has run, and other files are not watched at
    all, so that training is not slowed down.

    Args:
        files: The source files, by any of their names.
    """
    watched = {real_name(file) for file in files}
    lines: Lines = {}

    def is_watched(frame: FrameType) -> bool:
        return real_name(frame.f_code.co_filename) in watched or is_of_a_page(frame)

    def record(frame: FrameType, line: int) -> None:
        place = real_name(frame.f_code.co_filename), line
        if place not in lines:
            lines[place] = _line_of_page(frame)

    with _watching(is_watched, record):
        yield lines


if sys.version_info >= (3, 12):

    @contextmanager
    def _watching(
        is_watched: Callable[[FrameType], bool],
        record: Callable[[FrameType, int], None],
    ) -> Generator[None]:
        """Record lines as they run for the first time, which costs next to nothing."""
        monitoring = sys.monitoring
        events, off = monitoring.events, monitoring.DISABLE
        # Debuggers, profilers and measurements of coverage have numbers of their own.
        tool = 4 if monitoring.get_tool(3) else 3
        codes: list[CodeType] = []  # by identity: equal code may stand on other lines

        def start(code: CodeType, _: int) -> Any:
            if is_watched(sys._getframe(1)):
                codes.append(code)
                monitoring.set_local_events(tool, code, events.LINE)
            return off

        def run_line(_: CodeType, line: int) -> Any:
            record(sys._getframe(1), line)
            return off

        monitoring.use_tool_id(tool, __name__)
        monitoring.register_callback(tool, events.PY_START, start)
        monitoring.register_callback(tool, events.LINE, run_line)
        monitoring.set_events(tool, events.PY_START)
        monitoring.restart_events()
        try:
            yield
        finally:
            monitoring.set_events(tool, events.NO_EVENTS)
            for code in codes:
                monitoring.set_local_events(tool, code, events.NO_EVENTS)
            for event in (events.PY_START, events.LINE):
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

else:

    @contextmanager
    def _watching(
        is_watched: Callable[[FrameType], bool],
        record: Callable[[FrameType, int], None],
    ) -> Generator[None]:
        """Record lines as they run, which makes every call of a function slower."""
        # Codes by their identity, since equal code may stand on other lines: those of
        # which all has run or nothing is watched, and the lines that the others have
        # left.
        done: set[int] = set()
        left: dict[int, set[int]] = {}
        kept: list[CodeType] = []  # so that no other code gets such an identity

        def trace_lines(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                record(frame, frame.f_lineno)
                missing = left[id(frame.f_code)]
                missing.discard(frame.f_lineno)
                if not missing:
                    done.add(id(frame.f_code))
                    frame.f_trace_lines = False
            return trace_lines

        # Python calls it for each call of a function, so what is frequent comes first.
        def trace_calls(frame: FrameType, _event: str, _: object) -> Any:
            if id(frame.f_code) in done:
                return None
            code = frame.f_code
            if id(code) not in left:
                kept.append(code)
                if not is_watched(frame):
                    done.add(id(code))
                    return None
                runs = {line for *_, line in code.co_lines() if line}
                # A function's first line does not run, unless it is on it alone.
                left[id(code)] = runs - {code.co_firstlineno} or runs
            return trace_lines

        before = sys.gettrace()
        sys.settrace(trace_calls)
        try:
            yield
        finally:
            sys.settrace(before)


def is_of_a_page(frame: FrameType) -> bool:
    """Return whether code is a block's own; dataclasses are named <string> too."""
    return frame.f_code.co_filename == PAGE and "__MODULE__" in frame.f_globals


def _line_of_page(frame: FrameType | None) -> int:
    """Return the line of the page that called a frame, directly or indirectly."""
    while frame:
        if frame.f_code.co_name == "<module>" and is_of_a_page(frame):
            return frame.f_lineno
        frame = frame.f_back
    return 0


@contextmanager
def recorded_scripts(idle: Idle) -> Generator[None]:
    """Record what does not run in any Node that starts and ends within the block.

    If an environment variable names a folder, Node writes a count there for every
    function and branch of the scripts that it ran.

    Args:
        idle: The places that no run has reached so far; updated at the end.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, NODE_V8_COVERAGE=folder),
    ):
        try:
            yield
        finally:
            for report in sorted(Path(folder).glob("*.json")):
                for script in json.loads(report.read_text("utf-8"))["result"]:
                    url = urlsplit(script["url"])
                    if url.scheme == "file":
                        file = real_name(url2pathname(url.path))
                        places = idle_places(script["functions"])
                        idle[file] = idle.get(file, places) & places


def idle_places(functions: list[dict[str, Any]]) -> set[int]:
    """Return the characters that never ran, from V8's counts.

    Its ranges are nested, and the innermost one counts.
    """
    ranges = [counted for function in functions for counted in function["ranges"]]
    idle: set[int] = set()
    for counted in sorted(ranges, key=lambda r: (r["startOffset"], -r["endOffset"])):
        places = range(counted["startOffset"], counted["endOffset"])
        if counted["count"]:
            idle.difference_update(places)
        else:
            idle.update(places)
    return idle
