"""Record which lines of a page, of the files that it lists, and of scripts have run."""

import ast
import json
import os
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
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

# For each file, by line: whether a statement there has nothing to report, because it
# has done so, or because nobody asks.
_ran: dict[str, list[bool]] = {}
# Where the statements of a file report to; empty while nothing is recorded.
_recording: dict[str, Lines] = {}


@contextmanager
def recorded_lines(files: Collection[str]) -> Generator[Lines]:
    """Record every statement of a page and of source files that runs.

    ``run`` has to run the page, and the files have to be imported after
    ``change_imports(watch_sections)``.

    Args:
        files: The source files, by any of their names.
    """
    lines = Lines()
    _recording.update(dict.fromkeys([PAGE, *map(real_name, files)], lines))
    try:
        for file in _recording:
            _set_all(_ran.get(file, []), False)
        yield lines
    finally:
        for file in _recording:
            _set_all(_ran.get(file, []), True)
        _recording.clear()


def run(program: str, names: dict[str, Any]) -> None:
    """Run the program of a page as ``exec`` does, with its statements watched."""
    tree = ast.parse(program, PAGE)
    names |= _watch(tree, PAGE)
    exec(compile(tree, PAGE, "exec", dont_inherit=True), names)


def watch_sections(tree: ast.Module, source: str, file: str) -> dict[str, Any]:
    """Watch a module's statements, if it has sections that pages can list.

    It is a change for ``change_imports``.
    """
    return _watch(tree, file) if "# --8<-- [start:" in source else {}


def _watch(tree: ast.Module, file: str) -> dict[str, Any]:
    """Have each statement report when it runs for the first time.

    It asks a list whether it has to, which takes some nanoseconds. A trace function
    would slow down all of Python, and not only what is watched.
    """
    file = real_name(file)
    last = tree.body[-1].end_lineno or 0 if tree.body else 0
    # A module may be imported again while functions of the first import live on.
    ran = _ran.setdefault(file, [])
    ran += [file not in _recording] * (last + 1 - len(ran))
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):  # a lambda's body is an expression
                statements[:] = [*_with_questions(statements)]

    def report(line: int) -> None:
        from torch.compiler import is_compiling  # slow, and not every page needs it

        if not is_compiling():  # or it would become a step of the compiled program
            ran[line] = True
            _recording[file][file, line] = _line_of_page(sys._getframe(1))

    return {"__ran__": ran, "__report__": report}


def _with_questions(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Put before each statement another one, which asks whether it has to report."""
    for statement in statements:
        match statement:
            case ast.Expr(ast.Constant()) | ast.ImportFrom(module="__future__"):
                pass  # these have to stay the first
            case _:
                line = ast.Constant(statement.lineno)
                ran = ast.Subscript(_name("__ran__"), line, ast.Load())
                report = ast.Call(_name("__report__"), [line], [])
                question = ast.Expr(ast.BoolOp(ast.Or(), [ran, report]))
                ast.copy_location(question, statement)
                yield ast.fix_missing_locations(question)
        yield statement


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set_all(values: list[bool], value: bool) -> None:
    values[:] = [value] * len(values)


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
