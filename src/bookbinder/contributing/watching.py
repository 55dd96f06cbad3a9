"""Check a page each time it is saved, and begin anew when the code behind it changes.

What the pages run is imported when the watch begins. When a module, a figure's data or
a setting changes, the process starts itself again; when only pages change, the runs of
the chains that did not change are used again.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from bookbinder.contributing.checking import Checker

__all__ = ["stamps", "watch"]

_PAUSE = 0.3
_SETTINGS = ("mkdocs.yml", "pyproject.toml", "package.json", "Makefile")
_CODE = ("src", "benchmarks", "docs/assets/js", "docs/assets/models")

Stamps = dict[Path, tuple[int, int]]


def stamps(files: Iterator[Path]) -> Stamps:
    """Give for each file that is there when it was written, and its size."""
    found: Stamps = {}
    for file in files:
        try:
            state = file.stat()
        except FileNotFoundError:
            continue
        found[file] = state.st_mtime_ns, state.st_size
    return found


def watch(
    file: Path,
    checker: Checker,
    told: TextIO,
    *,
    again: Callable[[], None],
    pause: float = _PAUSE,
) -> None:
    """Check a page now, and whenever it or another page is saved, until interrupted.

    Args:
        file: The page.
        checker: Who checks it.
        told: Where to say what is wrong.
        again: What starts the process again; called when the code has changed.
        pause: The seconds between two looks.
    """
    code = stamps(_code(checker.root))
    before: Stamps = {}
    while stamps(_code(checker.root)) == code:
        now = stamps(_pages(checker.root))
        if now != before:
            before = now
            _check(file, checker, told)
        time.sleep(pause)
    again()


def restart() -> None:
    """Start this very process again."""
    os.execv(sys.executable, [*sys.orig_argv])


def _check(file: Path, checker: Checker, told: TextIO) -> None:
    began = time.monotonic()
    problems = checker.check(file) if file.is_file() else []
    seconds = time.monotonic() - began
    clock = time.strftime("%H:%M:%S")
    what = "nothing is wrong" if not problems else f"{len(problems)} to mend"
    for problem in problems:
        print(problem, file=told)
    print(f"{clock} {file.name}: {what} ({seconds:.1f} s)", file=told, flush=True)


def _code(root: Path) -> Iterator[Path]:
    yield from (root / name for name in _SETTINGS)
    for folder in _CODE:
        yield from _kept(root / folder)


def _pages(root: Path) -> Iterator[Path]:
    yield from root.glob("*.md")
    yield from (root / "docs").rglob("*.md")
    yield from (root / "docs/assets/diagrams").glob("*.svg")
    yield from (root / "docs/assets/figures").rglob("*.svg")


def _kept(folder: Path) -> Iterator[Path]:
    return (
        file
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
