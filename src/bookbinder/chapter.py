"""Start a chapter: copy the model page, and add it to the navigation.

Either the page, its entry in the navigation, its row in the list of chapters and its
place on the map are all written, or nothing is. Once the map is drawn again, the result
passes every test.
"""

import json
import re
import unicodedata
from pathlib import Path

import yaml

from bookbinder.chapter_form import TEMPLATE
from bookbinder.page import split_lines
from bookbinder.writing import write_whole

__all__ = ["ChapterError", "begin"]

_ENTRY = r"- .*: chapters/(?!a-chapter-to-copy)\S+\.md"
_LINK = r"%% \[(?P<name>.*)\]\(chapters/\S+\.md\)"
_ROW = r"\| \[.*\]\(chapters/\S+\.md\) \|.*\|"
# Characters with a meaning in Markdown or YAML.
_MARKS = re.compile(r"[\[\]`*_#|<>$\\]")
_ACCENTS = re.compile("[\u0300-\u036f]")


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
    question, rest = question or lines[title + 2].strip("*"), lines[title + 3 :]
    short = name.partition(":")[0]
    # Search engines show the description of a page, the book's own search its tags.
    front = [
        *("---", f"description: {_quoted(question)}"),
        *("tags:", f"  - {_quoted(short)}", "---", ""),
    ]
    page = [*front, f"# {name}", "", f"*{question}*", *rest]
    new = {
        f"docs/{path}": "\n".join(page) + "\n",
        "mkdocs.yml": _with_line(root, "mkdocs.yml", _ENTRY, _entry(name, path)),
        "docs/index.md": _with_line(
            root, "docs/index.md", _ROW, f"| [{short}]({path}) | {question} |"
        ),
        "docs/map.md": _on_the_map(root, short, path),
    }
    for file, text in new.items():
        write_whole(root / file, text)
    return [
        f"made docs/{path}",
        "changed mkdocs.yml, docs/index.md and docs/map.md, where it stands last: move "
        "its lines, then make diagrams",
        f"next: make serve, and write; then make outputs PAGE=docs/{path}",
        f"and make page PAGE=docs/{path}",
    ]


def _slug(title: str) -> str:
    """Return the name of a title's file, in the letters of its language.

    Latin, Greek and Cyrillic letters lose their accents, for those without such keys.
    """
    apart = unicodedata.normalize("NFKD", title.casefold())
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", apart))
    kept = (each if unicodedata.category(each)[0] in "LMN" else " " for each in plain)
    return "-".join("".join(kept).split())


def _entry(name: str, path: str) -> str:
    """Return an entry of the navigation, quoted if YAML would misread the title."""
    try:
        plain = yaml.safe_load(f"{name}: {path}") == {name: path}
    except yaml.YAMLError:
        plain = False
    return f"- {name if plain else _quoted(name)}: {path}"


def _quoted(words: str) -> str:
    """Return some words as a text of YAML, which can be read in every language."""
    return json.dumps(words, ensure_ascii=False)


def _on_the_map(root: Path, name: str, path: str) -> str:
    """Put a chapter into the box of the last one, and make its line there a link."""
    text = (root / "docs/map.md").read_text("utf-8")
    names = [found["name"] for found in re.finditer(_LINK, text)]
    above = rf"(<br/>{re.escape(names[-1])})(?=<br/>|`)" if names else "$^"
    if not re.search(above, text):
        raise ChapterError("docs/map.md: wanted the last chapter as a line of a box")
    text = _with_line(root, "docs/map.md", _LINK, f"%% [{name}]({path})")
    return re.sub(above, lambda line: f"{line[0]}<br/>{name}", text, count=1)


def _with_line(root: Path, path: str, like: str, line: str) -> str:
    """Insert a line after the last of its kind, with the same indentation."""
    lines = split_lines((root / path).read_text("utf-8"))
    kind = re.compile(rf"(?P<indent> *){like}")
    for index in range(len(lines) - 1, -1, -1):
        if found := kind.fullmatch(lines[index]):
            lines.insert(index + 1, found["indent"] + line)
            return "\n".join(lines) + "\n"
    raise ChapterError(f"{path}: wanted a line like {like}, to add one behind it")
