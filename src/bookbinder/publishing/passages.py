"""Take a page apart for readers of plain Markdown: prose, code, outputs, listings.

What no reader sees is left out; a listing is written out; what only the site's own
extensions understand is said in plain Markdown.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bookbinder.listings import find_section
from bookbinder.page import Page

__all__ = ["Passage", "linked", "passages"]

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<info>.*)$")
_INCLUDE = re.compile(r'^--8<-- "(?P<path>[^":]+):(?P<section>[^":]+)"$')
_CALLOUT = re.compile(r"^/{3,}\s*[\w-]+\s*\|\s*(?P<title>.+)$")
_MODULE = re.compile(r"^:::\s+(?P<name>[\w.]+)\s*$")
_SPAN = re.compile(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)|\$[^$\n]+\$")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")


@dataclass(frozen=True)
class Passage:
    """A piece of a page.

    Args:
        kind: "prose", "run", "output", or "shown" for every other fence.
        text: Prose as it is; of a fence what it holds.
        language: What a fence is to be shown as.
        line: Where it begins on the page.
        title: The file that a listing comes from.
    """

    kind: str
    text: str
    line: int
    language: str = ""
    title: str = ""

    def markdown(self) -> str:
        """Write it as Markdown."""
        if self.kind == "prose":
            return self.text
        ticks = "```"
        while ticks in self.text:
            ticks += "`"
        source = f"From `{self.title}`:\n\n" if self.title else ""
        return f"{source}{ticks}{self.language}\n{self.text.strip(chr(10))}\n{ticks}"


def passages(page: Page, root: Path) -> Iterator[Passage]:
    """Give the passages of a page, in its order."""
    prose: list[str] = []
    start = index = _front_matter(page.lines)
    while index < len(page.lines):
        line = page.lines[index]
        fence = _FENCE.match(line)
        module = _MODULE.match(line)
        index += 1
        if fence:
            last = next(
                n
                for n in range(index, len(page.lines))
                if page.lines[n].strip() == fence["ticks"]
            )
            yield from _prose(prose, start)
            body = "".join(f"{inner}\n" for inner in page.lines[index:last])
            yield _fenced(fence["info"].strip(), body, index, root)
            prose, start, index = [], last + 1, last + 1
        elif module:
            yield from _prose(prose, start)
            while index < len(page.lines) and page.lines[index].startswith("  "):
                index += 1
            yield _source(module["name"], index, root)
            prose, start = [], index
        elif callout := _CALLOUT.match(line):
            prose += ["", f"**{callout['title'].strip()}**", ""]
            # Its options stand indented below, up to the first empty line.
            while index < len(page.lines) and page.lines[index].startswith("    "):
                index += 1
        elif not line.startswith(("<!--", "///")):
            prose.append(line)
    yield from _prose(prose, start)


def _front_matter(lines: list[str]) -> int:
    if lines[:1] != ["---"]:
        return 0
    return lines.index("---", 1) + 1


def _prose(lines: list[str], start: int) -> Iterator[Passage]:
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    if text.strip():
        yield Passage("prose", text, start + 1)


def _fenced(info: str, body: str, line: int, root: Path) -> Passage:
    language = info.split()[0] if info else ""
    include = _INCLUDE.match(body.strip("\n"))
    if include:
        section = find_section(root, include["path"], include["section"])
        shown = "python" if language == "py" else language
        return Passage("shown", section.text, line, shown, include["path"])
    if language == "python":
        return Passage("run", body, line, language)
    if language == "text":
        return Passage("output", body, line, language)
    if language == "live":
        return Passage("prose", f"*{yaml.safe_load(body)['without']}*", line)
    if language == "mermaid":
        # The programs behind a diagram are for the tests.
        body = re.sub(r"^\s*%%.*\n", "", body, flags=re.MULTILINE)
    return Passage("shown", body, line, language)


def _source(module: str, line: int, root: Path) -> Passage:
    """Show a module of the library whole, where the site shows its reference."""
    place = root.joinpath("src", *module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    name = file.relative_to(root).as_posix()
    return Passage("shown", file.read_text("utf-8"), line, "python", name)


def linked(text: str, address: Callable[[str], str]) -> str:
    """Lead the links and pictures of some prose elsewhere.

    Args:
        text: The prose.
        address: Gives for each target the new one; for "" the words stay, and the
            link goes.
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
