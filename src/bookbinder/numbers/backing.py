r"""Refuse a number that nothing behind the page backs.

A number of the prose is backed by one of these, and by nothing else:

- a run, an output or a listing under the same heading has it: three digits by
  themselves (four anywhere on the page), two digits beside a word of the prose;
- an equation that is recomputed, as in $2 \ln 8 / 7 = 0.594$;
- a comment beside it that binds it to a value (``holds``) or says why not (``given``);
- the constants of formulas with symbols are noted beside them (``constants``);
- the page itself answers for it, or the list of standing words (``counting``);
- it counts what is counted anyway: an exercise, the version of torch, a citation, the
  address of its link, code that a run of the page has to the letter.

What one of the others backs is not ``given`` as well: that list is to stay short.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from bookbinder.numbers.counting import is_counted
from bookbinder.numbers.facts import Fact, stems
from bookbinder.numbers.numerals import Number, Passage, passages
from bookbinder.numbers.quoting import (
    Found,
    constant_problems,
    quoted,
    same,
    unfit,
    unlike,
    weight,
)
from bookbinder.numbers.reasons import listed_otherwise
from bookbinder.numbers.stated import read_stated
from bookbinder.numbers.works import COINED, LIST, is_cited, is_year
from bookbinder.reading.bindings import Binding, Value
from bookbinder.reading.pages import Page
from bookbinder.reading.parts import Problem

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)]*)\)")
_CODE = re.compile(r"(`+)(?!`)(?P<code>.+?)(?<!`)\1(?!`)")


def number_problems(
    page: Page, values: Mapping[int, Value], root: Path
) -> list[Problem]:
    """Give each number that nothing backs, and each binding that does not hold.

    Args:
        page: The page.
        values: What its ``holds`` comments gave when the page ran, by their lines.
        root: The repository.
    """
    prose = passages(page)
    backing = _Backing(page, prose, root)
    problems: list[Problem] = []
    bound: set[tuple[int, int]] = set()
    for binding in page.bindings:
        for quote in binding.quotes:
            places = list(quoted(quote, binding, prose))
            reason = unfit(quote, binding, places) or backing.spare(
                quote, binding, places
            )
            if reason:
                problems.append(Problem(page.path, binding.line, reason))
                continue
            for found in places:
                bound |= {(passage.line, number.start) for passage, number in found}
                reason = unlike(quote, binding, found, values) or _miscounted(
                    quote, binding, found
                )
                if reason:
                    line = found[0][0].line if found else binding.line
                    problems.append(Problem(page.path, line, reason))
    problems += constant_problems(page, prose)
    exercise = 0
    for passage in prose:
        for number in passage.numbers:
            if (passage.line, number.start) in bound or number.kind == "constant":
                continue
            if _counts_headings(passage, number):
                exercise = 1 if number.value == 1 else exercise + 1
                if number.value != exercise:
                    reason = f"{number.text}. here, where {exercise}. comes next"
                    problems.append(Problem(page.path, passage.line, reason))
            elif reason := backing.lacks(number, passage):
                problems.append(Problem(page.path, passage.line, reason))
    return sorted(problems, key=lambda problem: problem.line)


def _miscounted(quote: str, binding: Binding, found: Found) -> str | None:
    """Say that a reason lists more things or fewer than the number that it is for."""
    if binding.kind != "given" or len(found) != 1 or len(binding.quotes) != 1:
        return None
    ((_, number),) = found
    things = listed_otherwise(binding.why, number)
    return f'"{quote}": the reason given lists {things}' if things else None


def _counts_headings(passage: Passage, number: Number) -> bool:
    """Tell whether it is the number of an exercise: ### 1. What to do."""
    return bool(re.match(rf"#+ {re.escape(number.text)}\. ", passage.text)) and (
        passage.text.index(number.text) == number.start
    )


class _Backing:
    """What a page has behind its numbers, apart from the comments that bind them."""

    def __init__(self, page: Page, prose: list[Passage], root: Path) -> None:
        self._prose = prose
        self._stated, self._programs = read_stated(page, prose, root)
        self._here = root / page.path

    def lacks(self, number: Number, passage: Passage) -> str | None:
        """Say that nothing backs a number, unless something does."""
        text, start, end = passage.text, number.start, number.end
        if number.proved is False:
            return f"{number.text}: recomputed, the equation does not hold"
        if number.proved or _is_named(number, passage, self._programs, self._here):
            return None
        part = self._stated[passage.part]
        if _is_stated(number, passage, part.facts):
            return None
        everywhere = [fact for each in self._stated.values() for fact in each.facts]
        if weight(number) > 3 and _is_stated(number, passage, everywhere):
            return None
        if is_counted(number, passage, self._prose, part):
            return None
        words = text[:start].split()[-2:], text[end:].split()[:2]
        excerpt = " ".join([*words[0], number.text, *words[1]])
        reason = f"{number.text} ({excerpt}) is backed by no run of this section: "
        if is_year(number.text):
            # The list asks for a title, which is looked up.
            return (
                f"{reason}the year of a work is right if {LIST} has the work, in a line"
            )
        return (
            f'{reason}print it there, or bind it beside the text, as <!-- holds: "…" = '
            '… -->; what no run can know is given, <!-- given: "…": why -->'
        )

    def spare(self, quote: str, binding: Binding, places: list[Found]) -> str | None:
        """Say that a reason is given for what needs none, so that the list is short."""
        if binding.kind != "given" or not any(places):
            return None
        if any(
            self.lacks(number, passage) for each in places for passage, number in each
        ):
            return None
        return f'"{quote}" needs no reason: it is backed without one, so take it out'


def _is_stated(number: Number, passage: Passage, stated: list[Fact]) -> bool:
    """Tell whether a run of the same part has the number, and how sure that is."""
    digits = weight(number)
    if digits < 2 or math.isnan(number.value) or passage.title == "Sources":
        return False
    near = stems([*number.before[:2], *number.after[:2]])
    if passage.row:
        near |= stems([*number.before[-2:], *passage.labels])
    scales = (1, 100) if number.after[:1] == ("%",) else (1,)
    decimals = len(number.text.partition(".")[2])
    return any(
        (digits > 2 or near & fact.words)
        and fact.places >= min(decimals, 1)
        and any(same(scale * fact.value, number) for scale in scales)
        for fact in stated
    )


def _is_named(number: Number, passage: Passage, programs: str, here: Path) -> bool:
    """Tell whether a number is no size: a citation, an address, a version, code."""
    text, start, end = passage.text, number.start, number.end
    if is_cited(text, start, end):
        return True
    if number.kind == "name":
        return number.text in COINED or number.text in programs
    for link in _LINK.finditer(text):
        if link.start("text") <= start and end <= link.end("text"):
            return number.text in re.findall(r"\d+", link["target"]) or (
                link["text"].lower() in headings(_linked(link["target"], here))
            )
    if number.kind == "code":
        return any(
            span.start() < start < span.end() and span["code"] in programs
            for span in _CODE.finditer(text)
        )
    return number.before[:1] in (("torch",), ("pytorch",)) and (
        torch_version() == number.text
    )


def _linked(target: str, here: Path) -> Path:
    """Give the file of a link, which is the page itself if it names none."""
    name, _, _ = target.partition("#")
    return here.parent / name if name else here


@cache
def headings(file: Path) -> str:
    """Give the headings of a page that is linked to, in lower case."""
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return "\n".join(line for line in lines if line.startswith("#")).lower()


@cache
def torch_version() -> str:
    """Give the version of torch as the pages name it: 2.13."""
    return ".".join(version("torch").split(".")[:2])
