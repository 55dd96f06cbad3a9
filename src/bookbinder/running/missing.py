"""What to do about a name that a block asks for and does not have."""

import ast
import re
import sys
from difflib import get_close_matches

from bookbinder.reading.pages import CONTINUES, Chain, Page

__all__ = ["remedy"]


def remedy(page: Page, chain: Chain, error: BaseException) -> str:
    """Give what helps against an error, where that can be told; else nothing."""
    match error:
        case NameError(name=str(name)):
            return _for_a_name(page, chain, name)
        case ImportError():
            return _for_an_import(str(error))
        case _:
            return ""


def _for_a_name(page: Page, chain: Chain, name: str) -> str:
    """Look for a block above that makes the name; and for one that is nearly it."""
    own = {each for block in chain.blocks for each in _made(block.code)}
    above = [block for block in page.blocks if block.line < chain.line]
    for block in reversed(above):
        if name in _made(block.code) and name not in own:
            return (
                f"the block of line {block.line} has it: go on from it with {CONTINUES}"
                " before each block between, or make it here"
            )
    near = get_close_matches(name, own, n=1)
    return f"{near[0]}?" if near else "make it in this block, or import it"


def _for_an_import(message: str) -> str:
    """Give the public name that is nearly the one a module does not have."""
    found = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", message)
    if not found:
        return ""
    known = getattr(sys.modules.get(found[2]), "__all__", [])
    near = get_close_matches(found[1], known, n=1)
    return f"{near[0]}?" if near else ""


def _made(code: str) -> set[str]:
    """Give the names that a piece of code makes, at its outermost level or below."""
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
