"""Write each page as plain Markdown, and ``llms.txt`` with links to all of them.

Such a page has the path of its file in ``docs``, so that its links lead to others. It
leaves out what readers do not see, contains the text of listings, and replaces the
syntax of the site's own extensions.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bookbinder.listings import find_section
from bookbinder.page import Fence, Page
from bookbinder.publishing.book import Book

# Options of a call-out or a reference are indented below it.
_CALLOUT = re.compile(r"^/{3,} *[\w-]+ *\| *(?P<title>.+)\n(?: {4}.*\n)*", re.MULTILINE)
_CALLOUT_END = re.compile(r"^/{3,}\n", re.MULTILINE)
_MODULE = re.compile(r"^::: (?P<name>[\w.]+)$(?:\n {4}.*)*", re.MULTILINE)


@dataclass(frozen=True)
class Passage:
    """A piece of a page as plain Markdown: "prose", "run", "output", or "shown".

    ``line`` is that of a fence.
    """

    kind: str
    text: str
    line: int = 0


def passages(page: Page, root: Path) -> Iterator[Passage]:
    """Return the passages of a page in order."""
    fences = {fence.line: fence for fence in page.fences}
    prose = ""
    for number, line in sorted([*page.prose, *((line, "") for line in fences)]):
        if number in fences:
            yield from _prose(prose, root)
            yield _fenced(fences[number], page, root)
            prose = ""
        else:
            prose += f"{line}\n"
    yield from _prose(prose, root)


def _prose(text: str, root: Path) -> Iterator[Passage]:
    text = _CALLOUT_END.sub("", _CALLOUT.sub(r"\n**\g<title>**\n\n", text))
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
    if text:
        yield Passage("prose", _MODULE.sub(lambda m: _module(m["name"], root), text))


def _module(name: str, root: Path) -> str:
    """Return the source of a module, in place of its reference on the site."""
    place = root.joinpath("src", *name.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return _quoted(file.read_text("utf-8"), file.relative_to(root).as_posix())


def _fenced(fence: Fence, page: Page, root: Path) -> Passage:
    for listing in page.listings:
        if listing.line == fence.line:
            section = find_section(root, listing.path, listing.section)
            return Passage("shown", _quoted(section.text, listing.path), fence.line)
    text = fence.text
    if fence.info == "live":
        return Passage("prose", f"*{yaml.safe_load(text)['without']}*")
    if fence.info == "mermaid":
        # The program of a diagram is only for the tests.
        text = re.sub(r"^\s*%%.*\n", "", text, flags=re.MULTILINE)
    kind = {"python": "run", "text": "output"}.get(fence.info, "shown")
    return Passage(kind, _block(text, fence.info), fence.line)


def _quoted(code: str, path: str) -> str:
    language = "js" if path.endswith("js") else "python"
    return f"From `{path}`:\n\n{_block(code, language)}"


def _block(code: str, language: str) -> str:
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return "{0}{1}\n{2}\n{0}".format(ticks, language, code.strip("\n"))


def plain_markdown(parts: list[Passage]) -> str:
    """Return a page as plain Markdown."""
    return "\n\n".join(part.text for part in parts) + "\n"


def llms(book: Book) -> str:
    """Return ``llms.txt``: a description of the book, and links to its pages."""
    sections: dict[str, list[str]] = {}
    for entry in book.entries:
        line = f"- [{entry.title}]({book.site}{entry.source})"
        about = entry.page.meta.get("description")
        line += f": {about}" if about else ""
        sections.setdefault(entry.part, []).append(line)
    sections["Beside the chapters"] = sections.pop("", [])
    text = [
        f"# {book.name}\n\n> {book.summary}\n",
        "Every link leads to a page as Markdown, its listings written out. Each block"
        " of Python has run, and the text block behind it is what it printed.\n",
        book.license,
    ]
    for title, lines in sections.items():
        text += [f"\n## {title}\n", *lines]
    return "\n".join(text) + "\n"
