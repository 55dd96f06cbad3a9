"""Which page is being made, and the way from it to another.

A Markdown extension is not told which page it works on. Both engines that build this
book leave a trace of it in the converter: MkDocs with what turns its links, Zensical
with the context that it hands to extensions.
"""

import posixpath
from typing import Protocol, cast

from markdown import Markdown

__all__ = ["address", "current_page", "raw_way", "way"]


class _File(Protocol):
    src_uri: str


class _LinkTurner(Protocol):
    file: _File


class _ZensicalPage(Protocol):
    path: str


class _Context(Protocol):
    page: _ZensicalPage


def current_page(md: Markdown) -> str | None:
    """Give the page's path within docs; None where no site is built, as in an audit."""
    if "relpath" in md.treeprocessors:
        return cast(_LinkTurner, md.treeprocessors["relpath"]).file.src_uri
    if "rendering_context" in md.preprocessors:
        return cast(_Context, md.preprocessors["rendering_context"]).page.path
    return None


def way(page: str, target: str) -> str:
    """Give the link from one source file to another, as a page would write it."""
    return posixpath.relpath(target, posixpath.dirname(page))


def raw_way(md: Markdown, page: str, target: str) -> str:
    """Give the link for finished HTML: Zensical turns those too, MkDocs does not."""
    if "rendering_context" in md.preprocessors:
        return way(page, target)
    return address(page, target)


def address(page: str, target: str) -> str:
    """Give the link from one built page to another, as a browser takes it."""
    return posixpath.relpath(_folder(target), _folder(page)) + "/"


def _folder(page: str) -> str:
    folder, _, name = page.removesuffix(".md").rpartition("/")
    return folder or "." if name == "index" else posixpath.join(folder, name)
