"""Remove from a built site what no browser needs.

That is white space between tags, empty table headings, comments and white space in
scripts and stylesheets, and rules of other projects' stylesheets that match nothing in
the book. Together they are a tenth to a fifth of the size of a reader's first page.
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

# The corner of a table that says nothing is a cell: nothing is read out as a heading.
_CORNER = re.compile(r"<th\b([^>]*)>\s*</th>")
# Many blanks are shown as one, but where they count.
_BLANKS = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)|\s{2,}", re.DOTALL)
_PURGECSS = ROOT / "node_modules" / "purgecss" / "bin" / "purgecss.js"
# Where a blank means nothing: behind such a sign, or before one. A script keeps its
# other line ends, which may end a statement.
_SCRIPT = JavascriptLexer(), "{([,;:?!=<>&|+-*/.", "{([}]),;:?!=<>&|+-*/."
_STYLE = CssLexer(), "{};,:>(", "{};,>)"
_APART = re.compile(r"\+\+|--|/[/*]")
# A selector without a class makes the browser check the whole page again at each change
# of a class. These select the same elements by what they are.
_CHEAPER = {
    "table:not([class])": ".table table",
    ".tabbed-labels>:": ".tabbed-labels>label:",
}
# The rule for a change of palette is tried on every stroke of every formula, and one
# for any id on each element that is given one; no page has what these are for.
_NEEDLESS = ("data-md-color-switching", "id")
# Of all that the lexers call comments: one of them is !important.
_LEFT_OUT = {Comment, Comment.Single, Comment.Multiline}
# What the book writes for itself it uses.
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
    """Return the HTML of a page without empty headings and needless white space."""
    return _BLANKS.sub(
        lambda found: found[1] or ("\n" if "\n" in found[0] else " "),
        _CORNER.sub(r"<td\1></td>", page),
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
            light = light.removesuffix(";")  # a sign between rules, and none follows
        if light and blank:
            # What was counted up may stand at the end of a statement.
            apart = _APART.fullmatch(light[-1] + value[0]) or light[-2:] in ("++", "--")
            if apart or not (light[-1] in behind or value[0] in before):
                light += "\n" if "\n" in blank else " "
        light, blank = light + value, ""
    return light
