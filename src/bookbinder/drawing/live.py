"""An interactive part of a page: a script of the library, and a stylesheet.

A ``live`` fence is a few lines of YAML. Only its page loads both, and the script only
when the reader scrolls near it. Until it runs, and if scripts are off, the page shows a
sentence instead.
"""

import html
import shutil
from pathlib import Path, PurePosixPath

import yaml

from bookbinder.drawing.undrawn import undrawn
from transformer_book import JAVASCRIPT, MODELS

# name: the element for the script; label: for screen readers; script and style: files
# of the book; without: the sentence shown if the script does not run.
_ENTRIES = ("name", "label", "script", "style", "without")


def format_live(source: str, *_: object, **_options: object) -> str:
    """Turn a live fence into an element, a script and a stylesheet, for superfences."""
    try:
        entries = yaml.safe_load(source)
        texts = [html.escape(entries[name]) for name in _ENTRIES]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError):
        return undrawn(f"live part is not {': …, '.join(_ENTRIES)}: …", source)
    name, label, script, style, without = texts
    # A page becomes a folder of the site, so its files are one level up. The home page
    # does not, so its files are next to it.
    up = "../" if script.startswith("../") else ""
    start = PurePosixPath(script).with_name("start.js")
    return (
        f'<div><link rel="stylesheet" href="{up}{style}">'
        f'<section class="live" data-live="{name}" data-script="{up}{script}" '
        f'data-search-exclude aria-label="{label}"><p class="without">{without}</p>'
        f'</section><script type="module" src="{up}{start}"></script></div>'
    )


def add_live_files(site: Path) -> None:
    """Copy the scripts into a built site, and next to them the models that they run."""
    shutil.copytree(JAVASCRIPT, site / "assets/js/gpt", dirs_exist_ok=True)
    shutil.copytree(MODELS, site / "assets/models", dirs_exist_ok=True)
