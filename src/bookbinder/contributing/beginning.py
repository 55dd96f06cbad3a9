"""Begin a chapter: a copy of the tested page that shows what a chapter is made of.

All that a chapter needs besides is written with it: its entry in the navigation, its
row in the list of chapters and, if asked for, a module of the library with its tests.
What is written passes every test at once.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from bookbinder.contributing.inserting import ChapterError, with_line
from bookbinder.contributing.modules import add_module
from bookbinder.contributing.placing import INDEX, titles
from bookbinder.names.chapters import chapter_path, slug_of
from bookbinder.names.links import link_problems
from bookbinder.numbers.numerals import passages
from bookbinder.outputs import write_whole
from bookbinder.page import read_page, split_lines

__all__ = ["TEMPLATE", "begin"]

TEMPLATE = "docs/chapters/a-chapter-to-copy.md"
_SETTINGS = "mkdocs.yml"
_PLAIN = re.compile(r"[\w ,.:;'’?/()-]+")
_CHAPTER_ENTRY = r"- .*: chapters/\d\d-[\w-]+\.md"
_CHAPTER_ROW = r"\| \[.*\]\(chapters/\d\d-[\w-]+\.md\) \|.*\|"


def begin(root: Path, name: str, *, question: str = "", module: str = "") -> list[str]:
    """Write a new chapter, all of it or nothing.

    Args:
        root: The repository.
        name: Its title.
        question: What it answers; that of the page that is copied, if it is empty.
        module: The name of a new module of the library, if one is wanted.

    Returns:
        What was written, and what to do next, in lines.

    Raises:
        ChapterError: If a chapter cannot be called so; nothing is written then.
    """
    name, question = " ".join(name.split()), " ".join(question.split())
    _refuse_name(root, name)
    if question:
        _refuse_question(question)
    path = chapter_path(name, root)
    text = (root / TEMPLATE).read_text("utf-8")
    usual = _question_of(text)
    new = {path: _chapter(text, name, question or usual)}
    for file, like, line in (
        (_SETTINGS, _CHAPTER_ENTRY, _entry(name, path)),
        (INDEX, _CHAPTER_ROW, _row(name, path, question or usual)),
    ):
        new[file] = with_line((root / file).read_text("utf-8"), like, line, path=file)
    if module:
        add_module(root, module, path, new)
    return list(_written(root, new, path))


def _refuse_name(root: Path, name: str) -> None:
    if not name:
        raise ChapterError('wanted a title: make chapter NAME="Attention sinks"')
    _refuse_words("NAME", name)
    if not 3 <= len(name) <= 60 or not name[0].isupper():
        raise ChapterError(
            f"NAME={name!r}: wanted 3 to 60 characters that begin with a capital"
        )
    for path, title in titles(root).items():
        if slug_of(title) == slug_of(name):
            raise ChapterError(f"NAME={name!r}: {path} has this title, take another")
    page = read_page(f"# {name}\n\n[{name}](#{slug_of(name)})\n", "docs/new.md")
    if link_problems(page, root):
        raise ChapterError(
            f"NAME={name!r}: wanted a word that says what the chapter is about: links "
            "to it are held to its words"
        )


def _refuse_question(question: str) -> None:
    _refuse_words("QUESTION", question)
    if not question.endswith("?"):
        raise ChapterError(f"QUESTION={question!r}: wanted a question mark at its end")


def _refuse_words(what: str, words: str) -> None:
    """Refuse what would be read as a mark of Markdown, or as a number."""
    if not _PLAIN.fullmatch(words):
        strange = "".join(sorted({sign for sign in words if not _PLAIN.match(sign)}))
        raise ChapterError(
            f"{what}={words!r}: wanted words alone, without {strange}; formulas and "
            "code come below"
        )
    numbers = [each for p in passages(read_page(words, "")) for each in p.numbers]
    if numbers:
        raise ChapterError(
            f"{what}={words!r}: a page backs each of its numbers by a run, and nothing "
            f"has run yet: say it without {numbers[0].text!r}, and add it later"
        )


def _question_of(text: str) -> str:
    """Give the line below the title."""
    title, empty, question, *_ = split_lines(text)
    if not title.startswith("# ") or empty or not question.endswith("?"):
        raise ChapterError(f"{TEMPLATE}: wanted a title, then its question alone")
    return question


def _chapter(text: str, name: str, question: str) -> str:
    _, _, _, *rest = split_lines(text)
    return "\n".join([f"# {name}", "", question, *rest]) + "\n"


def _entry(name: str, path: str) -> str:
    line = f"{name}: {path.removeprefix('docs/')}"
    try:
        plain = yaml.safe_load(line) == {name: path.removeprefix("docs/")}
    except yaml.YAMLError:
        plain = False
    return "- " + (line if plain else json.dumps(name) + line.removeprefix(name))


def _row(name: str, path: str, question: str) -> str:
    return f"| [{name}]({path.removeprefix('docs/')}) | {question} |"


def _written(root: Path, new: Mapping[str, str], path: str) -> Iterator[str]:
    for name, text in new.items():
        there = (root / name).exists()
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(root / name, text)
        yield f"{'changed' if there else 'made'} {name}"
    yield "it stands last: move its lines to where it belongs"
    yield f"next: make serve, and write; then make outputs PAGE={path}"
    yield f"and make page PAGE={path}"
