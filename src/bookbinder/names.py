"""Check that names of this project on a page exist: library, commands, files, links.

It checks only what clearly belongs to the project: a path that begins with the name of
one of its packages, the arguments of a function of the library, ``make`` and
``tested-transformer`` with their arguments, and files below a folder of the repository.
Other text in backticks is up to the author. A link to a page or a heading of the book
is followed here, so that its author hears of it with its line; the build of the site
follows all others, too.
"""

import ast
import contextlib
import inspect
import io
import pkgutil
import re
import shlex
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

from bookbinder.page import CodeSpan, Page, Problem, load_page
from bookbinder.places import PACKAGES

_PROGRAM = re.compile(r"make(?: [a-z][\w-]*| [A-Z]+=\S+)+|tested-transformer(?: .*)?")
_DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?=\(|$)")
_FILE = re.compile(r"(?:src|tests|docs|benchmarks|examples|theme)(?:/[\w.-]+)+/?")


def name_problems(page: Page, root: Path) -> Iterator[Problem]:
    """Return a problem for each name on a page that does not exist."""
    quoted = [*page.code_spans]
    for fence in page.fences:
        if fence.info == "console":
            for line, text in enumerate(fence.text.splitlines(), start=fence.line + 1):
                if text.startswith("$ "):
                    quoted.append(CodeSpan(text[2:], line))
    for span in quoted:
        if reason := _unknown(span.text, root):
            yield Problem(page.path, span.line, f"`{span.text}`: {reason}")
    for link in page.links:
        if reason := _no_place(link.target, page, root):
            yield Problem(page.path, link.line, f"{link.target}: {reason}")


def _no_place(target: str, page: Page, root: Path) -> str:
    """Return why a link to a page of the book, or a heading of it, leads nowhere."""
    path, _, anchor = target.partition("#")
    file = (root / page.path).parent / (path or Path(page.path).name)
    if ":" in path or file.suffix != ".md":
        return ""
    if path and not file.is_file():
        near = _near(file.name, [other.name for other in file.parent.glob("*.md")])
        return f"there is no such page{near}"
    # The anchors of the reference come from the library.
    if not anchor or file.parent.name == "reference":
        return ""
    # The text of this page may differ from that of its file.
    there = load_page(file, root) if path else page
    known = [heading.anchor for heading in there.headings]
    return "" if anchor in known else f"there is no such heading{_near(anchor, known)}"


def _unknown(text: str, root: Path) -> str:
    """Return what is wrong with a text in backticks, or ""."""
    if _PROGRAM.match(text):
        try:
            program, *words = shlex.split(text, comments=True)
        except ValueError as error:
            return f"no shell reads this: {error}"
        return _no_target(words, root) if program == "make" else _no_option(words)
    if dotted := _DOTTED.match(text):
        return _no_name(dotted[0])
    if _FILE.fullmatch(text):
        ignored = (root / ".gitignore").read_text("utf-8").split()
        generated = any(text.strip("/").startswith(name.strip("/")) for name in ignored)
        return "" if generated or (root / text).exists() else "there is no such file"
    return _no_argument(text)


def _no_target(words: list[str], root: Path) -> str:
    makefile = (root / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)
    # make passes its variables on to the programs that it starts.
    read = makefile + (root / "mkdocs.yml").read_text("utf-8")
    for word in words:
        name, variable, _ = word.partition("=")
        if not variable and word not in targets:
            return f"the Makefile has no {word}{_near(word, targets)}"
        if variable and not re.search(rf"\b{re.escape(name)}\b", read):
            return f"neither the Makefile nor mkdocs.yml reads {name}"
    return ""


def _no_option(words: list[str]) -> str:
    """Check a command's name and options against its help."""
    name = words[0] if words and re.fullmatch(r"[a-z]+", words[0]) else ""
    commands = re.findall(r"[\w-]+", _help(""))
    if name and name not in commands:
        return f"the command has no {name}{_near(name, commands)}"
    options = re.findall(r"--[\w-]+", _help(name))
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in options:
            return f"{name or 'the command'} has no {option}{_near(option, options)}"
    return ""


@cache
def _help(name: str) -> str:
    from tested_transformer.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*filter(None, [name]), "--help"])
    return printed.getvalue()


def _no_name(path: str) -> str:
    try:
        pkgutil.resolve_name(path)
    except (AttributeError, ImportError):
        above, _, name = path.rpartition(".")
        if reason := _no_name(above):
            return reason
        owner = pkgutil.resolve_name(above)
        # A field of a dataclass without a default is an annotation alone.
        if name not in getattr(owner, "__annotations__", ""):
            return f"there is no {path}{_near(name, dir(owner))}"
    return ""


def _no_argument(text: str) -> str:
    """Check that a function of the library has the keyword arguments shown."""
    library = import_module(PACKAGES[0])
    with contextlib.suppress(SyntaxError):
        code = text.replace("=)", "=...)").replace("…", "...")
        match ast.parse(code, mode="eval").body:
            case ast.Call(ast.Name(function)) as call if function in library.__all__:
                takes = inspect.signature(getattr(library, function)).parameters
                for word in call.keywords:
                    if word.arg and word.arg not in takes:
                        near = _near(word.arg, takes)
                        return f"{function} takes no {word.arg}{near}"
            case _:
                pass
    return ""


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return f": {near[0]}?" if near else ""
