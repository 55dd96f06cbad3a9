"""Read a page: the blocks it runs, the outputs it shows, the listings it quotes.

A page has three forms of code and nothing else: a run block, the output of a run
block, and a listing out of ``src``. The reader is strict, because whatever it passed
over would be shown and never run. What it refuses, it refuses with a line.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bookbinder.reading.bindings import Binding, read_binding
from bookbinder.reading.callouts import unpaired
from bookbinder.reading.inert import INERT_LANGUAGES, inert_problem
from bookbinder.reading.parts import Block, Chain, Image, Listing, Output, Problem
from bookbinder.reading.syntax import code_problems

CONTINUES = "<!--pytest-codeblocks:cont-->"
EXPECTED = "<!--pytest-codeblocks:expected-output-->"

_FENCE = re.compile(
    r"^(?P<lead>[\s>]*(?:[-*+]\s+|\d+[.)]\s+)*)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$"
)
_TITLE = re.compile(r'^(?P<language>py|js) title="(?P<title>[^"]*)"$')
_INCLUDE = re.compile(r'^--8<-- "(?P<path>[^":]+):(?P<section>[^":]+)"$')
_SNIPPET = re.compile(r"-+8<-+")
_HTML = re.compile(r"</?[a-zA-Z][\w-]*(?=[\s/>]|$)")
_FORMULA = re.compile(r"\$[^$]*\$")
_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]*)[^)]*\)")
# What no one sees, and what would let a page show one thing and run another.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
)
_CODE_SPAN = re.compile(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)")


@dataclass
class Page:
    """All that the audit and the runner need to know of one page."""

    path: str
    lines: list[str]
    chains: list[Chain] = field(default_factory=list[Chain])
    listings: list[Listing] = field(default_factory=list[Listing])
    images: list[Image] = field(default_factory=list[Image])
    callouts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    bindings: list[Binding] = field(default_factory=list[Binding])
    refused: list[Problem] = field(default_factory=list[Problem])
    # Comments that bind nothing: they are told, and the page runs all the same.
    unbound: list[Problem] = field(default_factory=list[Problem])

    @property
    def blocks(self) -> list[Block]:
        """Every run block, in the order of the page."""
        return [block for chain in self.chains for block in chain.blocks]

    # Found when somebody asks: not all who read a page want its blocks compiled.
    @cached_property
    def problems(self) -> list[Problem]:
        """All that would not be run, or not be understood."""
        in_blocks = [
            Problem(self.path, block.line + line, reason)
            for block in self.blocks
            for line, reason in code_problems(block.code)
        ]
        return sorted([*self.refused, *in_blocks], key=lambda problem: problem.line)

    def refuse(self, line: int, reason: str) -> None:
        """Note a problem at a line of this page."""
        self.refused.append(Problem(self.path, line, reason))


def split_lines(text: str) -> list[str]:
    """Split at line feeds alone, as Markdown, Python and editors count lines."""
    return text.removesuffix("\n").split("\n") if text else []


def load_page(file: Path, root: Path) -> Page:
    """Read a page from its file; its name is kept relative to ``root``."""
    path = file.relative_to(root) if file.is_relative_to(root) else Path(file.name)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        page = Page(path.as_posix(), [])
        page.refuse(1, f"this page is not UTF-8: {error}")
        return page
    return read_page(text, path.as_posix())


def read_page(text: str, path: str) -> Page:
    """Read a page from its text, noting every form that would not be run."""
    page = Page(path, split_lines(text))
    if text.startswith("\ufeff"):
        page.refuse(1, "the file begins with a byte order mark: save it without")
    for number, line in enumerate(page.lines, start=1):
        if found := _INVISIBLE.search(line):
            page.refuse(number, f"an invisible character, {found[0]!r}: take it out")
    marker: tuple[str, int] | None = None
    index = 0
    while index < len(page.lines):
        line, number = page.lines[index], index + 1
        index += 1
        fence = _FENCE.match(line)
        if fence:
            last = _closing(page.lines, index, fence)
            if last is None:
                page.refuse(number, "this fence is never closed")
                break
            body = "".join(f"{inner}\n" for inner in page.lines[index:last])
            _read_fence(page, fence, body, number, marker)
            marker, index = None, last + 1
            continue
        if not line.strip():
            continue
        if marker:
            page.refuse(marker[1], f"no fence follows the marker {marker[0]}")
        marker = _read_prose(page, line, number)
    if marker:
        page.refuse(marker[1], f"no fence follows the marker {marker[0]}")
    for binding in page.bindings:
        above = [block for block in page.blocks if block.line < binding.line]
        for block in above[-1:] or page.blocks[:1]:
            block.bindings.append(binding)
    for line, reason in unpaired(page.callouts):
        page.refuse(line, reason)
    return page


def _closing(lines: list[str], start: int, fence: re.Match[str]) -> int | None:
    """Find the line that closes a fence: the same ticks, behind the same lead."""
    for index in range(start, len(lines)):
        if lines[index].strip("> \t") == fence["ticks"]:
            return index
    return None


def _read_prose(page: Page, line: str, number: int) -> tuple[str, int] | None:
    """Read a line outside any fence; return the marker if it is one."""
    if line in (CONTINUES, EXPECTED):
        return line, number
    if line.startswith("///"):
        page.callouts.append((number, line))
    bare = _CODE_SPAN.sub("", line)
    try:
        binding = read_binding(line, number)
    except ValueError as error:
        return page.unbound.append(Problem(page.path, number, str(error)))
    if binding:
        page.bindings.append(binding)
    elif "<!--" in bare:
        page.refuse(
            number,
            "this comment is not a marker, alone on its line: these are "
            f"{CONTINUES}, {EXPECTED}, holds and given",
        )
    if _SNIPPET.search(bare):
        page.refuse(number, "an include outside a listing: use ```py title=…")
    if _HTML.search(_FORMULA.sub("", bare)):
        page.refuse(number, "raw HTML, which nothing checks: write it in Markdown")
    images = [Image(m["alt"], m["target"], number) for m in _IMAGE.finditer(bare)]
    if len(images) != bare.count("!["):
        page.refuse(number, "a picture is written on one line: ![what it shows](path)")
    page.images.extend(images)
    return None


def _read_fence(
    page: Page,
    fence: re.Match[str],
    body: str,
    number: int,
    marker: tuple[str, int] | None,
) -> None:
    info = fence["info"].strip()
    if fence["lead"] or fence["ticks"][0] == "~":
        page.refuse(
            number, "a fence must be of backticks at column 0, or it is not run"
        )
        return
    language = info.split()[0] if info else ""
    if language not in ("py", "js") and _SNIPPET.search(body):
        page.refuse(number, "an include outside a listing: use ```py title=…")
    if marker and marker[0] == CONTINUES and info != "python":
        page.refuse(marker[1], "cont must stand before a ```python block")
    if marker and marker[0] == EXPECTED and info != "text":
        page.refuse(marker[1], "expected-output must stand before a ```text block")
    if info == "python":
        _read_run(page, body, number, bool(marker and marker[0] == CONTINUES))
    elif info == "text":
        _read_output(page, body, number, bool(marker and marker[0] == EXPECTED))
    elif language in ("py", "js"):
        _read_listing(page, info, body, number)
    elif info in INERT_LANGUAGES:
        reason = inert_problem(info, body)
        if reason:
            page.refuse(number, reason)
    else:
        page.refuse(
            number,
            f"```{info} is none of the forms of a page, so nothing checks it; they "
            f"are ```python (run), ```text (an output), ```py title=… (a listing) "
            f"and, shown only, {', '.join(sorted(INERT_LANGUAGES))}",
        )


def _read_run(page: Page, code: str, number: int, continues: bool) -> None:
    block = Block(code, number)
    if continues and not page.chains:
        page.refuse(number, "cont, but there is no block before to go on from")
    if continues and page.chains:
        page.chains[-1].blocks.append(block)
    else:
        page.chains.append(Chain([block]))


def _read_output(page: Page, text: str, number: int, marked: bool) -> None:
    if not marked:
        page.refuse(
            number, f"this output is compared with nothing: put {EXPECTED} here"
        )
    elif not page.chains:
        page.refuse(number, "an output, but there is no run block before it")
    elif page.chains[-1].blocks[-1].output:
        page.refuse(number, "the run block before it has an output already")
    else:
        page.chains[-1].blocks[-1].output = Output(text, number)


def _read_listing(page: Page, info: str, body: str, number: int) -> None:
    title = _TITLE.match(info)
    include = _INCLUDE.match(body.rstrip("\n"))
    if not title:
        page.refuse(number, 'a listing begins ```py title="src/…/module.py"')
    elif not include:
        page.refuse(
            number,
            f"a listing holds one line and no code of its own: "
            f'--8<-- "{title["title"]}:section"',
        )
    elif include["path"] != title["title"]:
        page.refuse(
            number, f"the title says {title['title']}, the include {include['path']}"
        )
    elif not include["path"].endswith(f".{title['language']}"):
        page.refuse(number, f"{include['path']} is no file of .{title['language']}")
    else:
        page.listings.append(Listing(include["path"], include["section"], number))
