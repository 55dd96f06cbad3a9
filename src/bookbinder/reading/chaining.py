"""Where a chain of blocks could be cut, since what follows uses nothing from above.

A block that goes on from another says so to its reader: it takes the other to run. If
neither it nor what goes on from it uses anything that was made above, this is not so.
"""

import dis
from types import CodeType

from bookbinder.reading.pages import Page
from bookbinder.reading.parts import Block, Chain, Problem

__all__ = ["chain_problems"]


def chain_problems(page: Page) -> list[Problem]:
    """Find blocks that are said to go on from others, and use nothing of them."""
    reason = "cont, but nothing from here on uses what is made above: take it out"
    cuts = map(_needless_continuation, page.chains)
    return [Problem(page.path, block.line, reason) for block in cuts if block]


def _needless_continuation(chain: Chain) -> Block | None:
    """Give the first block that could begin a chain of its own, if there is one."""
    try:
        programs = [_programs(block) for block in chain.blocks]
    except SyntaxError:
        return None  # That is reported as what it is.
    for cut in range(1, len(programs)):
        above, below = set[str](), set[str]()
        for number, (code, *_) in enumerate(programs):
            if number < cut:
                above |= _stored(code)
        for code, *notes in programs[cut:]:
            own = _stored(code)
            needed = _needed(code).union(*(_inside(note) - own for note in notes))
            if needed & above - below:
                break
            below |= own
        else:
            return chain.blocks[cut]
    return None


def _programs(block: Block) -> list[CodeType]:
    """Give the program of a block, and those of the comments that are bound to it."""
    notes = [each.why for each in block.bindings if each.kind in ("holds", "where")]
    return [
        compile(block.code, "<block>", "exec"),
        *(compile(note, "<note>", "eval") for note in notes),
    ]


def _stored(code: CodeType) -> set[str]:
    return {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("STORE_NAME", "STORE_GLOBAL")
    }


def _needed(code: CodeType) -> set[str]:
    """Give the names that a program reads and has not made itself before.

    A function may be called later, so what the program makes anywhere is its own.
    """
    needed, own = set[str](), set[str]()
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_NAME":
            needed |= {str(step.argval)} - own
        elif step.opname == "STORE_NAME":
            own.add(str(step.argval))
        elif isinstance(step.argval, CodeType):
            needed |= _inside(step.argval) - _stored(code)
    return needed


def _inside(code: CodeType) -> set[str]:
    """Give the names that a function or an expression reads from around it."""
    needed = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_NAME", "LOAD_GLOBAL")
    }
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            needed |= _inside(inner)
    return needed - _stored(code)
