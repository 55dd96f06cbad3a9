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

_TAG = re.compile(r"<[^>]*>")
# The visible part of KaTeX's output, and the places where it is split into pieces.
_SHOWN = '<span class="katex-html" aria-hidden="true">'
_CUT = '</span><span class="katex-base">'
_BREAK = '</span><wbr><span class="katex-base">'
_BEHIND_A_RELATION = '<span class="mspace" style="margin-right:0.2778em;"></span>'
_SHORT, _LONG = 20, 30  # letters: half a line on a phone, and nearly all of it
# The tags around a part of a formula, and the space between two formulas.
_STEP = re.compile(
    r"(?P<begin>\\(?:begin|left)\b|{)|(?P<end>\\(?:end|right)\b|})|\\qquad\b|\\.",
    re.DOTALL,
)
_APART = re.compile(
    r'<span class="mspace allowbreak"></span>((?:<span class="mspace"[^>]*></span>)*)'
    r'</span>(?=<span class="katex-base">)'
)


class FormulaTreeprocessor(Treeprocessor):
    """Replace the TeX in every arithmatex element."""

    def run(self, root: ElementTree.Element) -> None:
        """Draw every formula of a page, in its order."""
        headings = [element for n in range(1, 7) for element in root.iter(f"h{n}")]
        in_headings = {inside for heading in headings for inside in heading.iter()}
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
    words, mark, formula = drawn.partition(_SHOWN)
    if not display:
        return words + mark + _breakable(formula)
    # Between two formulas that are side by side, a line may break.
    words = words.replace("<mspace></mspace>", "").replace(r"\allowbreak", "")
    return words + mark + _APART.sub(r'</span><span class="apart">\1</span>', formula)


def _parted(tex: str) -> str:
    """Let KaTeX split at wide spaces between formulas that are side by side."""
    depth = 0

    def part(step: re.Match[str]) -> str:
        nonlocal depth
        depth += bool(step["begin"]) - bool(step["end"])
        side_by_side = depth == 0 and step[0] == r"\qquad"
        return r"\allowbreak\qquad" if side_by_side else step[0]

    return _STEP.sub(part, tex)


def _breakable(formula: str) -> str:
    """Allow line breaks within a long formula.

    KaTeX splits a formula after each relation and each operator. A line may break after
    a relation, and after an operator only if there is no relation for long. A short
    formula is not broken.
    """
    if len(_TAG.sub("", formula)) <= _SHORT:
        return formula
    runs = formula.replace(_BEHIND_A_RELATION + _CUT, _BEHIND_A_RELATION + _BREAK)
    return _BREAK.join(
        run.replace(_CUT, _BREAK) if len(_TAG.sub("", run)) > _LONG else run
        for run in runs.split(_BREAK)
    )
