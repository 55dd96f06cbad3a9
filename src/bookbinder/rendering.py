"""Render a page as the site does, and extract the code that is shown."""

import os
import re
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import markdown
from bs4 import BeautifulSoup, Tag
from mkdocs.config import load_config
from mkdocs.utils import meta

# KaTeX makes neither <var> nor <div>.
_DRAWN = re.compile(
    r'(<(var|div) class="arithmatex"[^>]*>)<span class="katex.*?(</\2>)'
    r"|(<svg\b[^>]*>).*?(</svg>)",
    re.DOTALL,
)
_CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_COLORED = re.compile(r"</?span\b[^>]*>")


@dataclass(frozen=True)
class Shown:
    """A block of code as a reader sees it."""

    language: str
    text: str


@cache
def _site(root: Path) -> dict[str, Any]:
    config = load_config(str(root / "mkdocs.yml"))
    return {
        "extensions": config["markdown_extensions"],
        "extension_configs": config["mdx_configs"],
    }


def render(text: str, root: Path) -> BeautifulSoup:
    """Turn Markdown into the HTML that the site shows.

    Errors in formulas, diagrams and pictures are drawn into the page, where the audit
    finds all of them, rather than raised one at a time.
    """
    text, _ = meta.get_data(text)
    with patch.dict(os.environ, BOOKBINDER_PREVIEW="1"), chdir(root):
        html = markdown.markdown(text, **_site(root))
    return BeautifulSoup(plainly(html), "html.parser")


def plainly(html: str) -> str:
    """Return a page whose drawings are empty, and whose code has no colors.

    These are most elements of a page, and none of them from its author: parsers need
    not read them.
    """
    return _CODE.sub(
        lambda code: _COLORED.sub("", code[0]), _DRAWN.sub(r"\1\3\4\5", html)
    )


def shown_code(page: BeautifulSoup) -> list[Shown]:
    """Return every block of preformatted text, with the language it is shown in."""
    return [Shown(_language(pre), pre.get_text()) for pre in page.find_all("pre")]


def _language(pre: Tag) -> str:
    for element in (pre, *pre.parents):
        for name in element.get_attribute_list("class"):
            if name and name.startswith("language-"):
                return name.removeprefix("language-")
    return ""
