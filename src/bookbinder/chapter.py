"""Start a chapter: copy the model page, and add it to the navigation.

Either the page, its entry in the navigation and its row in the list of chapters are all
written, or nothing is. The result passes every test at once.
"""

import json
import re
from pathlib import Path

import yaml
from pymdownx.slugs import slugify

from bookbinder.page import split_lines
from bookbinder.writing import write_whole

__all__ = ["TEMPLATE", "ChapterError", "begin"]

TEMPLATE = "docs/chapters/a-chapter-to-copy.md"
_ENTRY = r"- .*: chapters/(?!a-chapter-to-copy)[\w-]+\.md"
_ROW = r"\| \[.*\]\(chapters/[\w-]+\.md\) \|.*\|"
# Characters with a meaning in Markdown or YAML.
_MARKS = re.compile(r"[\[\]`*_#|<>$\\]")


class ChapterError(ValueError):
    """A chapter cannot be started; the message says what came and what was wanted."""


def begin(root: Path, name: str, *, question: str = "") -> list[str]:
    """Write a new chapter, completely or not at all.

    Args:
        root: The repository.
        name: Its title.
        question: The question it answers; the model page's if empty.

    Returns:
        Lines that say what was written, and what to do next.

    Raises:
        ChapterError: If the name does not fit a chapter; nothing is written then.
    """
    name, question = " ".join(name.split()), " ".join(question.split())
    slug = _slug(name)
    if not slug:
        raise ChapterError('give a title: make chapter NAME="Attention sinks"')
    for what, words in (("NAME", name), ("QUESTION", question)):
        if found := _MARKS.search(words):
            raise ChapterError(f"{what}={words!r}: wanted words, without {found[0]}")
    path = f"chapters/{slug}.md"
    if (root / "docs" / path).exists():
        raise ChapterError(f"NAME={name!r}: docs/{path} already exists")
    lines = split_lines((root / TEMPLATE).read_text("utf-8"))
    title = next(i for i, line in enumerate(lines) if line.startswith("# "))
    question, rest = question or lines[title + 2], lines[title + 3 :]
    # Search engines show the description of a page.
    front = ["---", f"description: {json.dumps(question)}", "---", ""]
    new = {
        f"docs/{path}": "\n".join([*front, f"# {name}", "", question, *rest]) + "\n",
        "mkdocs.yml": _with_line(root, "mkdocs.yml", _ENTRY, _entry(name, path)),
        "docs/index.md": _with_line(
            root, "docs/index.md", _ROW, f"| [{name}]({path}) | {question} |"
        ),
    }
    for file, text in new.items():
        write_whole(root / file, text)
    return [
        f"made docs/{path}",
        "changed mkdocs.yml and docs/index.md, where it stands last: move its lines",
        f"next: make serve, and write; then make outputs PAGE=docs/{path}",
        f"and make page PAGE=docs/{path}",
    ]


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", slugify(case="lower")(title, "-")).strip("-")


def _entry(name: str, path: str) -> str:
    """Return an entry of the navigation, quoted if YAML would misread the title."""
    try:
        plain = yaml.safe_load(f"{name}: {path}") == {name: path}
    except yaml.YAMLError:
        plain = False
    return f"- {name if plain else json.dumps(name)}: {path}"


def _with_line(root: Path, path: str, like: str, line: str) -> str:
    """Insert a line after the last of its kind, with the same indentation."""
    lines = split_lines((root / path).read_text("utf-8"))
    kind = re.compile(rf"(?P<indent> *){like}")
    for index in range(len(lines) - 1, -1, -1):
        if found := kind.fullmatch(lines[index]):
            lines.insert(index + 1, found["indent"] + line)
            return "\n".join(lines) + "\n"
    raise ChapterError(f"{path}: wanted a line like {like}, to add one behind it")
