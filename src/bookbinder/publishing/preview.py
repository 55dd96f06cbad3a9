"""Build again only what has changed while the book is served, as a hook of MkDocs.

A dirty build leaves out the pages that are older than their HTML, nine tenths of its
time. MkDocs looks at a page's own file alone; this looks at everything that is shown on
it, too: listings, figures, diagrams, docstrings, the navigation and the theme. HTML is
as old as the start of its build, so the next build sees what changed during one. What
pages say of each other, such as tips of the glossary and the list of questions, is
brought up to date when the server starts.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

from bookbinder.drawing.diagrams import drawing
from bookbinder.drawing.undrawn import previewing

__all__ = ["on_files", "on_post_build", "shown_files"]

_LISTING = re.compile(r'^--8<-- "(?P<path>[^":]+)', re.MULTILINE)
_FIGURE = re.compile(r"\]\((?:\.\./)*(?P<path>assets/figures/[^)\s]+)")
_MODULE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)
_DIAGRAM = re.compile(r"^```mermaid\n(?P<source>.*?)^```", re.MULTILINE | re.DOTALL)

_began: list[float] = []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Remove the HTML of each page that shows a file newer than it."""
    if previewing():
        _began[:] = [time.time()]
        root = Path(config.config_file_path).parent
        everywhere = [root / "mkdocs.yml", *(root / "theme").rglob("*.html")]
        for page in files.documentation_pages():
            made = Path(page.abs_dest_path)
            if page.abs_src_path and made.is_file():
                text = Path(page.abs_src_path).read_text("utf-8", errors="replace")
                if _is_older(made, [*everywhere, *shown_files(text, root)]):
                    made.unlink()
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Date the HTML of this build back to its start."""
    for began in _began:
        for made in Path(config.site_dir).rglob("*.html"):
            if made.stat().st_mtime > began:
                os.utime(made, (began, began))


def shown_files(text: str, root: Path) -> Iterator[Path]:
    """Return the files that are shown on a page, beside its own."""
    for found in _LISTING.finditer(text):
        yield root / found["path"]
    for found in _FIGURE.finditer(text):
        yield root / "docs" / found["path"]
    for found in _MODULE.finditer(text):
        module = (root / "src").joinpath(*found["name"].split("."))
        yield from module.rglob("*.py")
        yield module.with_suffix(".py")
    for found in _DIAGRAM.finditer(text):
        yield root / drawing(found["source"])


def _is_older(made: Path, shown: list[Path]) -> bool:
    when = made.stat().st_mtime
    return any(file.stat().st_mtime > when for file in shown if file.is_file())
