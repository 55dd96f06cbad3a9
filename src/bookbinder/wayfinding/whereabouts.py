"""Which page is being made, and the way from it to another.

A Markdown extension is not told which page it works on. Both engines that build this
book leave a trace of it in the converter: MkDocs with what turns its links, Zensical
with the context that it hands to extensions.
"""

import posixpath
from operator import attrgetter

from markdown import Markdown

__all__ = ["built_way", "current_page", "way"]

_ZENSICAL = "rendering_context"


def current_page(md: Markdown) -> str:
    """Return the page's path within docs; an empty one where no site is built."""
    for traces in (md.treeprocessors, md.preprocessors):
        for name, path in (("relpath", "file.src_uri"), (_ZENSICAL, "page.path")):
            if name in traces:
                return str(attrgetter(path)(traces[name]))
    return ""


def way(page: str, target: str) -> str:
    """Return the link from one source file to another, as a page would write it."""
    return posixpath.relpath(target, posixpath.dirname(page))


def built_way(md: Markdown, page: str, target: str) -> str:
    """Return the link for finished HTML: Zensical turns those too, MkDocs does not."""
    if _ZENSICAL in md.preprocessors:
        return way(page, target)
    start = page.removesuffix(".md").removesuffix("index") or "."
    return posixpath.relpath(target.removesuffix(".md"), start) + "/"
