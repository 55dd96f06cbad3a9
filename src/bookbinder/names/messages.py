"""Hold what prose says that a message says against the messages of its section.

``Its message recommends `reshape` `` is right if an output under the same heading has
the word, or a text in quotes in its code or in a listing.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from bookbinder.names.confusing import code_by_part, part_of
from bookbinder.reading.pages import Page, Problem
from bookbinder.reading.prose import prose_lines

__all__ = ["message_problems"]

_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z*`])")
_SAYS = re.compile(
    r"\bmessages? (?:\w+ )?"
    r"(?:say|advise|recommend|name|suggest|read|ask|speak|tell|warn)\w*"
    r"(?: of| for| to)? `(?P<named>[^`]+)`"
)
_QUOTED = re.compile(r'"(?:[^"\n]|\\")*"|\'[^\'\n]*\'')


def message_problems(page: Page, root: Path) -> list[Problem]:
    """Find names that a message is said to have, and that none of its section has."""
    lines = [*_said(page)]
    if not lines:
        return []
    code = code_by_part(page, root)
    outputs = [(b.output.line, b.output.text) for b in page.blocks if b.output]
    problems: list[Problem] = []
    for number, named in lines:
        part = part_of(number, code)
        told = [text for line, text in outputs if part_of(line, code) == part]
        told += _QUOTED.findall(code[part])
        if not re.search(rf"\b{re.escape(named)}\b", "\n".join(told)):
            reason = f"`{named}`: no message under this heading says it"
            problems.append(Problem(page.path, number, reason))
    return problems


def _said(page: Page) -> Iterator[tuple[int, str]]:
    for number, line in prose_lines(page):
        for sentence in _SENTENCE.split(line):
            for found in _SAYS.finditer(sentence):
                yield number, found["named"]
