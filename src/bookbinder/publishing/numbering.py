"""Number the chapters in the order of the navigation, as a hook of MkDocs.

No file, address or link contains a number, so a chapter can be inserted between two
others. The menu, the links to the next page and the heading get the number, and so does
each row of the home page that begins with a chapter.
"""

import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

__all__ = ["on_nav", "on_page_content"]

# The parts of the book have Roman numbers; other pages have none.
_PART = re.compile(r"[IVX]+\. ")
_NUMBER = re.compile(r"\d+\. ")


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Put the number of each chapter before its title."""
    chapters = [
        page
        for page in nav.pages
        if page.file.src_uri.startswith("chapters/")
        and page.parent
        and _PART.match(page.parent.title or "")
    ]
    for number, page in enumerate(chapters, start=1):
        # In MkDocs, an entry in the dictionary overrides the computed value.
        vars(page)["title"] = f"{number}. {page.title}"
    return nav


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the number before the heading, without changing its anchor."""
    if page.is_homepage:
        for file in files.documentation_pages():
            found = _NUMBER.match(str(file.page.title)) if file.page else None
            if found:
                row = rf'(<td\b[^>]*>)(?=<a href="{re.escape(file.url)}">)'
                html = re.sub(row, rf"\g<1>{found[0]}", html)
        return html
    found = _NUMBER.match(str(page.title))
    if not found or not page.file.src_uri.startswith("chapters/"):
        return html
    return re.sub(r"(<h1\b[^>]*>)", rf"\g<1>{found[0]}", html, count=1)
