"""List the questions of all chapters on one page, as a hook of MkDocs.

A chapter ends with exercises, and with questions and answers. Its table of contents
names only these two sections, not the single exercises and questions. The page
``questions.md`` lists every question under its chapter.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

__all__ = ["on_page_content", "on_page_markdown"]

QUESTIONS = "questions.md"
_SECTION = re.compile(
    r"^## Questions and answers\n(?P<all>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
_NUMBER = re.compile(r"(\d+)\. ")
_QUESTION = re.compile(r"^### (?P<text>.+)$", re.MULTILINE)
_FOLDED = ("Exercises", "Questions and answers")


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Append the questions of all chapters to the page that lists them."""
    if page.file.src_uri != QUESTIONS:
        return markdown
    slug = config.mdx_configs["toc"]["slugify"]
    chapters = {
        int(number[1]): file
        for file in files.documentation_pages()
        if file.page and (number := _NUMBER.match(str(file.page.title)))
    }
    parts = [markdown]
    for _, file in sorted(chapters.items()):
        section = _SECTION.search(Path(str(file.abs_src_path)).read_text("utf-8"))
        if section and file.page:
            parts.append(f"\n## [{file.page.title}]({file.src_uri})\n")
            parts += [
                f"- [{text}]({file.src_uri}#{slug(text, '-')})"
                for text in _QUESTION.findall(section["all"])
            ]
    return "\n".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove single questions and exercises from a chapter's table of contents."""
    if page.file.src_uri.startswith("chapters/"):
        for part in page.toc:
            for section in part.children:
                if section.title in _FOLDED:
                    section.children = []
    return html
