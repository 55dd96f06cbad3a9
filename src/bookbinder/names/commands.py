"""Hold every command that a page shows against what it calls.

A target and a variable of make stand in the Makefile, a module is there and knows its
words, and `tested-transformer` is asked for its help on the command and its options. A
page that is handed over is there, or is the one that `make chapter` would begin, and
the port of an address is that of `make serve`.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bookbinder.names.chapters import chapter_path
from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["command_problems", "wrong_command"]

_COMMAND = "tested-transformer"
_CLI = "tested_transformer.cli"
_BEGUN = re.compile(r'make chapter .*?NAME="(?P<name>[^"]+)"')
_PAGE = re.compile(r"\bPAGE=(\S+\.md)\b")
_ADDRESS = re.compile(r"\b(?:127\.0\.0\.1|localhost):(?P<port>\d+)")
_PORT = re.compile(r"\bPORT=(\d+)")


def command_problems(page: Page, root: Path) -> list[Problem]:
    """Find commands in the console blocks of a page that nothing answers to."""
    problems: list[Problem] = []
    begun = ""
    for number, command in _shown(page):
        name = _BEGUN.match(command)
        begun = chapter_path(name["name"], root) if name else begun
        handed = _PAGE.search(command)
        reason = wrong_command(command, root)
        if handed and not (root / handed[1]).exists() and handed[1] != begun:
            reason = f"there is no {handed[1]}"
        if reason:
            problems.append(Problem(page.path, number, f"{command}: {reason}"))
    return [*problems, *_other_ports(page, root)]


def _other_ports(page: Page, root: Path) -> Iterator[Problem]:
    """Find addresses on which neither `make serve` listens nor what the line begins."""
    served = re.search(r"^PORT \?= (\d+)$", _text(root / "Makefile"), re.MULTILINE)
    if served is None:
        return
    for number, line in enumerate(page.lines, start=1):
        for address in _ADDRESS.finditer(line):
            if address["port"] not in (served[1], *_PORT.findall(line)):
                reason = f"{address[0]}: make serve listens on {served[1]}"
                yield Problem(page.path, number, reason)


def _shown(page: Page) -> Iterator[tuple[int, str]]:
    prose = dict(prose_lines(page))
    console = False
    for number, line in enumerate(page.lines, start=1):
        if number in prose:
            console = False
        elif line.startswith("```"):
            console = line == "```console"
        elif console and line.startswith("$ "):
            yield number, line.removeprefix("$ ")


def wrong_command(text: str, root: Path) -> str | None:
    """Say what of a command is that of nothing, or nothing."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        return f"no shell reads this: {error}"
    match words:
        case ["make", *rest]:
            return _wrong_target(rest, root)
        case ["torchrun" | "python", *_] if "-m" in words[:-1]:
            _, module, *rest = words[words.index("-m") :]
            if module == _CLI:
                return _wrong_option(rest)
            return _wrong_module(module, rest, root)
        case ["tested-transformer", *rest]:
            return _wrong_option(rest)
        case _:
            return None


def _wrong_target(words: list[str], root: Path) -> str | None:
    makefile = _text(root / "Makefile")
    variables = makefile + _text(root / "mkdocs.yml")  # make hands them on to mkdocs
    for word in words:
        if re.fullmatch(r"[a-z-]+", word) and not re.search(
            rf"^{word}:", makefile, re.MULTILINE
        ):
            return f"the Makefile has no {word}"
        name, equals, _ = word.partition("=")
        if equals and not re.search(rf"\b{re.escape(name)}\b", variables):
            return f"neither the Makefile nor mkdocs.yml has a variable {name}"
    return None


def _wrong_module(module: str, words: list[str], root: Path) -> str | None:
    folder = module.replace(".", "/")
    if not any((root / base / folder).exists() for base in ("", "src")):
        return f"there is no module {module}"
    files = [*(root / folder).glob("*.py"), *(root / "src" / folder).glob("*.py")]
    source = "\n".join(map(_text, files))
    for word in words:
        if re.fullmatch(r"(?:--)?[a-z]\w*", word) and f'"{word}"' not in source:
            return f"{module} knows no {word}"
    return None


def _wrong_option(words: list[str]) -> str | None:
    """Ask the help of a command for its options, and that of all for its name."""
    name = words[0] if words and not words[0].startswith("-") else ""
    if name and not _says(_help(""), name):
        return f"the command has no {name}"
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and not _says(_help(name), option):
            return f"{_COMMAND} {name} has no {option}".replace("  ", " ")
    return None


def _says(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


@cache
def _help(name: str) -> str:
    """Give what the command says of itself, or of one of its commands."""
    from tested_transformer.cli import main

    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main([*filter(None, [name]), "--help"])
    return told.getvalue()


def _text(file: Path) -> str:
    """Read a file of the repository; a copy of the book alone may lack it."""
    return file.read_text(encoding="utf-8") if file.is_file() else ""
