"""A part of a page that acts: a script of this repository, and its stylesheet.

A ``live`` fence is a few lines of YAML. That page alone asks for both; until the
script runs, and where scripts are off, a sentence stands in its place.
"""

import html
from pathlib import Path
from typing import Any

import yaml
from markdown import Markdown

from bookbinder.drawing.undrawn import undrawn

ENTRIES = {
    "name": "by which the script finds its place",
    "label": "which screen readers read out",
    "script": "its address, from the page's file, under assets/js/",
    "style": "its stylesheet, under assets/css/",
    "without": "what is said where it does not run",
}


def format_live(
    source: str,
    language: str,
    class_name: str,
    options: dict[str, Any],
    md: Markdown,
    **kwargs: Any,
) -> str:
    """Turn a live fence into a place, a script and a stylesheet, for superfences."""
    problem = live_problem(source)
    if problem:
        return undrawn(f"live part {problem}", source)
    entries = {
        name: html.escape(str(value), quote=True)
        for name, value in yaml.safe_load(source).items()
    }
    # A page is a folder in the site: its files lie one step further up.
    return (
        f'<div><link rel="stylesheet" href="../{entries["style"]}">'
        f'<section class="live" data-live="{entries["name"]}" data-search-exclude '
        f'aria-label="{entries["label"]}">'
        f'<p class="without">{entries["without"]}</p></section>'
        f'<script type="module" src="../{entries["script"]}"></script></div>'
    )


def live_problem(source: str) -> str | None:
    """Say what a live part lacks, or nothing."""
    try:
        entries = yaml.safe_load(source)
    except yaml.YAMLError as error:
        return f"is not YAML: {' '.join(str(error).split())}"
    if not isinstance(entries, dict):
        return f"is made of entries: {', '.join(ENTRIES)}"
    for name, what in ENTRIES.items():
        if not str(entries.get(name) or "").strip():
            return f"has no {name}, {what}"
    unknown = [str(name) for name in entries if name not in ENTRIES]
    if unknown:
        return f"has an unknown entry, {unknown[0]}"
    for name, folder in (("script", "assets/js/"), ("style", "assets/css/")):
        path = str(entries[name])
        inside = path.replace("../", "").startswith(folder)
        if not inside or not Path("docs", path.replace("../", "")).is_file():
            return f"names {path}, and docs/{folder} has no such file"
    return None
