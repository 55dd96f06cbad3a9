"""Check that names of this project on a page exist: library, commands, files, headings.

It checks only what clearly belongs to the project: a path that begins with
``tested_transformer`` or ``transformer_book``, the arguments of a function of the
library, ``make`` and ``tested-transformer`` with their arguments, and files below a
folder of the repository. Other text in backticks is up to the author.
"""

import ast
import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bookbinder.page import Page, Problem, load_page
from bookbinder.places import PACKAGES

__all__ = ["name_problems", "unresolved_command"]

_COMMAND = re.compile(r"make(?: [a-z][\w-]*| [A-Z]+=\S+)+|tested-transformer(?: .*)?")
_DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?=\(|$)")
_FILE = re.compile(r"(?:src|tests|docs|benchmarks|examples|theme)(?:/[\w.-]+)+/?")


def name_problems(page: Page, root: Path) -> Iterator[Problem]:
    """Return a problem for each name on a page that does not exist."""
    quoted = [(span.line, span.text) for span in page.code_spans()]
    for fence in page.fences:
        if fence.info == "console":
            lines = enumerate(fence.text.splitlines(), start=fence.line + 1)
            quoted += [(n, line[2:]) for n, line in lines if line.startswith("$ ")]
    for number, text in quoted:
        reason = _unresolved(text, root)
        if reason:
            yield Problem(page.path, number, f"`{text}`: {reason}")
    for link in page.links():
        if page.path.startswith("docs/") and ":" not in link.target:
            reason = _unresolved_link(link.target, page, root)
            if reason:
                yield Problem(page.path, link.line, f"{link.target}: {reason}")


def _unresolved_link(target: str, page: Page, root: Path) -> str | None:
    """Return what is wrong with a link within the book, or None."""
    path, _, anchor = target.partition("#")
    file = (root / page.path).parent / path if path else root / page.path
    if path and not file.exists():
        near = get_close_matches(file.name, [f.name for f in file.parent.glob("*.md")])
        return f"there is no such page{f': {near[0]}?' if near else ''}"
    # The text of this page may differ from its file.
    other = load_page(file, root) if path else page
    if not anchor or file.suffix != ".md" or file.parent.name == "reference":
        return None
    known = {*other.anchors()}
    return None if anchor in known else f"no such heading{_near(anchor, known)}"


def _unresolved(text: str, root: Path) -> str | None:
    if _COMMAND.match(text):
        return unresolved_command(text, root)
    if found := _DOTTED.match(text):
        return _unresolved_path(found[0])
    if _FILE.fullmatch(text):
        there = (root / text).exists() or _is_ignored(text, root)
        return None if there else "there is no such file"
    return _unresolved_argument(text)


def unresolved_command(text: str, root: Path) -> str | None:
    """Return what is wrong with a command, or None."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        return f"no shell reads this: {error}"
    match words:
        case ["make", *rest]:
            return _unresolved_target(rest, root)
        case ["tested-transformer", *rest]:
            return _unresolved_option(rest)
        case _:
            return None


def _unresolved_target(words: list[str], root: Path) -> str | None:
    makefile = (root / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    # make passes its variables on to the programs that it starts.
    read = makefile + (root / "mkdocs.yml").read_text("utf-8")
    for word in words:
        name, equals, _ = word.partition("=")
        if not equals and word not in targets:
            return f"the Makefile has no {word}{_near(word, targets)}"
        if equals and not re.search(rf"\b{re.escape(name)}\b", read):
            return f"neither the Makefile nor mkdocs.yml reads {name}"
    return None


def _unresolved_option(words: list[str]) -> str | None:
    """Check a command's name and options against its help."""
    name = words[0] if words and re.fullmatch(r"[a-z]+", words[0]) else ""
    known = set(re.findall(r"[\w-]+", _help("")))
    if name and name not in known:
        return f"the command has no {name}{_near(name, known)}"
    options = set(re.findall(r"--[\w-]+", _help(name)))
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in options:
            return f"{name or 'the command'} has no {option}{_near(option, options)}"
    return None


@cache
def _help(name: str) -> str:
    from tested_transformer.cli import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*filter(None, [name]), "--help"])
    return told.getvalue()


def _unresolved_path(text: str) -> str | None:
    path, *names = text.split(".")
    found: Any = import_module(path)
    for name in names:
        path = f"{path}.{name}"
        if not hasattr(found, name) and hasattr(found, "__path__") and find_spec(path):
            import_module(path)
        if not hasattr(found, name) and name not in getattr(
            found, "__annotations__", ""
        ):
            return f"there is no {path}{_near(name, {*dir(found)})}"
        found = getattr(found, name, None)
    return None


def _unresolved_argument(text: str) -> str | None:
    """Check that a function of the library has the keyword arguments shown."""
    try:
        call = ast.parse(
            text.replace("=)", "=...)").replace("…", "..."), mode="eval"
        ).body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    library = import_module(PACKAGES[0])
    if call.func.id not in library.__all__:
        return None
    takes = inspect.signature(getattr(library, call.func.id)).parameters
    for word in call.keywords:
        if word.arg and word.arg not in takes:
            return f"{call.func.id} takes no {word.arg}{_near(word.arg, {*takes})}"
    return None


def _near(name: str, known: set[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return f": {near[0]}?" if near else ""


def _is_ignored(text: str, root: Path) -> bool:
    """Return whether git ignores a path, as for generated files."""
    ignored = (root / ".gitignore").read_text("utf-8").split()
    return any(text.strip("/").startswith(line.strip("/")) for line in ignored)
