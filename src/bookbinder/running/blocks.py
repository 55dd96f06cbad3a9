"""Run a chain of blocks as a reader would, and report errors with the page's line.

The code of a chain keeps its line numbers of the page, so that the line of an error
*is* the line of the page. Between two blocks the program prints a separator, to tell
their outputs apart.
"""

import ast
import traceback
from difflib import get_close_matches

from bookbinder.page import CONTINUES, Chain, Page, Problem, split_lines
from bookbinder.running.lines import is_of_a_page

__all__ = ["SEPARATOR", "explain", "program", "run_chain"]

SEPARATOR = "\x1d"
_MARK = f"__import__('sys').stdout.write({SEPARATOR!r})"


def program(chain: Chain) -> str:
    """Return the code of a chain, on the same lines as on the page."""
    lines = [""] * chain.blocks[-1].end
    for block in chain.blocks:
        lines[block.line : block.end - 1] = split_lines(block.code)
        lines[block.end - 1] = _MARK
    return "\n".join(lines) + "\n"


def run_chain(chain: Chain) -> str:
    """Run a chain, and return everything it printed, including separators."""
    from pytest_codeblocks.main import stdout_io

    with stdout_io() as printed:
        exec(program(chain), {"__MODULE__": "__main__"})
    return printed.getvalue()


def explain(page: Page, chain: Chain, error: BaseException) -> Problem:
    """Return the line of the page at which an error was raised, and its message."""
    what = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, Exception):
        # SystemExit, or pytest's skip: the block would seem to have run.
        what = f"{what}: a block must not end the run"
    elif isinstance(error, NameError) and error.name:
        what = f"{what}: {_remedy(page, chain, error.name)}"
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_of_a_page(frame)
    ]
    return Problem(page.path, lines[-1] if lines else chain.line, what)


def _remedy(page: Page, chain: Chain, name: str) -> str:
    """Return advice for an undefined name: an earlier block with it, or a typo."""
    own = {each for block in chain.blocks for each in _defined(block.code)}
    for block in reversed(page.blocks):
        if block.line < chain.line and name in _defined(block.code) and name not in own:
            return (
                f"the block of line {block.line} has it: continue it with {CONTINUES}"
                " before each block between, or make it here"
            )
    near = get_close_matches(name, own, n=1)
    return f"{near[0]}?" if near else "make it in this block, or import it"


def _defined(code: str) -> set[str]:
    """Return the names that a piece of code defines, at any level."""
    made: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                made.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.alias(name=name, asname=other):
                made.add(other or name.partition(".")[0])
            case _:
                pass
    return made
