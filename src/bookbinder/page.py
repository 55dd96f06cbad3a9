"""Read a page in one pass over its Markdown, for all other modules.

A page has only three forms of code: a run block, the output of a run block, and a
listing from ``src``. The reader is strict, because anything that it ignored would be
shown but never run. Every problem is reported with its line.
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pymdownx.slugs import slugify

__all__ = [
    "CONTINUES",
    "EXPECTED",
    "INERT_LANGUAGES",
    "Block",
    "Chain",
    "Fence",
    "Image",
    "Listing",
    "Output",
    "Page",
    "Problem",
    "Quote",
    "Tolerance",
    "invisible",
    "load_page",
    "read_page",
    "split_lines",
]

CONTINUES = "<!--pytest-codeblocks:cont-->"
EXPECTED = "<!--pytest-codeblocks:expected-output-->"
# Languages that are shown but never run; none of them may look like Python.
INERT_LANGUAGES = frozenset(
    {"console", "json", "live", "markdown", "mermaid", "toml", "yaml"}
)

_FENCE = re.compile(
    r"^(?P<lead>[\s>]*(?:[-*+]\s+|\d+[.)]\s+)*)(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)$"
)
_HEADING = re.compile(r"#{1,6} (?P<text>.+?)(?: #+)?")
_MARKS = re.compile(r"[`*]|\]\([^)]*\)|\[")
_TITLE = re.compile(r'^(?P<language>py|js) title="(?P<title>[^"]*)"$')
_INCLUDE = re.compile(r'^--8<-- "(?P<path>[^":]+):(?P<section>[^":]+)"$')
_SNIPPET = re.compile(r"-+8<-+")
_HTML = re.compile(r"</?[a-zA-Z][\w-]*(?=[\s/>]|$)")
_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]*)[^)]*\)")
# Invisible characters, which could make a page show one thing and run another, and
# halves of characters, which no file can hold.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]"
    r"|[\ud800-\udfff]"
)
_CODE_SPAN = re.compile(r"(?<!\\)(`+)(?!`)(?P<text>.*?)(?<!`)\1(?!`)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
_DISPLAY = re.compile(r"\$\$(?P<tex>.*?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$])\$(?P<tex>[^$\n]+)\$")
_TOLERANCE = re.compile(
    r"<!-- (?:within (?P<within>\d+(?:\.\d+)?)%)?(?P<both>, )?"
    r"(?:below (?P<below>\d(?:\.\d+)?e-\d+))? -->"
)
_PYTHON = re.compile(
    r"^\s*(>>> |import \w|from [\w.]+ import |def \w+\(|class \w+[(:]|print\()",
    re.MULTILINE,
)
_COMMAND = re.compile(r"\$ \S|\s*$")


@dataclass(frozen=True)
class Problem:
    """A problem on a page, with its line."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        """Return ``page.md:line: reason``, which editors and terminals understand."""
        return f"{self.path}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Fence:
    """A fenced block; ``line`` and ``end`` are the lines of its two fences."""

    info: str
    text: str
    line: int
    end: int


@dataclass(frozen=True)
class Tolerance:
    """How far the decimal numbers of an output may differ from those of a run.

    Args:
        within: A share of the number, 0.05 for ``<!-- within 5% -->``.
        below: A bound for errors, as in ``<!-- below 1e-6 -->``: all below it agree.
        line: The line of the comment.
    """

    within: float = 0.0
    below: float = 0.0
    line: int = 0


@dataclass(frozen=True)
class Output:
    """The text that a run block must print; ``line`` is the line of its fence."""

    text: str
    line: int
    tolerance: Tolerance = Tolerance()


@dataclass
class Block:
    """A run block; ``line`` is the line of its fence."""

    code: str
    line: int
    output: Output | None = None

    @property
    def end(self) -> int:
        """The line of the closing fence."""
        return self.line + self.code.count("\n") + 1


@dataclass
class Chain:
    """Run blocks that share one namespace, each continuing the one before."""

    blocks: list[Block]

    @property
    def line(self) -> int:
        """Where the chain begins."""
        return self.blocks[0].line


@dataclass(frozen=True)
class Listing:
    """A listing: one section of a source file."""

    path: str
    section: str
    line: int

    @property
    def language(self) -> str:
        """The language it is shown in, ``py`` or ``js``: the file's ending."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Image:
    """A picture that the page shows."""

    alt: str
    target: str
    line: int


@dataclass(frozen=True)
class Quote:
    """A code span, a formula or the text of a link, with the link's ``target``."""

    text: str
    line: int
    target: str = ""


@dataclass
class Page:
    """Everything that other modules need to know about one page.

    ``prose`` is the text outside fences and comments, as (line, text); ``meta`` is the
    front matter.
    """

    path: str
    lines: list[str]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    fences: list[Fence] = field(default_factory=list[Fence])
    prose: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    chains: list[Chain] = field(default_factory=list[Chain])
    listings: list[Listing] = field(default_factory=list[Listing])
    images: list[Image] = field(default_factory=list[Image])
    refused: list[Problem] = field(default_factory=list[Problem])

    @property
    def blocks(self) -> list[Block]:
        """Every run block, in the order of the page."""
        return [block for chain in self.chains for block in chain.blocks]

    # Found only on demand, because not every caller needs the blocks compiled.
    @cached_property
    def problems(self) -> list[Problem]:
        """The problems found while reading the page."""
        in_blocks = [
            Problem(self.path, block.line + line, reason)
            for block in self.blocks
            for line, reason in _code_problems(block.code)
        ]
        return sorted([*self.refused, *in_blocks], key=lambda problem: problem.line)

    def is_code(self, line: int) -> bool:
        """Return whether a line belongs to a block of code, or marks one.

        A problem there means that the code of the page is not known.
        """
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        within = any(fence.line <= line <= fence.end for fence in self.fences)
        return within or text.startswith("<!--") or bool(_FENCE.match(text))

    def refuse(self, line: int, reason: str) -> None:
        """Record a problem at a line of this page."""
        self.refused.append(Problem(self.path, line, reason))

    def anchors(self) -> dict[str, str]:
        """Return the headings by their anchors; the title has an empty one."""
        found: dict[str, str] = {}
        slug = slugify(case="lower")
        for _, line in self.prose:
            heading = _HEADING.fullmatch(line)
            if not heading:
                continue
            words = _MARKS.sub("", heading["text"])
            found.setdefault("", words)
            name, again = slug(words, "-"), 0
            while (anchor := f"{name}_{again}" if again else name) in found:
                again += 1
            found[anchor] = words
        return found

    def code_spans(self) -> Iterator[Quote]:
        """Return everything in backticks in the prose."""
        for number, line in self.prose:
            for found in _CODE_SPAN.finditer(line):
                yield Quote(found["text"].strip(), number)

    def links(self) -> Iterator[Quote]:
        """Return every link of the prose."""
        for number, line in self.prose:
            # Code spans are not Markdown; replace them by text of the same length.
            bare = _CODE_SPAN.sub(lambda s: re.sub(r"[\[\]()]", " ", s[0]), line)
            for found in _LINK.finditer(bare):
                text = line[found.start("text") : found.end("text")]
                yield Quote(text, number, found["target"])

    def formulas(self) -> Iterator[Quote]:
        """Return the TeX of every formula, displayed or inline."""
        lines = dict(self.prose)
        text = "\n".join(
            _CODE_SPAN.sub(lambda span: " " * len(span[0]), lines.get(number, ""))
            for number in range(1, len(self.lines) + 1)
        )
        for pattern in (_DISPLAY, _INLINE):
            for found in pattern.finditer(text):
                yield Quote(found["tex"], text.count("\n", 0, found.start()) + 1)
            text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def split_lines(text: str) -> list[str]:
    """Split only at line feeds, as Markdown, Python and editors count lines."""
    return text.removesuffix("\n").split("\n") if text else []


def invisible(text: str) -> str:
    """Return the first character of a text that a page may not hold, or ""."""
    found = _INVISIBLE.search(text)
    return found[0] if found else ""


def load_page(file: Path, root: Path) -> Page:
    """Read a page from its file; its name is kept relative to ``root``."""
    # Either may be named by way of a link.
    real, home = file.resolve(), root.resolve()
    path = real.relative_to(home) if real.is_relative_to(home) else Path(file.name)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        page = Page(path.as_posix(), [])
        page.refuse(1, f"this page is not UTF-8: {error}")
        return page
    return read_page(text, path.as_posix())


def read_page(text: str, path: str) -> Page:
    """Read a page from its text, and record everything that would not run."""
    page = Page(path, split_lines(text))
    if text.startswith("\ufeff"):
        page.refuse(1, "the file begins with a byte order mark: save it without")
    for number, line in enumerate(page.lines, start=1):
        if found := invisible(line):
            page.refuse(number, f"an invisible character, {found!r}: take it out")
    index = _read_meta(page)
    markers: list[tuple[str, int]] = []  # comments whose fence has not come yet
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
            _read_fence(page, fence, body, number, markers)
            page.fences.append(Fence(fence["info"].strip(), body, number, last + 1))
            markers, index = [], last + 1
        elif line in (CONTINUES, EXPECTED) or _TOLERANCE.fullmatch(line):
            markers.append((line, number))
        else:
            page.prose.append((number, line))
            if line.strip():
                _refuse_markers(page, markers)
                markers = []
                _read_prose(page, line, number)
    _refuse_markers(page, markers)
    _pair_callouts(page)
    return page


def _read_meta(page: Page) -> int:
    """Read the front matter; return how many lines it has."""
    if page.lines[:1] != ["---"] or "---" not in page.lines[1:]:
        return 0
    last = page.lines.index("---", 1)
    try:
        page.meta = yaml.safe_load("\n".join(page.lines[1:last])) or {}
    except yaml.YAMLError as error:
        page.refuse(1, f"front matter that is not YAML: {' '.join(str(error).split())}")
    return last + 1


def _closing(lines: list[str], start: int, fence: re.Match[str]) -> int | None:
    """Return the line that closes a fence, which has the same ticks."""
    for index in range(start, len(lines)):
        if lines[index].strip("> \t") == fence["ticks"]:
            return index
    return None


def _refuse_markers(page: Page, markers: list[tuple[str, int]]) -> None:
    for marker, number in markers:
        page.refuse(number, f"no fence follows the marker {marker}")


def _read_prose(page: Page, line: str, number: int) -> None:
    """Read a line outside any fence."""
    bare = _CODE_SPAN.sub("", line)
    if "<!--" in bare:
        page.refuse(
            number,
            "this comment is not a marker; write one alone on its line: "
            f"{CONTINUES}, {EXPECTED}, <!-- within 5% -->, <!-- below 1e-6 -->",
        )
    if _SNIPPET.search(bare):
        page.refuse(number, "an include outside a listing: use ```py title=…")
    if _HTML.search(_INLINE.sub("", bare)):
        page.refuse(number, "raw HTML, which nothing checks: write it in Markdown")
    images = [Image(m["alt"], m["target"], number) for m in _IMAGE.finditer(bare)]
    if len(images) != bare.count("!["):
        page.refuse(number, "a picture is written on one line: ![what it shows](path)")
    page.images.extend(images)


def _pair_callouts(page: Page) -> None:
    """Check that each ``/// kind`` has a ``///`` that ends it."""
    opened: list[tuple[int, str]] = []
    for number, line in page.prose:
        if not line.startswith("///"):
            continue
        slashes = line[: len(line) - len(line.lstrip("/"))]
        if line.rstrip() != slashes:
            opened.append((number, slashes))
        elif opened and opened[-1][1] == slashes:
            opened.pop()
        else:
            page.refuse(number, f"{slashes} does not end a call-out or tab")
    for number, slashes in opened:
        page.refuse(number, f"no {slashes} ends this call-out or tab")


def _read_fence(
    page: Page,
    fence: re.Match[str],
    body: str,
    number: int,
    markers: list[tuple[str, int]],
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
    for marker, line in markers:
        if marker == CONTINUES and info != "python":
            page.refuse(line, "cont must stand before a ```python block")
        if marker == EXPECTED and info != "text":
            page.refuse(line, "expected-output must stand before a ```text block")
        if marker not in (CONTINUES, EXPECTED) and info != "text":
            page.refuse(line, "a tolerance stands above the marker of an output")
    given = dict(markers)
    if info == "python":
        _read_run(page, body, number, CONTINUES in given)
    elif info == "text":
        _read_output(page, body, number, given)
    elif language in ("py", "js"):
        _read_listing(page, info, body, number)
    elif info in INERT_LANGUAGES:
        reason = _inert_problem(info, body)
        if reason:
            page.refuse(number, reason)
    else:
        page.refuse(
            number,
            f"```{info} is not one of the forms of a page, so nothing checks it; they "
            f"are ```python (run), ```text (an output), ```py title=… (a listing) "
            f"and, shown only, {', '.join(sorted(INERT_LANGUAGES))}",
        )


def _read_run(page: Page, code: str, number: int, continues: bool) -> None:
    block = Block(code, number)
    if continues and not page.chains:
        page.refuse(number, "cont, but there is no block before it to continue")
    if continues and page.chains:
        page.chains[-1].blocks.append(block)
    else:
        page.chains.append(Chain([block]))


def _read_output(page: Page, text: str, number: int, markers: dict[str, int]) -> None:
    tolerance = Tolerance()
    for marker, line in markers.items():
        found = _TOLERANCE.fullmatch(marker)
        if found:
            within, below = float(found["within"] or 0), float(found["below"] or 0)
            if bool(found["both"]) != bool(within and below):
                page.refuse(
                    line, "wanted <!-- within 5%, below 1e-6 --> or one of both"
                )
            tolerance = Tolerance(within / 100, below, line)
    if EXPECTED not in markers:
        page.refuse(
            number, f"this output is compared with nothing: put {EXPECTED} here"
        )
    elif not page.chains:
        page.refuse(number, "an output, but there is no run block before it")
    elif page.chains[-1].blocks[-1].output:
        page.refuse(number, "the run block before it has an output already")
    else:
        page.chains[-1].blocks[-1].output = Output(text, number, tolerance)


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
        listing = Listing(include["path"], include["section"], number)
        for other in page.listings:
            # Usually one section was confused with another of the same file.
            if (other.path, other.section) == (listing.path, listing.section):
                page.refuse(number, f"the listing in line {other.line} shows this too")
        page.listings.append(listing)


def _inert_problem(language: str, text: str) -> str | None:
    """Return what is wrong with a block that does not run, or None.

    Disguised Python is refused, because a reader would take it for code that has run.
    Data must at least parse.
    """
    if _PYTHON.search(text):
        return f"this is Python, shown as {language} and never run: use ```python"
    if language == "console" and not all(map(_COMMAND.match, text.splitlines())):
        return "a console block holds commands, each after $: an output must have run"
    try:
        if language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "yaml":
            yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        return f"this is not {language}: {' '.join(str(error).split())}"
    return None


def _code_problems(code: str) -> Iterator[tuple[int, str]]:
    """Return each problem of a block with its line; line 0 is the block as a whole."""
    try:
        tree = ast.parse(code)
        # Some errors, such as a return outside a function, appear only when compiling.
        compile(code, "<string>", "exec")
    except SyntaxError as error:
        yield error.lineno or 1, f"SyntaxError: {error.msg}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "__name__":
            reason = "__name__ is not set in a run block, so this would never run"
            yield node.lineno, reason
    if all(_is_idle(node) for node in tree.body):
        yield 0, "this block does nothing when it runs"


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
