"""Remove from a built site what no browser needs.

That is white space between tags, empty table headings, elements around code in the
color of all code, comments and white space in scripts and stylesheets, and rules of
other projects' stylesheets that match nothing in the book.
"""

import json
import re
import subprocess
from pathlib import Path

from pygments.lexer import Lexer
from pygments.lexers.css import CssLexer
from pygments.lexers.javascript import JavascriptLexer
from pygments.token import Comment, Whitespace

from bookbinder.drawing.katex import ROOT, node
from bookbinder.writing import write_whole

__all__ = ["trim", "trimmed", "without_blanks"]

# An empty table corner becomes a cell, so that it is not read aloud as a heading.
_CORNER = re.compile(r"<th\b([^>]*)>\s*</th>")
# Names, punctuation, operators and spaces have the color of all code. They are a third
# of the elements of a chapter.
_PLAIN = re.compile(r'<span class="(?:n|p|o|w|kc)">([^<]*)</span>')
# Browsers show white space as one space, except in these elements.
_BLANKS = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)|\s{2,}", re.DOTALL)
_PURGECSS = ROOT / "node_modules" / "purgecss" / "bin" / "purgecss.js"
# Characters after or before which white space has no meaning. A script keeps its other
# line breaks, which may end a statement.
_SCRIPT = JavascriptLexer(), "{([,;:?!=<>&|+-*/.", "{([}]),;:?!=<>&|+-*/."
_STYLE = CssLexer(), "{};,:>(", "{};,>)"
_APART = re.compile(r"\+\+|--|/[/*]")
# A selector without a class makes the browser check the whole page again at each change
# of a class. These select the same elements by what they are.
_CHEAPER = {
    "table:not([class])": ".table table",
    ".tabbed-labels>:": ".tabbed-labels>label:",
}
# Rules that browsers would check on every element, such as every stroke of a formula,
# but that match nothing in the book.
_NEEDLESS = ("data-md-color-switching", "id")
# Not all that the lexers call comments: !important is one of them.
_LEFT_OUT = {Comment, Comment.Single, Comment.Multiline}
# The book uses everything in its own stylesheets.
_OTHERS = ("assets/*.css", "assets/stylesheets/*.css", "assets/vendor/*/*.css")
_USERS = ("**/*.html", "assets/javascripts/bundle*.js", "assets/js/**/*.js")


def trim(site: Path) -> None:
    """Make the pages and stylesheets of a built site as small as possible."""
    for file in site.rglob("*.html"):
        write_whole(file, trimmed(file.read_text("utf-8")))
    for pattern, (lexer, behind, before) in {
        "assets/js/**/*.js": _SCRIPT,
        "assets/css/*.css": _STYLE,
    }.items():
        for file in site.glob(pattern):
            text = file.read_text("utf-8")
            write_whole(file, without_blanks(text, lexer, behind, before))
    command = [str(node()), str(_PURGECSS), "--css", *_OTHERS, "--content", *_USERS]
    command += ["--blocklist", *_NEEDLESS]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=True)
    for style in json.loads(done.stdout):
        css = style["css"]
        for costly, cheap in _CHEAPER.items():
            css = css.replace(costly, cheap)
        write_whole(site / style["file"], css)


def trimmed(page: str) -> str:
    """Return the HTML of a page without needless elements and white space."""
    return _BLANKS.sub(
        lambda found: found[1] or ("\n" if "\n" in found[0] else " "),
        _PLAIN.sub(r"\1", _CORNER.sub(r"<td\1></td>", page)),
    )


def without_blanks(text: str, lexer: Lexer, behind: str, before: str) -> str:
    """Return a script or a stylesheet without comments and needless white space.

    Args:
        text: The whole file.
        lexer: Finds white space outside strings and patterns.
        behind: Characters after which white space has no meaning.
        before: Characters before which it has no meaning.
    """
    light, blank = "", ""
    for kind, value in lexer.get_tokens(text):
        if kind in _LEFT_OUT or kind in Whitespace or not value:
            blank += value
            continue
        if value == "}" and isinstance(lexer, CssLexer):
            light = light.removesuffix(";")  # separates rules; none follows
        if light and blank:
            # An increment may end a statement.
            apart = _APART.fullmatch(light[-1] + value[0]) or light[-2:] in ("++", "--")
            if apart or not (light[-1] in behind or value[0] in before):
                light += "\n" if "\n" in blank else " "
        light, blank = light + value, ""
    return light
