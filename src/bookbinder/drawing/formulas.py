"""Draw formulas while the page is built.

``pymdownx.arithmatex`` (generic) finds the formulas; this replaces them with KaTeX's
HTML, so that the reader's browser has nothing to compute.
"""

import html
import re
from xml.etree import ElementTree

from markdown.treeprocessors import Treeprocessor

from bookbinder.drawing import katex
from bookbinder.drawing.undrawn import undrawn

__all__ = ["FormulaTreeprocessor"]

_HEADING = re.compile(r"h[1-6]")
_TAG = re.compile(r"<[^>]*>")
# The visible part of KaTeX's output, and the places where it is split into pieces.
_SHOWN = '<span class="katex-html" aria-hidden="true">'
_CUT = '</span><span class="katex-base">'
_BREAK = '</span><wbr><span class="katex-base">'
_BEHIND_A_RELATION = '<span class="mspace" style="margin-right:0.2778em;"></span>'
_SHORT, _LONG = 20, 30  # letters: half a line on a phone, and nearly all of it
# The tags around a part of a formula, and the space between two formulas.
_STEP = re.compile(
    r"\\(?:begin|left)\b|\\(?:end|right)\b|\\qquad\b|\\.|[{}]", re.DOTALL
)
_INNER = {r"\begin": 1, r"\left": 1, "{": 1, r"\end": -1, r"\right": -1, "}": -1}
_APART = re.compile(
    r'<span class="mspace allowbreak"></span>((?:<span class="mspace"[^>]*></span>)*)'
    r'</span>(?=<span class="katex-base">)'
)


class FormulaTreeprocessor(Treeprocessor):
    """Replace the TeX in every arithmatex element."""

    def run(self, root: ElementTree.Element) -> None:
        """Draw every formula of a page, in its order."""
        headings = [el for el in root.iter() if _HEADING.fullmatch(str(el.tag))]
        in_headings = {el for heading in headings for el in heading.iter()}
        for element in root.iter():
            if element.get("class") == "arithmatex":
                drawn = _drawn(element, in_heading=element in in_headings)
                element.text = self.md.htmlStash.store(drawn)
                element.set("data-search-exclude", "")
                if element.tag == "span":
                    # Material's search leaves an element out up to the first end tag
                    # of the same name, and KaTeX is made of spans.
                    element.tag = "var"


def _drawn(element: ElementTree.Element, *, in_heading: bool) -> str:
    display = element.tag == "div"
    tex = (element.text or "")[2:-2].strip()
    # Only the block form has escaped entities.
    tex = html.unescape(tex) if display else tex
    try:
        if in_heading:
            reason = "the table of contents cannot show it: use words in a heading"
            raise katex.FormulaError(reason)
        drawn = katex.draw(_parted(tex) if display else tex, display=display)
    except katex.FormulaError as error:
        line = " ".join(tex.split())[:60]
        return undrawn(f"formula {line}: {error}", tex, inline=not display)
    return _apart(drawn) if display else _breakable(drawn)


def _parted(tex: str) -> str:
    """Let KaTeX split at wide spaces between formulas that are side by side."""
    depth = 0

    def part(found: re.Match[str]) -> str:
        nonlocal depth
        depth += _INNER.get(found[0], 0)
        side_by_side = depth == 0 and found[0] == r"\qquad"
        return r"\allowbreak\qquad" if side_by_side else found[0]

    return _STEP.sub(part, tex)


def _apart(drawn: str) -> str:
    """Replace the space between two formulas so that a line may break there."""
    words, mark, formula = drawn.partition(_SHOWN)
    words = words.replace("<mspace></mspace>", "").replace(r"\allowbreak", "")
    return words + mark + _APART.sub(r'</span><span class="apart">\1</span>', formula)


def _breakable(drawn: str) -> str:
    """Allow line breaks within a long formula.

    KaTeX splits a formula after each relation and each operator. A line may break after
    a relation, and after an operator only if there is no relation for long. A short
    formula is not broken.
    """
    words, mark, formula = drawn.partition(_SHOWN)
    if len(_TAG.sub("", formula)) <= _SHORT:
        return drawn
    runs: list[list[str]] = [[]]
    for piece in formula.split(_CUT):
        runs[-1].append(piece)
        if piece.endswith(_BEHIND_A_RELATION):
            runs.append([])
    lines = [
        (_BREAK if len(_TAG.sub("", _CUT.join(run))) > _LONG else _CUT).join(run)
        for run in runs
        if run
    ]
    return words + mark + _BREAK.join(lines)
