"""Hold every name in backticks against what there is.

What stands in backticks is a name: of the page's own code, of the library, of Python
or of PyTorch as installed. Or it is a shape, a file, a command, or something that a
block of the page shows to the letter. Nothing else may stand there. A single letter is
easily another one: it stands in code under the same heading, or in a formula beside it.
What the reference shows of the library, by a name behind ``:::``, is there as well.
"""

import contextlib
import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from bookbinder.flows.flowcharts import SHAPE
from bookbinder.flows.sizes import SIZES
from bookbinder.names.commands import wrong_command
from bookbinder.names.confusing import code_by_part, part_of
from bookbinder.names.resolving import LIBRARY, known_names, wrong_python
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import Span, prose_lines, spans

__all__ = ["name_problems"]

_WORD = re.compile(r"[^\W\d]\w*")
_REMARK = re.compile(r'"""[^"].*?"""|(?<!["\'])# [^\n]*', re.DOTALL)
_FORMULA = re.compile(r"\$[^$`]+\$")
# Code in backticks that is more than a letter: t in `alignment[b, t]`.
_CODE = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"(?:make|python -m|pip install|tested-transformer)\b")
_CONSTANTS = ("True", "False", "None")
# What others' projects are called on pages: a slip in one is none of their names.
_PACKAGES = frozenset({"transformers", "torch", "keras", "flax", "numpy", "jax"})
# Pages on how to write pages show the marks of one.
_MARKUP = re.compile(r"```|///|<!--|\$|!\[|# --8<--")


def name_problems(page: Page, root: Path) -> list[Problem]:
    """Find what stands in backticks and is nothing that there is."""
    shown = _shown(page, root)
    own = frozenset({*_words(shown), *SIZES, *_tools(page, root)})
    letters = _letters_by_part(page, root)
    problems: list[Problem] = []
    for span in spans(page):
        if re.fullmatch("[A-Za-z]", span.text):
            reason = _wrong_letter(span, page, letters)
        else:
            reason = _wrong(span, page, root, shown, own)
        if reason:
            problems.append(Problem(page.path, span.line, f"`{span.text}`: {reason}"))
    for number, line in prose_lines(page):
        # What the reference takes from docstrings, by its name.
        if line.startswith("::: "):
            reason = wrong_python(line.removeprefix("::: "), own, frozenset())
            if reason:
                problems.append(Problem(page.path, number, f"{line}: {reason}"))
    return problems


def _wrong(
    span: Span, page: Page, root: Path, shown: str, own: frozenset[str]
) -> str | None:
    text = span.text
    if not re.search(r"\w", text) or _occurs(text, shown):
        return None
    if _MARKUP.match(text):
        return _wrong_mark(text, page, own)
    if "](https://" in page.lines[span.line - 1] and _theirs(text, own):
        return None  # A name of another project stands beside a link to it.
    if shape := SHAPE.fullmatch(text):
        letters = _WORD.findall(shape["sizes"])
        sizes = {*SIZES, *(name for name in own if len(name) > 1 or name.isupper())}
        unknown = [letter for letter in letters if letter not in sizes]
        return f"{unknown[0]} is no size of the legend" if unknown else None
    if _COMMAND.match(text):
        return wrong_command(text, root)
    if re.fullmatch(r"PIP_[A-Z_]+", text):
        # pip reads each of its options from the environment too.
        flows = (root / ".github").rglob("*.yml")
        known = any(re.search(rf"\b{text}\b", _text(flow)) for flow in flows)
        return None if known else "no workflow of the repository sets it"
    if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+|\.?[\w-]+\.(?:py|md|toml|yml|txt)", text):
        there = (root / text).exists() or _ignored(text, root)
        return None if there or any(LIBRARY.rglob(text)) else "there is no such file"
    # What a formula beside it names, a span may name too.
    beside = _WORD.findall(" ".join(_FORMULA.findall(page.lines[span.line - 1])))
    attributes = frozenset(re.findall(r"\.(\w+)", shown)) | _tools(page, root)
    return wrong_python(text, own | {*beside}, attributes)


def _wrong_mark(text: str, page: Page, own: frozenset[str]) -> str | None:
    """Find what is nearly a known word in the marks that a page on pages shows."""
    whole = _WORD.findall("\n".join(page.lines))
    for word in _WORD.findall(text):
        if len(word) > 3 and word not in own and whole.count(word) == 1:
            near = get_close_matches(word, {*whole, *own} - {word}, n=1, cutoff=0.8)
            if near and near[0].lower() != word.lower():
                return f"nothing else says {word}: {near[0]}?"
    return None


def _wrong_letter(
    span: Span, page: Page, letters: dict[int, frozenset[str]]
) -> str | None:
    line = page.lines[span.line - 1]
    near = {*letters[part_of(span.line, letters)]}
    longer = [code for code in _CODE.findall(line) if len(code) > 1]
    near |= {*_WORD.findall(" ".join(longer))}
    if "shape" in line:
        near |= SIZES.keys()
    # A small letter of code is often the capital of the formula beside it.
    beside = {*_WORD.findall(" ".join(_FORMULA.findall(line)))}
    if span.text in near or {span.text, span.text.upper()} & beside:
        return None
    return "no code under this heading has this letter, and no formula beside it"


def _letters_by_part(page: Page, root: Path) -> dict[int, frozenset[str]]:
    """Give the names of one letter in the code under each heading of level 2."""
    return {
        part: frozenset(word for word in _WORD.findall(code) if len(word) == 1)
        for part, code in code_by_part(page, root).items()
    }


def _theirs(text: str, own: frozenset[str]) -> bool:
    """Tell whether no word of a name is one that everybody knows, or nearly one."""
    words = _WORD.findall(text)
    if any(get_close_matches(word, _CONSTANTS, cutoff=0.75) for word in words):
        return False
    known = own | known_names() | _PACKAGES
    return not any(
        word not in _PACKAGES and get_close_matches(word, known, cutoff=0.85)
        for word in words
        if len(word) > 3
    )


def _shown(page: Page, root: Path) -> str:
    """Give all that stands in the fences of a page, but for remarks on its code."""
    lines: list[str] = []
    inside = False
    for line in page.lines:
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(line)
    for listing in page.listings:
        with contextlib.suppress(ListingError):  # The audit says so.
            lines.append(find_section(root, listing.path, listing.section).text)
    return _REMARK.sub("", "\n".join(lines))


def _tools(page: Page, root: Path) -> frozenset[str]:
    """Give what pages about the repository may name: all of its own tools."""
    if page.path.startswith("docs/"):
        return frozenset()
    files = [*(root / "src/bookbinder").rglob("*.py"), root / "Makefile"]
    stamps = tuple((file, file.stat().st_mtime_ns) for file in files if file.is_file())
    return _words_of(stamps) | {file.name for file in root.iterdir()}


@lru_cache(maxsize=1)
def _words_of(files: tuple[tuple[Path, int], ...]) -> frozenset[str]:
    """Read files once, until one of them is written again."""
    return _words("\n".join(_text(file) for file, _ in files))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


def _occurs(text: str, shown: str) -> bool:
    """Tell whether a page shows this text, bounded as words are."""
    pattern = rf"(?<!\w){re.escape(text)}(?!\w)"
    return re.search(pattern, shown) is not None


def _text(file: Path) -> str:
    """Read a file of the repository; a copy of the book alone may lack it."""
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _ignored(text: str, root: Path) -> bool:
    """Tell whether a path is one that comes into being and that git ignores."""
    ignored = _text(root / ".gitignore").split()
    return any(text.strip("/").startswith(line.strip("/")) for line in ignored)
