"""Run a chain of blocks as a reader would, and say where on the page it went wrong.

The code of a chain is laid out on the lines it has on the page, so that the line of
an error *is* the line of the page. Between two blocks the program prints a separator,
so that what each block printed can be told apart.
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
    """Return the blocks of a chain, laid out on the lines they have on the page."""
    lines = [""] * chain.blocks[-1].end
    for block in chain.blocks:
        lines[block.line : block.end - 1] = split_lines(block.code)
        lines[block.end - 1] = _MARK
    return "\n".join(lines) + "\n"


def run_chain(chain: Chain) -> str:
    """Run a chain and return all it printed, separators included."""
    from pytest_codeblocks.main import stdout_io

    with stdout_io() as printed:
        exec(program(chain), {"__MODULE__": "__main__"})
    return printed.getvalue()


def explain(page: Page, chain: Chain, error: BaseException) -> Problem:
    """Say at which line of the page an error arose, and which."""
    what = "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, Exception):
        # SystemExit, or what pytest raises to skip: the block would end as if it ran.
        what = f"{what}: a block may not leave the run"
    elif isinstance(error, NameError) and error.name:
        what = f"{what}: {_remedy(page, chain, error.name)}"
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_of_a_page(frame)
    ]
    return Problem(page.path, lines[-1] if lines else chain.line, what)


def _remedy(page: Page, chain: Chain, name: str) -> str:
    """Look for a block above that makes a name, and for a name that is nearly it."""
    own = {each for block in chain.blocks for each in _made(block.code)}
    for block in reversed(page.blocks):
        if block.line < chain.line and name in _made(block.code) and name not in own:
            return (
                f"the block of line {block.line} has it: go on from it with {CONTINUES}"
                " before each block between, or make it here"
            )
    near = get_close_matches(name, own, n=1)
    return f"{near[0]}?" if near else "make it in this block, or import it"


def _made(code: str) -> set[str]:
    """Return the names that a piece of code makes, at its outermost level or below."""
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
