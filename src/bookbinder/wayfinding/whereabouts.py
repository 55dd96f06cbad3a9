"""Find out which page is being built, and the path from it to another.

A Markdown extension does not know the page that it works on. Both engines that build
this book leave it in the converter: MkDocs in the processor of links, Zensical in the
context that it passes to extensions.
"""

import posixpath
from operator import attrgetter

from markdown import Markdown

_ZENSICAL = "rendering_context"


def current_page(md: Markdown) -> str:
    """Return the page's path within docs, or an empty one if no site is being built."""
    for traces in (md.treeprocessors, md.preprocessors):
        for name, path in (("relpath", "file.src_uri"), (_ZENSICAL, "page.path")):
            if name in traces:
                return str(attrgetter(path)(traces[name]))
    return ""


def way(page: str, target: str) -> str:
    """Return the link from one source file to another, as in a page's Markdown."""
    return posixpath.relpath(target, posixpath.dirname(page))


def built_way(md: Markdown, page: str, target: str) -> str:
    """Return the link for finished HTML, which Zensical rewrites but MkDocs doesn't."""
    if _ZENSICAL in md.preprocessors:
        return way(page, target)
    start = page.removesuffix(".md").removesuffix("index") or "."
    return posixpath.relpath(target.removesuffix(".md"), start) + "/"
