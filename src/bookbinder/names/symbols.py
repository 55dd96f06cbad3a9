"""Hold the symbols of formulas against Notation, and against what a page defines.

A letter, alone or with its index, means what the tables of Notation say; or the page
says what it means, by naming it alone in a formula, or left of an equals sign. A sum
names what it runs over. Signs and functions are those that Notation lists. Words
within a formula are words of the page.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bookbinder.reading.pages import Page, Problem, load_page
from bookbinder.reading.prose import Formula, formulas, prose_lines

__all__ = ["symbol_problems", "symbols_of"]

# How a formula is laid out; these mean nothing.
_LAYOUT = {
    *(
        "left",
        "right",
        "bigl",
        "bigr",
        "Big",
        "Bigl",
        "Bigr",
        "quad",
        "qquad",
        "frac",
        "tfrac",
    ),
    *("textstyle", "ldots", "cdots", "dots", "vdots", "bar"),
}
_TAKING = {"frac", "tfrac", "sqrt", "bar", "text", "operatorname", "begin", "end"}
_WORDS = re.compile(r"\\text\{(?P<words>[^{}]*)\}")
# Neither is the space below a row, nor the d of an integral.
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{\w+\}|\\\\\[[\d.]+em\]|\\, d(?=[a-z]\b)")
_NAMED = re.compile(r"\\operatorname\{(?P<name>[^{}]*)\}")
# A letter, with what tells it from others of its kind: d_k, W^Q.
_SYMBOL = re.compile(
    r"(?P<base>\\[A-Za-z]+|[A-Za-z])(?:_(?:\{(?P<several>[^{}]*)\}|(?P<one>\w)))?"
    r"(?:\^\{?(?P<upper>[A-Z])(?=[}\\_\W]|$))?"
)
_RUNNING = {"\\sum", "\\prod", "\\max", "\\min", "\\int", "\\log"}
_OVER = re.compile(r"\\(?:sum|prod|max|min)_(?:\{(?P<several>[^{}]*)\}|(?P<one>\w))")
# Where a new side of an equation, or a new equation, begins.
_SIDE = re.compile(r"\\qquad|\\quad|\\\\|&|,\s|:\s|=")
# Capitals in parentheses are a shape, small letters an arrow.
_PAIR = re.compile(r"\([a-z](?:, [a-z])+\)")
# What Notation counts in shapes, and numbers.
_SIZE = r"\d+|\b[BHTSDL]\b(?!_)|d_k|d_v|\w_\\text\{(?:ff|kv)\}"
_ALONE = re.compile(
    r"\s*(?P<symbol>(?:\\operatorname\{\w+\}|\\[A-Za-z]+|[A-Za-z])"
    r"(?:[_^](?:\\text\{\w+\}|\{[^{}]*\}|\w))*)'?\s*"
    r"(?:\((?P<of>[a-z](?:_\w)?(?:(?:, | \\ldots )[a-z](?:_\w)?)*)\)"
    r"|\[(?P<at>[^]]*)\])?\s*"
)


def symbol_problems(page: Page, root: Path) -> list[Problem]:
    """Find symbols that neither Notation nor the page gives a meaning."""
    every = [*formulas(page)]
    defined = _defined(every)
    known = _notation(root) | defined
    over = {symbol for formula in every for symbol in _bound(formula.tex)}
    counting = {one for one in over | defined if re.fullmatch("[a-z]", one)}
    counters = "".join({*"bhtsij", *counting})
    said = _said(page) | known
    problems: list[Problem] = []
    for formula in every:
        wrong = [
            *_unknown(formula.tex, known, said, counters),
            *_unsaid(formula.tex, said),
            *_stray(formula.tex),
            *_mistaken(formula.tex),
        ]
        problems += [
            Problem(page.path, formula.line, f"${_short(formula.tex)}$: {reason}")
            for reason in wrong
        ]
    return problems


def _bound(tex: str) -> frozenset[str]:
    """Give what sums and the like run over."""
    return frozenset(
        symbol
        for over in _OVER.finditer(tex)
        for symbol in symbols_of(re.split("=|<", over["several"] or over["one"])[0])
    )


def _unknown(
    tex: str, known: frozenset[str], said: frozenset[str], counters: str
) -> Iterator[str]:
    bound = _bound(tex)
    for symbol in sorted(symbols_of(tex) - known - bound):
        base, _, index = symbol.partition("_")
        if len(symbol) > 1 and symbol.lower() in said:
            continue  # A function called by a word of the page.
        # Beside p_v there may be p_u, and rows of X beside X, if u means something; a
        # word in an index belongs to its letter.
        family = base in known or any(_counts(one, base, counters) for one in known)
        # No other capital counts.
        family = family and not re.fullmatch("[^BHTSDL\\W\\da-z]", index)
        if not index or '"' in index or not family or symbols_of(index) - known - bound:
            name = symbol.replace('"', "")
            yield f"{name} is not in Notation, and the page does not define it"


def _counts(symbol: str, base: str, counters: str) -> bool:
    """Tell whether a symbol is this letter with an index that counts, as in q_t."""
    pattern = rf"{re.escape(base)}_[{counters}\d,+\- ]+"
    return re.fullmatch(pattern, symbol) is not None


def _mistaken(tex: str) -> Iterator[str]:
    """Find signs of multiplication that stand for another kind of product."""
    bare = _WORDS.sub("", tex)
    if r"\times" in bare and re.search(r"[-=+/<>]|\\(?:cdot|odot|[lg]e\b)", bare):
        yield r"\times is 'by' in a shape, and no product"
    for sides in re.finditer(rf"({_SIZE})\s*\\odot|\\odot\s*({_SIZE})", bare):
        yield rf"\odot takes rows and matrices, and {sides[1] or sides[2]} is a number"


def _stray(tex: str) -> Iterator[str]:
    """Find a group in braces behind something that takes none."""
    for group in re.finditer(r"(\\[A-Za-z]+|[A-Za-z\d]|\s)\{", tex):
        if group[1].strip() and group[1].removeprefix("\\") not in _TAKING:
            yield f"{group[1]} takes nothing in braces"


def _unsaid(tex: str, said: frozenset[str]) -> Iterator[str]:
    for words in _WORDS.finditer(re.sub(r"_\\text\{\w+\}", " ", tex)):
        for word in re.findall(r"[A-Za-z]+", words["words"]):
            if word.lower() not in said:
                yield f"the page never says {word!r} outside formulas"


def symbols_of(tex: str) -> frozenset[str]:
    r"""Give the symbols of a formula, an index with its letter: ``d_k``, ``\tau``."""
    tex = _ENVIRONMENT.sub(" ", tex)
    found = {named["name"] for named in _NAMED.finditer(tex)}
    tex = _NAMED.sub(" ", tex)
    # A word in an index tells a letter from others; elsewhere it is a word.
    tex = re.sub(r"_\\text\{(\w+)\}", r'_{"\1}', tex)
    for symbol in _SYMBOL.finditer(_WORDS.sub(" ", tex)):
        base, index = symbol["base"], symbol["several"] or symbol["one"]
        if base in _RUNNING:
            found |= {base, *symbols_of(f"{index or ''} {symbol['upper'] or ''}")}
        elif symbol["upper"]:
            found |= {f"{base}^{symbol['upper']}", *symbols_of(index or "")}
        elif index:
            found.add(f"{base}_{index}")
        elif base.removeprefix("\\") not in _LAYOUT:
            found |= {base, *symbols_of(index or "")}
    return frozenset(found)


def _defined(every: list[Formula]) -> frozenset[str]:
    """Give what stands alone in a formula, or left of an equals sign, and is used."""
    uses = Counter(one for formula in every for one in symbols_of(formula.tex))
    found: set[str] = set()
    for formula in every:
        tex = formula.tex.strip().rstrip(".,;")
        for side in {tex, *_SIDE.split(tex)}:
            if _PAIR.fullmatch(side):
                found |= symbols_of(side)
            elif alone := _ALONE.fullmatch(side):
                named = symbols_of(alone["symbol"])
                of = symbols_of(alone["of"] or "") | symbols_of(alone["at"] or "")
                # What is named by itself and never used may be a slip of the pen.
                found |= {one for one in named | of if side != tex or uses[one] > 1}
    return frozenset(found)


def _said(page: Page) -> frozenset[str]:
    text = " ".join(line for _, line in prose_lines(page))
    text = re.sub(r"\$[^$]*\$", " ", text)
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z]+", text))


@cache
def _notation(root: Path) -> frozenset[str]:
    """Give every symbol that a table of Notation explains."""
    page = load_page(root / "docs/notation.md", root)
    rows = {number for number, line in prose_lines(page) if line.startswith("|")}
    found: set[str] = set()
    for formula in formulas(page):
        if formula.line in rows:
            found |= symbols_of(formula.tex)
    return frozenset(found)


def _short(tex: str) -> str:
    line = " ".join(tex.split())
    return line if len(line) <= 60 else f"{line[:59]}…"
