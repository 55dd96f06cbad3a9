"""Each page once more as plain Markdown, and one file that leads to them all.

What no reader sees is left out, a listing is written out, and what only the site's own
extensions understand is said in plain Markdown.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bookbinder.listings import find_section
from bookbinder.page import Fence, Page
from bookbinder.publishing.book import Book, Leaf, folder_of

__all__ = ["TWIN", "Passage", "linked", "llms", "passages", "place_in_site", "twin"]

TWIN = "index.md"

_CALLOUT = re.compile(r"/{3,}\s*[\w-]+\s*\|\s*(?P<title>.+)")
_MODULE = re.compile(r"::: (?P<name>[\w.]+)")
_SPAN = re.compile(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)|\$[^$\n]+\$")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
_ROW = re.compile(r"\| \[[^\]]*\]\((?P<source>[^)]+)\) \| (?P<about>.+?) \|")
_SENTENCE = re.compile(r".*?[.?!](?=\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Passage:
    """A piece of a page as plain Markdown: "prose", "run", "output", or "shown".

    ``line`` is that of a fence.
    """

    kind: str
    text: str
    line: int = 0


def passages(page: Page, root: Path) -> Iterator[Passage]:
    """Return the passages of a page, in its order."""
    fences = {fence.line: fence for fence in page.fences}
    prose: list[str] = []
    options = False
    for number, line in sorted([*page.prose, *((line, "") for line in fences)]):
        # The options of a call-out or a reference stand indented below it.
        options = options and line.startswith("    ")
        if number in fences:
            yield from _prose(prose)
            yield _fenced(fences[number], page, root)
        elif module := _MODULE.match(line):
            options = True
            yield from _prose(prose)
            yield _module(module["name"], root)
        elif callout := _CALLOUT.match(line):
            options = True
            prose += ["", f"**{callout['title'].strip()}**", ""]
        elif not options and not line.startswith("///"):
            prose.append(line)
    yield from _prose(prose)


def _prose(lines: list[str]) -> Iterator[Passage]:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    lines.clear()
    if text.strip():
        yield Passage("prose", text)


def _fenced(fence: Fence, page: Page, root: Path) -> Passage:
    for listing in page.listings:
        if listing.line == fence.line:
            section = find_section(root, listing.path, listing.section)
            text = _quoted(section.text, listing.path)
            return Passage("shown", text, fence.line)
    text = fence.text
    if fence.info == "live":
        return Passage("prose", f"*{yaml.safe_load(text)['without']}*")
    if fence.info == "mermaid":
        # The programs behind a diagram are for the tests.
        text = re.sub(r"^\s*%%.*\n", "", text, flags=re.MULTILINE)
    kind = {"python": "run", "text": "output"}.get(fence.info, "shown")
    return Passage(kind, _block(text, fence.info), fence.line)


def _module(name: str, root: Path) -> Passage:
    """Show a module of the library whole, where the site shows its reference."""
    place = root.joinpath("src", *name.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    path = file.relative_to(root).as_posix()
    return Passage("shown", _quoted(file.read_text("utf-8"), path))


def _quoted(code: str, path: str) -> str:
    return (
        f"From `{path}`:\n\n{_block(code, 'js' if path.endswith('js') else 'python')}"
    )


def _block(code: str, language: str) -> str:
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return "{0}{1}\n{2}\n{0}".format(ticks, language, code.strip("\n"))


def linked(text: str, address: Callable[[str], str]) -> str:
    """Lead the links and pictures of some prose elsewhere.

    ``address`` returns the new target of each; for "" the words stay, the link goes.
    """
    # Code and formulas may look like links; their length is kept.
    bare = _SPAN.sub(lambda span: re.sub(r"[\[\]()]", " ", span[0]), text)
    parts: list[str] = []
    end = 0
    for found in _LINK.finditer(bare):
        words = text[found.start("text") : found.end("text")]
        target = address(found["target"])
        parts.append(text[end : found.start()])
        parts.append(f"{found['image']}[{words}]({target})" if target else words)
        end = found.end()
    return "".join([*parts, text[end:]])


def place_in_site(leaf: Leaf, path: str) -> str:
    """Return where in the site a relative path leads that a page's file has.

    Pages become folders, with a slash behind them: only the home page has none.
    """
    source = posixpath.normpath(posixpath.join(posixpath.dirname(leaf.source), path))
    if not source.endswith(".md"):
        return source
    folder = folder_of(source)
    return f"{folder}/" if folder else ""


def twin(leaf: Leaf, parts: list[Passage]) -> str:
    """Write a page as Markdown that stands beside it; links lead to other twins."""

    def address(target: str) -> str:
        path, mark, fragment = target.partition("#")
        if not path or "://" in target:
            return target
        place = place_in_site(leaf, path)
        place = f"{place}{TWIN}" if place.endswith("/") or not place else place
        return posixpath.relpath(place, leaf.folder or ".") + mark + fragment

    pieces = [linked(p.text, address) if p.kind == "prose" else p.text for p in parts]
    return "\n\n".join(pieces) + "\n"


def llms(book: Book, parts: dict[str, list[Passage]]) -> str:
    """Write ``llms.txt``: what the book is, and where each page is as Markdown."""
    # The home page says of each chapter which question it answers.
    home = next(leaf for leaf in book.leaves if not leaf.folder)
    rows = filter(None, map(_ROW.fullmatch, home.page.lines))
    questions = {row["source"]: row["about"] for row in rows}
    sections: dict[str, list[str]] = {}
    for leaf in book.leaves:
        path = f"{leaf.folder}/{TWIN}".lstrip("/")
        about = questions.get(leaf.source) or _summary(parts[leaf.source])
        line = f"- [{leaf.title}]({book.site}{path})" + (f": {about}" if about else "")
        sections.setdefault(leaf.part, []).append(line)
    beside = sections.pop("", [])
    text = [
        f"# {book.name}\n\n> {book.summary}\n",
        "Every link leads to a page as Markdown, its listings written out. Each block"
        " of Python has run, and the text block behind it is what it printed.\n",
        book.license,
    ]
    for title, lines in [*sections.items(), ("Beside the chapters", beside)]:
        text += [f"\n## {title}\n", *lines] if lines else []
    return "\n".join(text) + "\n"


def _summary(parts: list[Passage]) -> str:
    """Return the first sentence of a page, which says what it is about."""
    prose = "\n\n".join(part.text for part in parts if part.kind == "prose")
    for paragraph in prose.split("\n\n"):
        if paragraph[:1].isalpha() or paragraph[:1] == "*":
            words = linked(" ".join(paragraph.split()), lambda target: "")
            found = _SENTENCE.match(words)
            return found[0] if found else words
    return ""
