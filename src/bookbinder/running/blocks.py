"""Turn a chain of blocks into a program, and explain its errors by the page's lines.

The code of a chain keeps its line numbers of the page, so that the line of an error
*is* the line of the page. On the line of its closing fence, each block hands over what
it has printed.
"""

import io
import sys
import traceback

from bookbinder.page import CONTINUES, Chain, Page, Problem, split_lines
from bookbinder.running.recording import is_of_a_page

_END = f"__import__({__name__!r}, fromlist=['']).end_block()"

printed: list[str] = []
"""What each block of the running chain has printed so far."""


def program(chain: Chain) -> str:
    """Return the code of a chain, on the same lines as on the page."""
    lines = [""] * chain.blocks[-1].end
    for block in chain.blocks:
        lines[block.line : block.end - 1] = split_lines(block.code)
        lines[block.end - 1] = _END
    return "\n".join(lines) + "\n"


def end_block() -> None:
    """Take what a block has printed out of the captured output."""
    captured = sys.stdout
    assert isinstance(captured, io.StringIO), "a block must not replace sys.stdout"
    printed.append(captured.getvalue())
    captured.seek(0)
    captured.truncate()


def explain(page: Page, chain: Chain, error: BaseException) -> Problem:
    """Return the line of the page at which an error was raised, and its message."""
    # pytest-codeblocks raises an error of its own behind that of the block.
    while not _lines(error) and error.__context__:
        error = error.__context__
    what = "".join(traceback.format_exception_only(error)).strip()
    line = [chain.line, *_lines(error)][-1]
    if isinstance(error, SyntaxError) and error.filename == "<string>":
        line, what = error.lineno or line, f"SyntaxError: {error.msg}"
    elif not isinstance(error, Exception):
        # SystemExit, or pytest's skip: the block would seem to have run.
        what = f"{what}: a block must not end the run"
    elif isinstance(error, NameError):
        what = f"{what}: make it here, or continue the run that makes it, {CONTINUES}"
    return Problem(page.path, line, what)


def _lines(error: BaseException) -> list[int]:
    frames = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in frames if is_of_a_page(frame)]
