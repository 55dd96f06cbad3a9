"""Keep the questions of all chapters on one page, and out of each chapter's contents.

It is a hook of MkDocs. A chapter ends with exercises, questions and answers. The list
of its contents beside the text names these two sections and not what stands in them;
the page ``questions.md`` lists every question below its chapter.
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
    """Put the questions of all chapters at the end of the page that lists them."""
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
    """Leave single questions and exercises out of the contents of a chapter."""
    if page.file.src_uri.startswith("chapters/"):
        for part in page.toc:
            for section in part.children:
                if section.title in _FOLDED:
                    section.children = []
    return html
