"""Leave out of a built site what no reader's browser has any use for.

Comments that only the tests read; headings of tables that head nothing; the blanks that
templates leave between tags; and, of stylesheets that come from others, the rules and
variables for what no page of the book has.
"""

import json
import re
import subprocess
from pathlib import Path

from bookbinder.drawing.katex import node
from bookbinder.writing import write_whole

__all__ = ["TrimmingError", "trim", "trimmed"]

_CUTTER = Path(__file__).with_name("trimming.mjs")
_COMMENT = re.compile(r"<!--(?!pytest-codeblocks:cont-->).*?-->\n?", re.DOTALL)
# The corner of a table that says nothing is a cell: nothing is read out as a heading.
_CORNER = re.compile(r"<th\b([^>]*)>\s*</th>")
# Many blanks are shown as one, but where they count.
_BLANKS = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)|\s{2,}", re.DOTALL)
# Stylesheets of others: what the book writes for itself it uses.
_OTHERS = ("assets/*.css", "assets/stylesheets/*.css", "assets/vendor/*/*.css")


class TrimmingError(RuntimeError):
    """The stylesheets could not be trimmed; the message says why."""


def trim(site: Path) -> None:
    """Make the pages and stylesheets of a built site as light as they can be.

    Args:
        site: The built site.

    Raises:
        TrimmingError: If a stylesheet cannot be read.
    """
    for file in sorted(site.rglob("*.html")):
        text = file.read_text("utf-8")
        light = trimmed(text)
        if light != text:
            write_whole(file, light)
    styles = sorted(file for others in _OTHERS for file in site.glob(others))
    if styles:
        _cut(site, styles)


def trimmed(page: str) -> str:
    """Give a page without comments for the tests, empty headings and needless blanks.

    Args:
        page: Its HTML.
    """
    return _BLANKS.sub(_fewer, _CORNER.sub(r"<td\1></td>", _COMMENT.sub("", page)))


def _fewer(found: re.Match[str]) -> str:
    return found[1] or ("\n" if "\n" in found[0] else " ")


def _cut(site: Path, styles: list[Path]) -> None:
    """Have PurgeCSS take out what no page, script or other stylesheet has a use for."""
    names = [file.relative_to(site).as_posix() for file in styles]
    command = [str(node()), str(_CUTTER), *names]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "Error: " in line]
        raise TrimmingError(f"PurgeCSS: {(errors or ['no reason given'])[0]}")
    for name, css in json.loads(done.stdout).items():
        write_whole(site / name, css)
