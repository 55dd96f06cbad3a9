"""Run a chain of blocks as a reader would, and say where on the page it went wrong.

The code of a chain is laid out on the lines it has on the page, so that the line of
an error *is* the line of the page. Between two blocks the program prints a separator,
so that what each block printed can be told apart.
"""

import contextlib
import os
import random
import sys
import tempfile
import threading
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from bookbinder.reading.bindings import note_code
from bookbinder.reading.pages import Chain, Page, Problem, split_lines
from bookbinder.reading.seen import Noting, Remark, Seen, note_frame
from bookbinder.running.halves import Part, offsets
from bookbinder.running.missing import remedy
from bookbinder.running.staying import nothing_left_behind, staying

SEPARATOR = "\x1d"
_MARK = f"__import__('sys').stdout.write({SEPARATOR!r})"
# Tensors on pages are small: more threads only wait for each other on a busy machine.
THREADS: int = 1
# Outputs are written with one seed and checked with another: what draws without a seed
# of its own differs.
WRITTEN, CHECKED = 0, 1
# How often is kept what a function of a page had when it ended; of others, never.
_ENDS = 3
_NAMELESS = ("<l", "<g", "<s", "<d")


def program(chain: Chain) -> str:
    """Lay the blocks of a chain out on the lines they have on the page."""
    lines = [""] * chain.blocks[-1].end
    for block in chain.blocks:
        lines[block.line : block.end - 1] = split_lines(block.code)
        lines[block.end - 1] = _MARK + note_code(block.bindings)
    return "\n".join(lines) + "\n"


def expected(chain: Chain) -> str:
    """Give what the program of a chain must print, to the letter."""
    outputs = [block.output.text if block.output else "" for block in chain.blocks]
    return "".join(output + SEPARATOR for output in outputs)


def compare(page: Page, chain: Chain, printed: str) -> Problem | None:
    """Find the first line on which the page shows what the run did not print."""
    for block, got in zip(chain.blocks, printed.split(SEPARATOR), strict=False):
        if not block.output:
            if got:
                first = split_lines(got)[0]
                reason = f"prints {first!r}, but the page shows no output: make outputs"
                return Problem(page.path, block.line, reason)
            continue
        shown, ran = split_lines(block.output.text), split_lines(got)
        for offset in range(max(len(shown), len(ran))):
            page_line = shown[offset] if offset < len(shown) else None
            run_line = ran[offset] if offset < len(ran) else None
            if page_line != run_line:
                reason = (
                    f"the page shows {_quote(page_line)}, the run gives "
                    f"{_quote(run_line)}: make outputs"
                )
                return Problem(page.path, block.output.line + 1 + offset, reason)
        if got and not got.endswith("\n"):
            reason = "the output does not end with a line break"
            return Problem(page.path, block.line, reason)
    return None


def _quote(line: str | None) -> str:
    return "nothing" if line is None else repr(line)


def explain(page: Page, chain: Chain, error: BaseException) -> Problem:
    """Say at which line of the page an error arose, and which."""
    what = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, Exception):
        # SystemExit, or what pytest raises to skip: the block would end as if it ran.
        what = f"{what}: a block may not leave the run"
    elif helps := remedy(page, chain, error):
        what = f"{what}: {helps}"
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_of_a_page(frame)
    ]
    return Problem(page.path, lines[-1] if lines else chain.line, what)


def _is_of_a_page(frame: FrameType) -> bool:
    """Tell a block's own code from what else is named <string>, as dataclasses are."""
    return frame.f_code.co_filename == "<string>" and "__MODULE__" in frame.f_globals


def _asking_line(frame: FrameType) -> int | None:
    """Find the line of the page from which a frame was called, in whatever steps."""
    asking: FrameType | None = frame
    while asking is not None:
        if asking.f_code.co_name == "<module>" and _is_of_a_page(asking):
            return asking.f_lineno
        asking = asking.f_back
    return None


def run_chain(chain: Chain) -> str:
    """Run a chain and give all it printed, separators included."""
    from pytest_codeblocks.main import stdout_io

    with stdout_io() as printed:
        exec(program(chain), {"__MODULE__": "__main__"})
    return printed.getvalue()


@contextmanager
def fresh_state(seed: int = CHECKED) -> Generator[Path]:
    """Give a block the state of a newly started interpreter, and an empty folder.

    What a block may change for the next one is reset before and put back after:
    seeds, print options, default dtype and device, threads, autograd, the
    environment, the import path, the working folder. What a block has replaced in a
    module is put back and refused. Shape checks are off, so that a block meets the
    errors that a reader would meet.

    Raises:
        LeftBehindError: If a block has replaced a function or a class.
    """
    import jaxtyping
    import torch

    environment, path, here = dict(os.environ), [*sys.path], Path.cwd()
    checked = jaxtyping.config.jaxtyping_disable
    with tempfile.TemporaryDirectory() as folder:
        _reset_torch(torch, seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy:
            numpy.random.seed(seed)
        matplotlib = sys.modules.get("matplotlib")
        if matplotlib:
            matplotlib.rc_file_defaults()
        jaxtyping.config.update("jaxtyping_disable", True)
        os.chdir(folder)
        try:
            with staying(), nothing_left_behind():
                yield Path(folder)
        finally:
            os.chdir(here)
            os.environ.clear()
            os.environ.update(environment)
            sys.path[:] = path
            jaxtyping.config.update("jaxtyping_disable", checked)
            _reset_torch(torch, seed)


def _reset_torch(torch: Any, seed: int) -> None:
    torch.manual_seed(seed)
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(True)
    # To say so anew imports a compiler, four seconds.
    if torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


@dataclass(slots=True)
class _Watched:
    """A piece of code, kept so that its id stays its own, and what has not run of it.

    A piece of which everything has run is left alone.
    """

    code: CodeType
    lines: set[int]
    halves: dict[int, list[Part]]
    ends: int = 0
    noting: Noting | None = None


@contextmanager
def recorded_lines(
    folder: Path,
    asked: dict[Part, str] | None = None,
    first: dict[tuple[str, int], int] | None = None,
    seen: list[Seen] | None = None,
    awaited: Sequence[Remark] = (),
) -> Generator[set[tuple[str, int]]]:
    """Collect every line that runs in the source files of a folder, and of pages.

    A page's own lines are those of the file ``<string>``. Parts of them that are asked
    for are those of ``<string>:`` and the column where they begin. For each line that
    runs, ``first`` gets the line of the page that had it run for the first time, and
    ``seen`` the shapes that each function of the page had, by its first line, and what
    there was after the lines with a comment that is awaited.
    """
    executed: set[tuple[str, int]] = set()
    # By id: to look a piece of code up by itself is to hash all of it, each time.
    watched: dict[int, _Watched] = {}

    def trace_lines(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            found = watched[id(frame.f_code)]
            ran = found.halves.get(frame.f_lasti, ())
            for part in ran:
                executed.add((f"{frame.f_code.co_filename}:{part[1]}", part[0]))
            if ran:
                # It takes one instruction of a part; the others may never have a turn.
                found.halves = _without(ran, found.halves)
            frame.f_trace_opcodes = bool(found.halves)
        elif event == "line":
            place = (frame.f_code.co_filename, frame.f_lineno)
            if first is not None and place not in executed:
                line = _asking_line(frame)
                if line is not None:
                    first.setdefault(place, line)
            executed.add(place)
            found = watched[id(frame.f_code)]
            found.lines.discard(frame.f_lineno)
            if found.noting and not found.noting.step(frame, frame.f_lineno):
                found.noting = None
            frame.f_trace_lines = bool(found.lines or found.noting)
        elif event == "return" and seen is not None:
            found = watched[id(frame.f_code)]
            if found.noting:
                found.noting.step(frame)
            # What raises an error ends with nothing, and so do many that only print.
            if found.ends > 0 and (
                argument is not None or found.code.co_name == "<module>"
            ):
                found.ends -= 1
                seen.append(note_frame(frame, argument))
        return trace_lines

    def trace_calls(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        found = watched.get(id(code))
        if found is None:
            from_folder = Path(code.co_filename).is_relative_to(folder)
            wanted = from_folder or _is_of_a_page(frame)
            lines = {line for *_, line in code.co_lines() if line} if wanted else set()
            page = wanted and not from_folder
            # Where a function begins nothing runs, unless all of it is on that line.
            lines = lines - {code.co_firstlineno} or lines
            halves = offsets(code, asked or {}) if page else {}
            ends = _ENDS if page and code.co_name[:2] not in _NAMELESS else 0
            found = watched[id(code)] = _Watched(code, lines, halves, ends)
            if ends and awaited and seen is not None:
                found.noting = Noting(code, awaited, seen)
        if found.halves:
            frame.f_trace_opcodes = True
            return trace_lines
        if found.lines or found.noting:
            return trace_lines
        # Each line of a loop would be reported each time.
        frame.f_trace_lines = False
        return trace_lines if found.ends and seen is not None else None

    before = sys.gettrace()
    threading.settrace(trace_calls)
    sys.settrace(trace_calls)
    try:
        yield executed
    finally:
        sys.settrace(before)
        threading.settrace(before)


def _without(
    ran: Sequence[Part], halves: dict[int, list[Part]]
) -> dict[int, list[Part]]:
    left = {
        at: [part for part in those if part not in ran] for at, those in halves.items()
    }
    return {at: those for at, those in left.items() if those}


def drawings(folder: Path) -> dict[str, str]:
    """Give the pictures that a chain left in its folder, by name."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.svg")):
        with contextlib.suppress(UnicodeDecodeError):
            found[file.name] = file.read_text(encoding="utf-8")
    return found
