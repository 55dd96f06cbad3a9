r"""Refuse a number that nothing behind the page backs.

A number of the prose is backed by one of these, and by nothing else:

- a run, an output or a listing under the same heading has it: three digits by
  themselves (four anywhere on the page), two digits beside a word of the prose;
- an equation that is recomputed, as in $2 \ln 8 / 7 = 0.594$;
- a comment beside it that binds it to a value (``holds``) or says why not (``given``);
- the constants of formulas with symbols are noted beside them (``constants``);
- it counts what is counted anyway: an exercise, the version of torch, a citation, the
  address of its link, code that a run of the page has to the letter.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

from bookbinder.numbers.facts import Fact, facts, stems
from bookbinder.numbers.numerals import Number, Passage, passages, plain
from bookbinder.numbers.works import COINED, is_cited
from bookbinder.reading.bindings import Binding, Value
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page
from bookbinder.reading.parts import Problem

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)]*)\)")
_CODE = re.compile(r"(`+)(?!`)(?P<code>.+?)(?<!`)\1(?!`)")


_Found = list[tuple[Passage, Number]]


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
    problems: list[Problem] = []
    bound: set[tuple[int, int]] = set()
    for binding in page.bindings:
        for quote in binding.quotes:
            places = list(_quoted(quote, binding, prose))
            reason = _unfit(quote, binding, places)
            if reason:
                problems.append(Problem(page.path, binding.line, reason))
                continue
            for found in places:
                bound |= {(passage.line, number.start) for passage, number in found}
                reason = _unlike(quote, binding, found, values)
                if reason:
                    line = found[0][0].line if found else binding.line
                    problems.append(Problem(page.path, line, reason))
    problems += _constants(page, prose)
    stated, programs = _stated(page, prose, root)
    here = root / page.path
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
            elif reason := _unbacked(number, passage, stated, programs, here):
                problems.append(Problem(page.path, passage.line, reason))
    return sorted(problems, key=lambda problem: problem.line)


def _constants(page: Page, prose: list[Passage]) -> Iterator[Problem]:
    """Compare the constants of each section's formulas with what is noted of them."""
    noted: dict[int, tuple[int, str]] = {}
    for binding in page.bindings:
        if binding.kind == "constants":
            noted[_section(binding, prose)] = binding.line, binding.why
    for section in sorted({passage.section for passage in prose}):
        constants = [
            number.text
            for passage in prose
            if passage.section == section
            for number in passage.numbers
            if number.kind == "constant"
        ]
        line, known = noted.get(section, (max(section, 1), ""))
        if known.split() != constants:
            shown = " ".join(constants)
            reason = (
                f"the formulas of this section have the constants {shown or 'of none'}:"
                f" compare with the code and note them, <!-- constants: {shown} -->"
            )
            yield Problem(page.path, line, reason)


def _section(binding: Binding, prose: list[Passage]) -> int:
    return max((p.section for p in prose if p.section <= binding.line), default=0)


def _quoted(quote: str, binding: Binding, prose: list[Passage]) -> Iterator[_Found]:
    """Find the words of a binding in its section, each time with their numbers."""
    section = _section(binding, prose)
    wanted = plain(quote)
    for index, passage in enumerate(prose):
        if passage.section != section:
            continue
        if wanted.startswith("|"):
            if not passage.labels and plain(passage.text).startswith(wanted):
                rows = takewhile(lambda row: row.labels, prose[index + 1 :])
                yield [(row, number) for row in rows for number in row.numbers]
            continue
        # Words are quoted without the marks that make them bold.
        kept = [at for at, sign in enumerate(passage.text) if sign not in '*"']
        text = plain(passage.text)
        for match in re.finditer(rf"(?<![\w.]){re.escape(wanted)}(?!\w|\.\d)", text):
            first, last = kept[match.start()], kept[match.end() - 1] + 1
            yield [
                (passage, number)
                for number in passage.numbers
                if first <= number.start
                and number.end <= last
                and number.kind != "constant"
            ]


def _unfit(quote: str, binding: Binding, places: list[_Found]) -> str | None:
    """Say why a quotation binds nothing, or would bind too much."""
    whole_formula = binding.kind == "given" and quote[0] == quote[-1] == "$"
    if not any(places) and not (places and whole_formula):
        return f'this section has no number in the words "{quote}"'
    if binding.kind == "given" and quote.startswith("|"):
        return f'"{quote}" would let any number into the table: quote its rows'
    for found in places:
        for _, number in found:
            if number.text == quote.strip() and _weight(number) < 3:
                return f'which "{quote}"? Quote a word beside it as well'
    return None


def _unlike(
    quote: str, binding: Binding, found: _Found, values: Mapping[int, Value]
) -> str | None:
    """Say in what the prose differs from the run."""
    if binding.kind == "given":
        return None
    value = values.get(binding.line, "nothing evaluated it")
    if isinstance(value, str):
        return f'"{quote}": {binding.why} gives no number: {value}'
    if isinstance(value, bool):
        return None if value else f'"{quote}": {binding.why} is not true'
    if len(value) != len(found):
        return f'"{quote}" has {len(found)} numbers, {binding.why} gives {len(value)}'
    for (_, number), wanted in zip(found, value, strict=True):
        if not _same(wanted, number):
            return f'"{quote}": the run gives {wanted:.7g}, the page {number.text}'
    return None


def _same(value: float, number: Number) -> bool:
    """Compare to the digits that the page shows; what has none, to a thousandth."""
    step = number.step or abs(number.value) / 500
    return abs(value - number.value) <= step / 2 + 1e-9 * abs(value)


def _weight(number: Number) -> int:
    """Count the digits that could differ; a number in words is as one digit."""
    if number.kind == "word":
        return 1
    digits = re.sub(r"e-?\d+$", "", number.text)
    decimals = len(re.sub(r"\D", "", digits.partition(".")[2]))
    return max(len(re.sub(r"\D", "", digits).lstrip("0")), decimals)


def _stated(
    page: Page, prose: list[Passage], root: Path
) -> tuple[dict[int, list[Fact]], str]:
    """Give the numbers of the runs of each part, and all that the page runs."""
    parts = sorted({passage.part for passage in prose} | {0})
    stated: dict[int, list[Fact]] = {part: [] for part in parts}
    texts = [(block.line, block.code) for block in page.blocks]
    texts += [(b.output.line, b.output.text) for b in page.blocks if b.output]
    for listing in page.listings:
        with suppress(ListingError):  # The audit has said so.
            section = find_section(root, listing.path, listing.section)
            texts.append((listing.line, section.text))
    for line, text in texts:
        stated[max(part for part in parts if part <= line)] += facts(text)
    return stated, "\n".join(text for _, text in texts)


def _counts_headings(passage: Passage, number: Number) -> bool:
    """Tell whether it is the number of an exercise: ### 1. What to do."""
    return bool(re.match(rf"#+ {re.escape(number.text)}\. ", passage.text)) and (
        passage.text.index(number.text) == number.start
    )


def _unbacked(
    number: Number,
    passage: Passage,
    stated: dict[int, list[Fact]],
    programs: str,
    here: Path,
) -> str | None:
    """Say that nothing backs a number, unless something does."""
    text, start, end = passage.text, number.start, number.end
    if number.proved is False:
        return f"{number.text}: recomputed, the equation does not hold"
    if number.proved or _is_named(number, passage, programs, here):
        return None
    if _is_stated(number, passage, stated[passage.part]):
        return None
    everywhere = [fact for part in stated.values() for fact in part]
    if _weight(number) > 3 and _is_stated(number, passage, everywhere):
        return None
    words = text[:start].split()[-2:], text[end:].split()[:2]
    excerpt = " ".join([*words[0], number.text, *words[1]])
    return (
        f"{number.text} ({excerpt}) is backed by no run of this section: print it"
        ' there, or bind it beside the text, as <!-- holds: "…" = … -->'
    )


def _is_stated(number: Number, passage: Passage, stated: list[Fact]) -> bool:
    """Tell whether a run of the same part has the number, and how sure that is."""
    weight = _weight(number)
    if weight < 2 or math.isnan(number.value) or passage.title == "Sources":
        return False
    near = stems([*number.before[:2], *number.after[:2]])
    if passage.row:
        near |= stems([*number.before[-2:], *passage.labels])
    scales = (1, 100) if number.after[:1] == ("%",) else (1,)
    decimals = len(number.text.partition(".")[2])
    return any(
        (weight > 2 or near & fact.words)
        and fact.places >= min(decimals, 1)
        and any(_same(scale * fact.value, number) for scale in scales)
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
