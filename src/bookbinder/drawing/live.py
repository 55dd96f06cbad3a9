"""A part of a page that acts: a script of this repository, and its stylesheet.

A ``live`` fence is a few lines of YAML. That page alone asks for both; until the
script runs, and where scripts are off, a sentence stands in its place.
"""

import html
from pathlib import Path
from typing import Any

import yaml

from bookbinder.drawing.undrawn import undrawn

__all__ = ["format_live"]

# By name the script finds its place; label is read out by screen readers; script and
# style are files of the book; without is said where the script does not run.
_ENTRIES = ("name", "label", "script", "style", "without")


def format_live(source: str, *_: Any, **_options: Any) -> str:
    """Turn a live fence into a place, a script and a stylesheet, for superfences."""
    try:
        given = yaml.safe_load(source)
        texts = [html.escape(given[entry]) for entry in _ENTRIES]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return undrawn(f"live part is not {': …, '.join(_ENTRIES)}: …", source)
    name, label, script, style, without = texts
    for path, folder in ((script, "assets/js/"), (style, "assets/css/")):
        inside = path.replace("../", "")
        if not inside.startswith(folder) or not Path("docs", inside).is_file():
            return undrawn(f"live part: docs/{folder} has no file {path}", source)
    # A page is a folder in the site: its files lie one step further up.
    return (
        f'<div><link rel="stylesheet" href="../{style}">'
        f'<section class="live" data-live="{name}" data-search-exclude '
        f'aria-label="{label}"><p class="without">{without}</p></section>'
        f'<script type="module" src="../{script}"></script></div>'
    )
