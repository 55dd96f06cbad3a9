r"""Small numbers in words that the page itself answers for, with no run.

- It is counted right there: ``three steps: scores, softmax and average``, or a list or
  a table of as many items below the sentence. A wrong count is not accepted.
- It is an ordinal in digits, as in head 0: it names a thing, as *the first* does.
- It is the *two* that its words ask for: the two of them, between two, two that differ.
- It is what a letter is supposed to be: with $k = 1$, take $x = 3$.
- A run prints the same words, or has a name of them.
- It stands in words that mean the same on every page: ``standing.txt`` has them.

A run that gives another number to the same noun overrules all of them but the last.
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import takewhile
from pathlib import Path

from bookbinder.numbers.facts import stems
from bookbinder.numbers.numerals import MULTIPLES, Number, Passage, plain
from bookbinder.numbers.stated import Stated

Check = Callable[[Number, Passage], bool]

_HEAD = 3  # lines that say what the list is
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s")
_NAMED = re.compile(
    r"\b(?:head|token|position|feature|row|column|key|query|pair|layer|sequence"
    r"|document|place|seed|exercise)\s$",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"\b(?:(?:between|each|any|take)\s$"
    r"|(?:distance|ratio|product|difference|mean|cosine|angle|height)s?\s+of\s$)",
    re.IGNORECASE,
)
_THE_TWO = re.compile(r"\b(?:the|these|those|other|first|last)\s$", re.IGNORECASE)
_PIECE = re.compile(
    r"\b(?:the|its|each|either|this|first|second|last|other|upper|lower|left|right|two)\s$",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:with|for|take|let|if)(?: all)? (?:\$[^$]+\$(?:,| and) )*\$$", re.IGNORECASE
)
_LETTER = re.compile(r"\\?[A-Za-z]+(?:_(?:\w|\{\w+\}|\\text\{\w+\}))? = ")
_RELATION = re.compile(
    r"\b(?:alike|agree|equal|differ|different|share|together|apart|compared?|opposite"
    r"|mistaken|swap|swapping|joining|change places|combine|dot product)s?\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`$(])")


def is_counted(
    number: Number, passage: Passage, prose: list[Passage], part: Stated
) -> bool:
    """Tell whether a number needs no run, or has one that counts the same noun.

    Args:
        number: The number.
        passage: Where it stands.
        prose: All passages of the page.
        part: What the runs of its part state.
    """
    if number.kind == "formula":
        return _is_supposed(number, passage)
    source = passage.title == "Sources" and _ITEM.match(passage.text)
    if number.kind not in ("word", "digits") or source:
        return False
    if any(
        check(number, passage)
        for check in (
            is_standing,
            _is_piece,
            _is_pair,
            _is_ordinal,
            _is_said(part),
        )
    ):
        return True
    if number.text.lower() in MULTIPLES:
        return False
    nouns = stems(number.after[:1]) or stems(number.after[:2])
    known = {phrase.value for phrase in part.phrases if phrase.noun in nouns}
    if known:
        return number.value in known
    return any(
        check(number, passage)
        for check in (_is_the_two, _is_related, _is_listed, _is_headed(prose))
    )


def is_standing(number: Number, passage: Passage) -> bool:
    """Tell whether a number stands in words that mean the same on every page."""
    text = plain(passage.text).lower()
    at = len(plain(passage.text[: number.start]))
    return any(
        found.start() <= at < found.end()
        for words in standing()
        if number.text.lower() in words
        for found in re.finditer(rf"(?<![\w.]){re.escape(words)}(?!\w|\.\d)", text)
    )


@cache
def standing() -> dict[str, str]:
    """Give the words of ``standing.txt``, each with what it stands on."""
    file = Path(__file__).with_name("standing.txt")
    known: dict[str, str] = {}
    for line in file.read_text("utf-8").splitlines()[_HEAD:]:
        words, _, why = line.partition(" | ")
        known[words] = why
    return known


def _is_supposed(number: Number, passage: Passage) -> bool:
    """Tell whether a letter is only supposed to be so: with $k = 1$, take $x = 3$."""
    begin = passage.text.rfind("$", 0, number.start)
    return bool(_SUPPOSED.search(passage.text[: begin + 1])) and bool(
        _LETTER.fullmatch(passage.text[begin + 1 : number.start])
    )


def _is_ordinal(number: Number, passage: Passage) -> bool:
    """Tell whether it names the first thing or the second: head 0, head 1."""
    named = _NAMED.search(passage.text[: number.start])
    return number.text in ("0", "1") and bool(named)


def _is_said(part: Stated) -> Check:
    """Tell whether a run says the same words, or has a name of them: minus-five."""

    def check(number: Number, passage: Passage) -> bool:
        if number.kind != "word":
            return False
        word = number.text.lower()
        pairs = [f"{word} {each}" for each in number.after[:1]]
        pairs += [f"{each}-{word}" for each in number.before[:1]]
        return any(re.search(rf"\b{re.escape(pair)}\b", part.said) for pair in pairs)

    return check


def _is_pair(number: Number, passage: Passage) -> bool:
    """Tell whether it is the two that the words before it ask for: between two."""
    before = passage.text[: number.start]
    return number.text.lower() == "two" and bool(_PAIR.search(before))


def _is_the_two(number: Number, passage: Passage) -> bool:
    """Tell whether it points back at two that were named: these two, the other two."""
    before = passage.text[: number.start]
    return number.text.lower() == "two" and bool(_THE_TWO.search(before))


def _is_related(number: Number, passage: Passage) -> bool:
    """Tell whether it is any two, of which the sentence says how they are related."""
    return number.text.lower() == "two" and bool(
        _RELATION.search(_sentence(number, passage))
    )


def _is_piece(number: Number, passage: Passage) -> bool:
    """Tell whether it names a part of something that is cut in two: the other half."""
    before = passage.text[: number.start]
    return number.text.lower() in ("half", "halves") and bool(_PIECE.search(before))


def _is_listed(number: Number, passage: Passage) -> bool:
    """Tell whether its sentence lists as many things behind a colon, or before one."""
    sentence = _sentence(number, passage)
    before, colon, behind = sentence.partition(": ")
    if not colon or number.value < 2:
        return False
    begin = passage.text.rindex(sentence, 0, number.end + len(sentence))
    if number.start < begin + len(before):
        return number.value in _counts(behind)
    these = re.search(r"\b(?:these|those|all)\s$", passage.text[: number.start])
    return bool(these) and number.value in _counts(before)


def _sentence(number: Number, passage: Passage) -> str:
    """Give the sentence that a number stands in."""
    # What follows on a full stop begins a sentence, the number itself included.
    begins = (m.end() for m in _SENTENCE.finditer(passage.text[: number.start + 1]))
    return _SENTENCE.split(passage.text[max(begins, default=0) :])[0]


def _counts(text: str) -> list[int]:
    """Count the things that a sentence lists, by commas or by semicolons."""
    if "; " in text:
        return [len(text.split("; "))]
    return [len(re.split(r", (?:and |or )?| and | or ", text))]


def _is_headed(prose: list[Passage]) -> Check:
    """Tell whether the sentence that ends a passage is followed by as many items."""

    def check(number: Number, passage: Passage) -> bool:
        below = prose[prose.index(passage) + 1 :]
        last = _SENTENCE.split(passage.text)[-1]
        if number.start < len(passage.text) - len(last) or _ITEM.match(passage.text):
            return False
        items = [*takewhile(lambda each: _ITEM.match(each.text), below)]
        rows = [*takewhile(lambda each: each.row, below)][1:]
        return number.value in {len(items), len(rows)} - {0}

    return check
