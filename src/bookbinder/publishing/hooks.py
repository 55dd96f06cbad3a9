"""Hooks of MkDocs: numbers and minutes of chapters, all questions, quick previews.

No file, address or link contains the number of a chapter, so one can be inserted
between two others: the menu, the headings and the home page get their numbers from the
navigation. Other engines leave out these hooks, and ``publish`` does not need them.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from bookbinder.drawing.live import add_live_files
from bookbinder.drawing.undrawn import previewing
from bookbinder.page import load_page
from bookbinder.publishing.news import NEWS, changes
from bookbinder.publishing.old_addresses import OLD_SECTIONS
from bookbinder.publishing.search import improve_search
from bookbinder.reading import minutes
from bookbinder.rendering import plainly

# Sections whose single entries are not in the table of contents of a chapter.
_FOLDED = ("Exercises", "Questions and answers")
# What pages are made of, beside their own files.
_SHOWN = ("mkdocs.yml", "src/**/*.py", "src/**/*.js", "theme/**/*", "docs/**/*.svg")

# The chapters of this build, in their order.
_chapters: list[Page] = []


def on_config(config: MkDocsConfig) -> None:
    """Build from the folder of the configuration, wherever MkDocs was called.

    Extensions and snippets name files from there, because MkDocs tells an extension
    neither its configuration nor its page.
    """
    os.chdir(os.path.dirname(os.path.abspath(config.config_file_path)))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Build all pages of a preview again if anything that they show has changed.

    A dirty build leaves out pages whose own file is older than their HTML, nine tenths
    of its time. What pages say of each other, such as the list of questions, is brought
    up to date when the server starts.
    """
    if previewing():
        shown = (file for pattern in _SHOWN for file in Path().glob(pattern))
        newest = max(file.stat().st_mtime for file in shown)
        for page in files.documentation_pages():
            built = Path(page.abs_dest_path)
            if built.is_file() and built.stat().st_mtime < newest:
                built.unlink()


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Put the number of each chapter before its title."""
    _chapters[:] = [
        page
        for page in nav.pages
        # The template is a chapter too, but in no part of the book.
        if page.file.src_uri.startswith("chapters/")
        and page.parent
        and page.parent.parent
    ]
    for number, page in enumerate(_chapters, start=1):
        # In MkDocs, an entry in the dictionary overrides the computed value.
        vars(page)["title"] = f"{number}. {page.title}"


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Reckon a page's minutes; append questions and changes to pages of their own."""
    source = load_page(Path(config.docs_dir, page.file.src_uri), Path.cwd())
    if source.blocks and not page.is_homepage:
        page.meta["minutes"] = round(minutes(source, Path.cwd()))
    if page.file.src_uri == NEWS:
        return markdown + changes(Path.cwd())
    if page.file.src_uri != "questions.md":
        return markdown
    written = [markdown]
    for chapter in _chapters:
        path = chapter.file.src_uri
        source = load_page(Path(config.docs_dir, path), Path.cwd())
        if lines := source.parts.get("questions-and-answers"):
            written.append(f"\n## [{chapter.title}]({path})\n")
            for heading in source.headings:
                if heading.line in lines and heading.level == 3:
                    written.append(f"- [{heading.text}]({path}#{heading.anchor})")
    return "\n".join(written)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Number the heading of a chapter, without its anchor, and the rows of the home.

    Anchors that sections had formerly lead to them still.
    """
    for old, new in OLD_SECTIONS.get(page.file.src_uri, {}).items():
        html = html.replace(
            f'<h2 id="{new}">', f'<span id="{old}"></span><h2 id="{new}">'
        )
    for number, chapter in enumerate(_chapters, start=1):
        if page is chapter:
            html = re.sub(r"(<h1\b[^>]*>)", rf"\g<1>{number}. ", html, count=1)
        elif page.is_homepage:
            link = rf'(<td\b[^>]*>)(?=<a href="{re.escape(chapter.url)}">)'
            html = re.sub(link, rf"\g<1>{number}. ", html)
    if page.file.src_uri.startswith("chapters/"):
        for section in (section for top in page.toc for section in top.children):
            if section.title in _FOLDED:
                section.children = []
    return html


@event_priority(50)
def _search_reads_plainly(context: Any, page: Page, **_: Any) -> None:
    """Let search, which leaves out drawings and colors, not read them either."""
    context["content"] = page.content
    page.content = plainly(page.content or "")


@event_priority(-50)
def _all_is_shown(context: Any, page: Page, **_: Any) -> None:
    """Put back what search does not read."""
    page.content = context.pop("content")


on_page_context = CombinedEvent(_search_reads_plainly, _all_is_shown)


def on_post_build(config: MkDocsConfig) -> None:
    """Add the files of live parts, and improve the search."""
    add_live_files(Path(config.site_dir))
    improve_search(Path(config.site_dir))
