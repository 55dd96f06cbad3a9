"""Start a chapter from the page to copy, and check what a chapter needs beside a page.

A chapter asks a question, has exercises with graders and sources with links, and stands
in the navigation, in the list of chapters and on the map. Each problem says what to
write.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from pymdownx.slugs import slugify

from bookbinder.page import Page, Problem, split_lines
from bookbinder.writing import write_whole

TEMPLATE = "docs/chapters/a-chapter-to-copy.md"

# The line of a chapter in each of them.
_CHAPTER = r"(?P<page>chapters/(?!a-chapter-to-copy)[^\s)]+\.md)"
_LINES = {
    "mkdocs.yml": re.compile(rf"^(?P<indent> *)- .*: {_CHAPTER}$", re.MULTILINE),
    "docs/index.md": re.compile(rf"^(?P<indent>)\| \[.*\]\({_CHAPTER}\) \|.*\|$", re.M),
    "docs/map.md": re.compile(
        rf"^(?P<indent> *)%% \[(?P<name>.*)\]\({_CHAPTER}\)$", re.M
    ),
}
PLACES = ("docs/index.md", "docs/map.md")

# Characters with a meaning in Markdown or YAML.
_MARKS = re.compile(r"[\[\]`*_#|<>$\\]")
_QUESTION = re.compile(r"\*[^*].*\?\*")
_GRADER = re.compile(r"\b(?:check|grade)_\w+\(")
_IMPORTED = re.compile(r"from transformer_book[\w.]* import (?:\([^)]*|.*)\bgrade_\w")


class ChapterError(ValueError):
    """A chapter cannot be started; the message says what came and what was wanted."""


def begin(root: Path, name: str, *, question: str = "") -> list[str]:
    """Write a new chapter; return lines that say what was written, and what is next.

    Raises:
        ChapterError: If the name does not fit a chapter; nothing is written then.
    """
    name, question = " ".join(name.split()), " ".join(question.split())
    slug = re.sub("-+", "-", slugify(case="lower")(name, "-")).strip("-")
    if not slug:
        raise ChapterError('give a title: make chapter NAME="Attention sinks"')
    for what, words in (("NAME", name), ("QUESTION", question)):
        if mark := _MARKS.search(words):
            raise ChapterError(f"{what}={words!r}: wanted words, without {mark[0]}")
    path = f"chapters/{slug}.md"
    if (root / "docs" / path).exists():
        raise ChapterError(f"NAME={name!r}: docs/{path} already exists")
    lines = split_lines((root / TEMPLATE).read_text("utf-8"))
    title = next(i for i, line in enumerate(lines) if line.startswith("# "))
    question, rest = question or lines[title + 2].strip("*"), lines[title + 3 :]
    short = name.partition(":")[0]
    # Search engines show the description of a page, the book's own search its tags.
    front = f"description: {_quoted(question)}\ntags:\n  - {_quoted(short)}"
    page = [f"---\n{front}\n---\n\n# {name}\n\n*{question}*", *rest]
    new = {
        f"docs/{path}": "\n".join(page) + "\n",
        "mkdocs.yml": _with_line(root, "mkdocs.yml", f"- {_quoted(name)}: {path}"),
        "docs/index.md": _with_line(
            root, "docs/index.md", f"| [{short}]({path}) | {question} |"
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


def _quoted(words: str) -> str:
    """Return some words as a text of YAML, which can be read in every language."""
    return json.dumps(words, ensure_ascii=False)


def _with_line(root: Path, place: str, line: str) -> str:
    """Insert a line after the last chapter's, with the same indentation."""
    text = (root / place).read_text("utf-8")
    *_, last = _LINES[place].finditer(text)
    return f"{text[: last.end()]}\n{last['indent']}{line}{text[last.end() :]}"


def _on_the_map(root: Path, name: str, path: str) -> str:
    """Put a chapter into the box of the last one, and make its line there a link."""
    text = _with_line(root, "docs/map.md", f"%% [{name}]({path})")
    *_, last, _new = _LINES["docs/map.md"].finditer(text)
    above = re.compile(rf"<br/>{re.escape(last['name'])}(?=<br/>|`)")
    return above.sub(lambda line: f"{line[0]}<br/>{name}", text, count=1)


def chapter_problems(page: Page, root: Path) -> Iterator[Problem]:
    """Return what a chapter lacks, with the line and what to write there."""
    if page.path.startswith("docs/chapters/"):
        lacking = [*_front(page), *_exercises(page), *_sources(page)]
        if page.path != TEMPLATE:
            lacking += _place(page, root)
        yield from (Problem(page.path, line, reason) for line, reason in lacking)


def _front(page: Page) -> Iterator[tuple[int, str]]:
    """Check the tags, the title and the question."""
    if not page.meta.get("tags"):
        reason = "list under tags: in the front matter what a reader would search for,"
        yield 1, f"no tags: {reason} such as names, errors and symptoms"
    text = [(number, line.strip()) for number, line in page.prose if line.strip()]
    while text and not text[0][1].startswith("# "):
        del text[0]
    if not text:
        yield 1, "no title: begin with # and the title"
    elif not _QUESTION.fullmatch(text[:2][-1][1]):
        reason = "below the title write what the chapter answers, in italics,"
        example = "*How far back does a token look?*"
        yield text[:2][-1][0], f"no question: {reason} {example}"


def _exercises(page: Page) -> Iterator[tuple[int, str]]:
    """Check that each exercise has a grader that refuses wrong answers.

    A grader of ``transformer_book`` has its wrong answers in the tests of that
    package. One that stands on a page refuses them there: what it says is an output of
    the page, compared when the page runs. Here it is counted.
    """
    lines = page.parts.get("exercises", range(0))
    begins = [h.line for h in page.headings if h.line in lines and h.level > 2]
    if not lines:
        reason = "no heading ## Exercises, with at least one exercise under a heading"
        yield len(page.lines), f"{reason} ###"
    elif not begins:
        yield lines.start, "no exercise, which begins with ###"
    for first, last in pairwise([*begins, lines.stop]):
        blocks = [block for block in page.blocks if first < block.line < last]
        code = "".join(block.code for block in blocks)
        outputs = "".join(block.output.text for block in blocks if block.output)
        refused = {*outputs.splitlines()} - {"right", "correct"}
        if not _GRADER.search(code):
            reason = "no run of this exercise calls a grader, check_...(answer) or"
            yield first, f"{reason} grade_...(answer): define one here, or import it"
        elif not _IMPORTED.search(code) and len(refused) < 3:
            reason = f"this exercise shows {len(refused)} refused answers: print what"
            yield first, f"{reason} its grader says of three likely wrong ones"


def _sources(page: Page) -> Iterator[tuple[int, str]]:
    """Check that a reader can open what is cited by its title, in italics."""
    lines = page.parts.get("sources", ())
    for number, line in page.prose:
        cited = number in lines and re.match(r"- .*\*\w", line)
        if cited and "](" not in line:
            yield number, "no link: write [*Title*](https://...) for a source"


def _place(page: Page, root: Path) -> Iterator[tuple[int, str]]:
    """Check that the chapter stands in all three lists."""
    name, title = page.path.removeprefix("docs/"), page.title or "Title"
    short = title.partition(":")[0]
    write = {
        "mkdocs.yml": f"- {title}: {name}, under the part of the book it belongs to",
        "docs/index.md": f"| [{short}]({name}) | its question |, in the list",
        "docs/map.md": (
            f"{short} into the box of its part and %% [{short}]({name}) below, "
            "then run make diagrams"
        ),
    }
    for place, lines in _LINES.items():
        text = (root / place).read_text("utf-8")
        if name not in {line["page"] for line in lines.finditer(text)}:
            yield 1, f"not in {place}: write {write[place]}"
