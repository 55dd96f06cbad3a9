"""A Markdown extension that draws formulas while the page is made.

``pymdownx.arithmatex`` (generic) finds the formulas; this puts what KaTeX makes of
them in their place, so that a reader's browser has nothing left to do.
"""

import html
import re
from collections import Counter
from difflib import get_close_matches
from pathlib import Path
from xml.etree import ElementTree

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.exceptions import BuildError

from bookbinder.drawing import katex
from bookbinder.drawing.undrawn import undrawn

_MACRO = re.compile(r"\\[A-Za-z]+")
_HEADING = re.compile(r"h[1-6]")
_TAG = re.compile(r"<[^>]*>")
# Of what KaTeX draws, that which is seen, and where it cuts that in pieces.
_SHOWN = '<span class="katex-html" aria-hidden="true">'
_CUT = '</span><span class="katex-base">'
_BREAK = '</span><wbr><span class="katex-base">'
_BEHIND_A_RELATION = '<span class="mspace" style="margin-right:0.2778em;"></span>'
_SHORT, _LONG = 20, 30  # letters: of a phone's line, half and nearly all


class FormulaTreeprocessor(Treeprocessor):
    """Replace the TeX in every arithmatex element."""

    def run(self, root: ElementTree.Element) -> None:
        """Draw every formula of a page, in its order."""
        headings = [el for el in root.iter() if _HEADING.fullmatch(str(el.tag))]
        in_headings = {id(el) for heading in headings for el in heading.iter()}
        for element in root.iter():
            if element.get("class") == "arithmatex":
                self._draw(element, in_heading=id(element) in in_headings)

    def _draw(self, element: ElementTree.Element, *, in_heading: bool) -> None:
        display = element.tag == "div"
        tex = (element.text or "")[2:-2].strip()
        if display:
            # The block form, and it alone, comes with its entities escaped.
            tex = html.unescape(tex)
        else:
            # Material's search leaves an element out up to the first end tag of the
            # same name, so this must not be a span: KaTeX is made of them.
            element.tag = "var"
        drawn = self._drawn(tex, display=display, in_heading=in_heading)
        element.set("data-search-exclude", "")
        element.text = self.md.htmlStash.store(drawn)

    def _drawn(self, tex: str, *, display: bool, in_heading: bool) -> str:
        if in_heading:
            reason = "the table of contents cannot show it: use words in a heading"
            return undrawn(f"formula {_short(tex)}: {reason}", tex, inline=True)
        try:
            drawn = katex.draw(tex, display=display)
            return drawn if display else breakable(drawn)
        except katex.FormulaError as error:
            message = f"formula {_short(tex)}: {error}{_meant(str(error))}"
            return undrawn(message, tex, inline=not display)
        except katex.WorkerError as error:
            raise BuildError(str(error)) from None


def breakable(drawn: str) -> str:
    """Let a line end within a long formula, where it may.

    KaTeX cuts a formula behind each relation and each operator. A line ends behind a
    relation; behind an operator only where there is none for long. A short formula
    stays in one piece.
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


def _meant(reason: str) -> str:
    """Give the macro of another formula that is nearly the one KaTeX does not know."""
    unknown = re.search(r"Undefined control sequence: (\\\w+)", reason)
    if not unknown:
        return ""
    pages = (file.read_text("utf-8") for file in Path("docs").rglob("*.md"))
    known = Counter(macro for page in pages for macro in _MACRO.findall(page))
    # What stands but once may be the slip itself.
    often = [each for each, n in known.items() if n > 1 and each != unknown[1]]
    near = get_close_matches(unknown[1], often, n=1)
    return f": {near[0]}?" if near else ": KaTeX has no such macro"


def _short(tex: str) -> str:
    """Give a formula in one line, cut where it is long."""
    line = " ".join(tex.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


class FormulaExtension(Extension):
    """Draw formulas by KaTeX."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register behind the inline patterns, which find formulas in a line."""
        md.treeprocessors.register(FormulaTreeprocessor(md), "book-formulas", 15)


def makeExtension(**kwargs: object) -> FormulaExtension:
    """Give the extension to Markdown, which looks for this name."""
    return FormulaExtension(**kwargs)
