"""Which of two headings a link means that has words of both: its sentence tells.

[on paper] leads to *Backwards on paper* if it stands in a sentence on slopes, and to
*One query, on paper* if it speaks of a query: the section that is meant has more of the
words of the sentence.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping

from bookbinder.reading.pages import Page, split_lines
from bookbinder.reading.prose import prose_lines

__all__ = ["nearer", "sections_of"]

Words = Callable[[str], set[str]]

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`$(\[])")
_TARGET = re.compile(r"\]\([^)]*\)")
_HEADING = re.compile(r"#{1,6} .+")
_MUCH = 1.5  # times as near: less may be chance


def sections_of(
    text: str, anchors: Mapping[str, str], words: Words
) -> dict[str, Counter[str]]:
    """Count the words below each heading of a page, by its anchor."""
    left = iter(name for name in anchors if name)
    found: dict[str, Counter[str]] = {}
    here = ""
    for _, line in prose_lines(Page("", split_lines(text))):
        if _HEADING.fullmatch(line):
            here = next(left, "")
        found.setdefault(here, Counter()).update(words(_TARGET.sub("]", line)))
    return found


def nearer(
    line: str,
    target: str,
    anchor: str,
    others: list[str],
    sections: Mapping[str, Counter[str]],
    words: Words,
) -> str | None:
    """Give the one of other headings that the sentence of a link is much nearer to.

    Args:
        line: The line of the link.
        target: Where the link leads, as it is written there.
        anchor: The heading that it leads to.
        others: Headings of the same page that have as many of its words.
        sections: The words below each heading.
        words: Give the words of a text that say something.
    """
    sentences = _SENTENCE.split(line)
    around = next((each for each in sentences if f"]({target})" in each), line)
    said = words(_TARGET.sub("]", around))
    having = Counter(word for section in sections.values() for word in section)

    def near(name: str) -> float:
        section = sections.get(name, Counter[str]())
        return sum(
            math.log(1 + len(sections) / having[word])
            * math.sqrt(min(section[word], 3))
            for word in said
            if section[word]
        )

    if not others:
        return None
    best = max(others, key=near)
    return best if near(best) > _MUCH * near(anchor) else None
