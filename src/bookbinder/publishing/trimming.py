"""Leave out of a built site what no reader's browser has any use for.

The blanks that templates leave between tags, the headings of tables that head nothing,
and, of the stylesheets of others, the rules for what no page of the book has. Together
they are a tenth to a fifth of what a reader's first page weighs.
"""

import json
import re
import subprocess
from pathlib import Path

from bookbinder.drawing.katex import ROOT, node
from bookbinder.writing import write_whole

__all__ = ["trim", "trimmed"]

# The corner of a table that says nothing is a cell: nothing is read out as a heading.
_CORNER = re.compile(r"<th\b([^>]*)>\s*</th>")
# Many blanks are shown as one, but where they count.
_BLANKS = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)|\s{2,}", re.DOTALL)
_PURGECSS = ROOT / "node_modules" / "purgecss" / "bin" / "purgecss.js"
# What the book writes for itself it uses.
_OTHERS = ("assets/*.css", "assets/stylesheets/*.css", "assets/vendor/*/*.css")
_USERS = ("**/*.html", "assets/javascripts/bundle*.js", "assets/js/**/*.js")


def trim(site: Path) -> None:
    """Make the pages and stylesheets of a built site as light as they can be."""
    for file in site.rglob("*.html"):
        write_whole(file, trimmed(file.read_text("utf-8")))
    command = [str(node()), str(_PURGECSS), "--css", *_OTHERS, "--content", *_USERS]
    # The rule for a change of palette is tried on every stroke of every formula.
    command += ["--blocklist", "data-md-color-switching"]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=True)
    for style in json.loads(done.stdout):
        write_whole(site / style["file"], style["css"])


def trimmed(page: str) -> str:
    """Return the HTML of a page without empty headings and needless blanks."""
    return _BLANKS.sub(
        lambda found: found[1] or ("\n" if "\n" in found[0] else " "),
        _CORNER.sub(r"<td\1></td>", page),
    )
