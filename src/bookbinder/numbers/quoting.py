"""Hold the words that a binding quotes against what it says of them."""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

from bookbinder.numbers.bounds import bounds_of
from bookbinder.numbers.numerals import Number, Passage, plain
from bookbinder.reading.bindings import Binding, Value
from bookbinder.reading.pages import Page
from bookbinder.reading.parts import Problem

__all__ = ["Found", "constant_problems", "quoted", "same", "unfit", "unlike", "weight"]

Found = list[tuple[Passage, Number]]
"""The numbers of one place that a binding quotes."""


def constant_problems(page: Page, prose: list[Passage]) -> Iterator[Problem]:
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


def quoted(quote: str, binding: Binding, prose: list[Passage]) -> Iterator[Found]:
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


def unfit(quote: str, binding: Binding, places: list[Found]) -> str | None:
    """Say why a quotation binds nothing, or would bind too much."""
    whole_formula = binding.kind == "given" and quote[0] == quote[-1] == "$"
    if not any(places) and not (places and whole_formula):
        return f'this section has no number in the words "{quote}"'
    if binding.kind == "given" and quote.startswith("|"):
        return f'"{quote}" would let any number into the table: quote its rows'
    for found in places:
        for _, number in found:
            if number.text == quote.strip() and weight(number) < 3:
                return f'which "{quote}"? Quote a word beside it as well'
    return None


def unlike(
    quote: str, binding: Binding, found: Found, values: Mapping[int, Value]
) -> str | None:
    """Say in what the prose differs from the run."""
    if binding.kind == "given":
        return None
    value = values.get(binding.line, "nothing evaluated it")
    if isinstance(value, str):
        return f'"{quote}": {binding.why} gives no number: {value}'
    if isinstance(value, bool):
        if not value:
            return f'"{quote}": {binding.why} is not true'
        return _outside(quote, binding, found)
    if len(value) != len(found):
        return f'"{quote}" has {_many(len(found))}, {binding.why} gives {len(value)}'
    for (_, number), wanted in zip(found, value, strict=True):
        if not same(wanted, number):
            reason = f'"{quote}": the run gives {wanted:.7g}, the page {number.text}'
            percent = number.after[:1] == ("%",) and same(100 * wanted, number)
            return f"{reason}: write 100 * ({binding.why})" if percent else reason
    return None


def _outside(quote: str, binding: Binding, found: Found) -> str | None:
    """Say that no number of these words lies where the comparison says it does."""
    bounds = bounds_of(binding.why)
    numbers = [number for _, number in found]
    said = [number.value for number in numbers]
    said += [number.value / 100 for number in numbers if number.after[:1] == ("%",)]
    if bounds is None or any(each in bounds for each in said):
        return None
    named = " and ".join(number.text for number in numbers)
    return f'"{quote}": {binding.why} holds, but {named} is not within these bounds'


def _many(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


def same(value: float, number: Number) -> bool:
    """Compare to the digits that the page shows; what has none, to a thousandth."""
    step = number.step or abs(number.value) / 500
    return abs(value - number.value) <= step / 2 + 1e-9 * abs(value)


def weight(number: Number) -> int:
    """Count the digits that could differ; a number in words is as one digit.

    But for a millionth and the like, for which code has 1e-6.
    """
    if number.kind == "word":
        return 3 if number.value < 0.002 else 1
    digits = re.sub(r"e-?\d+$", "", number.text)
    decimals = len(re.sub(r"\D", "", digits.partition(".")[2]))
    return max(len(re.sub(r"\D", "", digits).lstrip("0")), decimals)
