"""Read a page in one pass over its Markdown, for all other modules.

A page has three forms of code: a run block, the output of a run block, and a listing
from ``src``. What has another form is passed over here, and refused by ``audit``, which
sees it in the finished page.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, starmap
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pymdownx.slugs import slugify

CONTINUES = "<!--pytest-codeblocks:cont-->"
EXPECTED = "<!--pytest-codeblocks:expected-output-->"
# Languages that are shown but never run; none of them may look like Python.
INERT_LANGUAGES = frozenset(
    {"bibtex", "console", "json", "live", "markdown", "mermaid", "toml", "yaml"}
)

_FENCE = re.compile(r"(?P<ticks>`{3,})(?P<info>[^`]*)")
_LISTING = re.compile(
    r'(?:py|js) title="(?P<path>[^"]+)"\n--8<-- "(?P=path):(?P<section>[^":]+)"\n'
)
_SNIPPET = re.compile(r"-+8<-+")
_TOLERANCE = re.compile(
    r"<!-- (?:within (?P<within>\d+(?:\.\d+)?)%)?(?:(?<=%), )?"
    r"(?:below (?P<below>\d(?:\.\d+)?e-\d+))?(?<=[\d%]) -->"
)
_HEADING = re.compile(r"(?P<marks>#{1,6}) (?P<text>.+?)(?: #+)?")
_SLUG = slugify(case="lower")
_MARKS = re.compile(r"[`*]|\]\([^)]*\)|\[")
_HTML = re.compile(r"</?[a-zA-Z][\w-]*(?=[\s/>]|$)")
_IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<target>[^)\s]*)[^)]*\)")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]*)\)")
_CODE_SPAN = re.compile(r"(?<!\\)(`+)(?!`)(?P<text>.*?)(?<!`)\1(?!`)")
_FORMULA = re.compile(r"(?<![\\$])\$[^$\n]+\$")
# They could make a page show one thing and run another; and halves of characters, which
# no file can hold.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
    r"|[\ud800-\udfff]"
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


class PageError(Exception):
    """The problems of a page, one ``page.md:line: reason`` per line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


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
    """

    within: float = 0.0
    below: float = 0.0


@dataclass(frozen=True)
class Output:
    """The text that a run block must print; ``line`` is the line of its fence."""

    text: str
    line: int
    tolerance: Tolerance = Tolerance()


@dataclass
class Block:
    """A run block; ``line`` and ``end`` are the lines of its two fences."""

    code: str
    line: int
    end: int
    output: Output | None = None


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
class Heading:
    """A heading: its level, its Markdown, and the anchor that the site gives it."""

    level: int
    text: str
    anchor: str
    line: int

    @property
    def words(self) -> str:
        """Its text without marks."""
        return _MARKS.sub("", self.text)


@dataclass(frozen=True)
class CodeSpan:
    """What stands in backticks in the prose."""

    text: str
    line: int


@dataclass(frozen=True)
class Link:
    """A link of the prose, with its text."""

    text: str
    target: str
    line: int


@dataclass
class Page:
    """Everything that other modules need to know about one page.

    ``prose`` is the text outside fences and comments, as (line, text); ``meta`` is the
    front matter; ``folds`` has the lines that a reader sees only after a click. If a
    fence or a marker is wrong, the code of the page is not known, and nothing is said
    about what it shows.
    """

    path: str
    lines: list[str]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    fences: list[Fence] = field(default_factory=list[Fence])
    prose: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    headings: list[Heading] = field(default_factory=list[Heading])
    code_spans: list[CodeSpan] = field(default_factory=list[CodeSpan])
    links: list[Link] = field(default_factory=list[Link])
    folds: list[range] = field(default_factory=list[range])
    chains: list[Chain] = field(default_factory=list[Chain])
    listings: list[Listing] = field(default_factory=list[Listing])
    images: list[Image] = field(default_factory=list[Image])
    problems: list[Problem] = field(default_factory=list[Problem])
    code_is_known: bool = True

    @property
    def blocks(self) -> list[Block]:
        """Every run block, in the order of the page."""
        return [block for chain in self.chains for block in chain.blocks]

    def runs(self) -> list[list[Block]]:
        """Return for each run block what has to run: its chain, down to itself."""
        return [
            chain.blocks[:end]
            for chain in self.chains
            for end in range(1, len(chain.blocks) + 1)
        ]

    def refuse(self, line: int, reason: str, *, code: bool = False) -> None:
        """Record a problem at a line, perhaps one with the code of the page."""
        self.problems.append(Problem(self.path, line, reason))
        self.code_is_known = self.code_is_known and not code

    @property
    def title(self) -> str:
        """The words of the first heading."""
        return self.headings[0].words if self.headings else ""

    @property
    def figures(self) -> PurePosixPath:
        """The folder of its pictures, from the root of the repository."""
        path = PurePosixPath(self.path)
        # A page of the reference may have the same name as a chapter.
        before = "reference-" if path.parent.name == "reference" else ""
        return PurePosixPath("docs/assets/figures", f"{before}{path.stem}")

    @property
    def parts(self) -> dict[str, range]:
        """The lines of each part, by the anchor of the ``##`` that begins it.

        What stands above the first of them is a part, too, and its anchor is "".
        """
        begins = {"": 1} | {h.anchor: h.line for h in self.headings if h.level == 2}
        bounds = pairwise([*begins.values(), len(self.lines) + 1])
        return dict(zip(begins, starmap(range, bounds), strict=True))


def split_lines(text: str) -> list[str]:
    """Split only at line feeds, as Markdown, Python and editors count lines."""
    return text.removesuffix("\n").split("\n") if text else []


def invisible(text: str) -> str:
    """Return the first character of a text that a page may not hold, or ""."""
    character = _INVISIBLE.search(text)
    return character[0] if character else ""


def load_page(file: Path, root: Path) -> Page:
    """Read a page from its file; its name is kept relative to ``root``."""
    # Either may be named by way of a link.
    real, home = file.resolve(), root.resolve()
    path = real.relative_to(home) if real.is_relative_to(home) else Path(file.name)
    return read_page(file.read_text(encoding="utf-8"), path.as_posix())


def read_page(text: str, path: str) -> Page:
    """Read a page from its text, and record what is wrong with it."""
    page = Page(path, split_lines(text))
    for number, line in enumerate(page.lines if invisible(text) else (), start=1):
        if character := invisible(line):
            page.refuse(number, f"an invisible character, {character!r}: take it out")
    index = _read_meta(page)
    markers: dict[str, int] = {}  # comments whose fence has not come yet
    while index < len(page.lines):
        line, number = page.lines[index], index + 1
        index += 1
        if opening := _FENCE.fullmatch(line):
            rest = range(index, len(page.lines))
            closing = (n for n in rest if page.lines[n].rstrip() == opening["ticks"])
            end = next(closing, -1) + 1
            if not end:
                page.refuse(number, "this fence is never closed", code=True)
                break
            text = "".join(f"{inner}\n" for inner in page.lines[index : end - 1])
            fence = Fence(opening["info"].strip(), text, number, end)
            page.fences.append(fence)
            _read_fence(page, fence, markers)
            markers, index = {}, end
        elif line in (CONTINUES, EXPECTED) or _TOLERANCE.fullmatch(line):
            markers[line] = number
        else:
            page.prose.append((number, line))
            if line.strip():
                _refuse_markers(page, markers)
                markers = {}
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


def _refuse_markers(page: Page, markers: dict[str, int]) -> None:
    for marker, number in markers.items():
        page.refuse(number, f"no fence follows the marker {marker}", code=True)


def _read_prose(page: Page, line: str, number: int) -> None:
    """Read a line outside any fence."""
    if heading := _HEADING.fullmatch(line):
        _read_heading(page, len(heading["marks"]), heading["text"], number)
    bare = _CODE_SPAN.sub("", line)
    if "<!--" in bare:
        page.refuse(
            number,
            "this comment is not a marker; write one alone on its line: "
            f"{CONTINUES}, {EXPECTED}, <!-- within 5% -->, <!-- below 1e-6 -->",
            code=line.startswith("<!--"),
        )
    if _SNIPPET.search(bare):
        page.refuse(number, "an include outside a listing: use ```py title=…")
    if _HTML.search(_FORMULA.sub("", bare)):
        page.refuse(number, "raw HTML, which nothing checks: write it in Markdown")
    images = [Image(m["alt"], m["target"], number) for m in _IMAGE.finditer(bare)]
    if len(images) != bare.count("!["):
        page.refuse(number, "a picture is written on one line: ![what it shows](path)")
    # The README draws none: it shows what a page draws, as a test makes sure.
    page.images.extend(images if page.path != "README.md" else [])
    for span in _CODE_SPAN.finditer(line):
        page.code_spans.append(CodeSpan(span["text"].strip(), number))
    # Code spans are not Markdown; replace them by text of the same length.
    bare = _CODE_SPAN.sub(lambda span: re.sub(r"[\[\]()]", " ", span[0]), line)
    for link in _LINK.finditer(bare):
        words = line[slice(*link.span("text"))]
        page.links.append(Link(words, link["target"], number))


def _read_heading(page: Page, level: int, text: str, number: int) -> None:
    """Read a heading, with its anchor, which no other heading of the page has."""
    known = {"", *(heading.anchor for heading in page.headings)}
    name, again = _SLUG(_MARKS.sub("", text), "-"), 0
    while (anchor := f"{name}_{again}" if again else name) in known:
        again += 1
    page.headings.append(Heading(level, text, anchor, number))


def _pair_callouts(page: Page) -> None:
    """Check that each ``/// kind`` has a ``///`` that ends it; keep what is folded."""
    opened, folded = 0, False
    for number, line in [*page.prose, (0, "/// end")]:
        if line.rstrip() == "///":
            if not opened:
                page.refuse(number, "this /// does not end a call-out or tab")
            elif folded:
                page.folds.append(range(opened, number + 1))
            opened = 0
        elif line.startswith("///"):
            if opened:
                page.refuse(opened, "no /// ends this call-out or tab")
            opened, folded = number, line.startswith("/// details")


def _read_fence(page: Page, fence: Fence, markers: dict[str, int]) -> None:
    """Read a fence, with the markers above it."""

    def refuse(reason: str, line: int = fence.line) -> None:
        page.refuse(line, reason, code=True)

    for marker, line in markers.items():
        expected = "python" if marker == CONTINUES else "text"
        if fence.info != expected:
            refuse(f"{marker} must stand before a ```{expected} block", line)
    language = fence.info.partition(" ")[0]
    if fence.info == "python":
        block = Block(fence.text, fence.line, fence.end)
        if CONTINUES not in markers:
            page.chains.append(Chain([block]))
        elif page.chains:
            page.chains[-1].blocks.append(block)
        else:
            refuse("it continues, but there is no block before it")
    elif fence.info == "text" and EXPECTED in markers:
        if not page.chains:
            refuse("an output, but there is no run block before it")
        elif page.chains[-1].blocks[-1].output:
            refuse("the run block before it has an output already")
        else:
            output = Output(fence.text, fence.line, _tolerance(markers))
            page.chains[-1].blocks[-1].output = output
    elif language in ("py", "js"):
        listing = _LISTING.fullmatch(f"{fence.info}\n{fence.text}")
        if not listing:
            refuse(
                'a listing is ```py title="src/…/module.py" above one line with the '
                'same file, --8<-- "src/…/module.py:section"'
            )
            return
        page.listings.append(Listing(listing["path"], listing["section"], fence.line))
    elif fence.info in INERT_LANGUAGES and (reason := _inert_problem(fence)):
        refuse(reason)


def _tolerance(markers: dict[str, int]) -> Tolerance:
    for marker in markers:
        if declared := _TOLERANCE.fullmatch(marker):
            within, below = (float(number or 0) for number in declared.groups())
            return Tolerance(within / 100, below)
    return Tolerance()


def _inert_problem(fence: Fence) -> str | None:
    """Return why a reader could take a block that does not run for one that has."""
    if _PYTHON.search(fence.text):
        return f"this is Python, shown as {fence.info} and never run: use ```python"
    commands = all(map(_COMMAND.match, fence.text.splitlines()))
    if fence.info == "console" and not commands:
        return "a console block holds commands, each after $: an output must have run"
    return None
