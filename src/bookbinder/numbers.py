"""Check that strong numbers in the prose come from something that the page has run.

A strong number has three digits or more, a decimal part with two significant digits,
or a percent sign. It must appear, to the digits shown, in the code, an output or a
listing under the same heading, or in a record that the page names. Numbers from a cited
source, years, versions and names with numbers are exempt. List any other number in the
page's front matter, with its reason::

    numbers:
      "65,504": the largest number of float16
    records: [scaling]
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from bookbinder.listings import ListingError, find_section
from bookbinder.page import Page, Problem
from transformer_book import RECORDS

__all__ = ["number_problems"]

# Code spans, formulas, link targets and addresses, and sentences that cite a source.
_NOT_PROSE = re.compile(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|<?https?://\S+")
_SENTENCE = re.compile(r"(?<=[.!?;|])\s+(?=[A-Z*\[`$|(])")
_CITED = re.compile(r"\]\(https?://|\[\^")
# No part of a name (GPT-2, 124M, arXiv:1706.03762) and of no date or version (2.13.0).
_NUMBER = re.compile(
    r"(?<![\w.,:/#-])(?:−|-)?(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(?P<percent>\s?%)?(?![\w/#:-]|[.,]\d)"
)
# Words before a version, or before a part of a paper or a book.
_NAMED = re.compile(
    r"\b(?:PyTorch|Python|torch|CUDA|version|sections?|chapters?|figures?|tables?|"
    r"equations?|eq\.|pages?|footnote|listing|algorithm|appendix|port|issue|CC BY)"
    r"(?:\s[\d., and]+)?\s*$",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_SHOWN = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:e[-+]?\d+)?")
# As f"{number:,}" prints it, beside which the parts of (1,024) are read as well.
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w,])")


def number_problems(page: Page, root: Path) -> Iterator[Problem]:
    """Return a problem for each strong number without a source on the page."""
    listed = {str(number) for number in page.meta.get("numbers", {})}
    heads = [n for n, line in page.prose if line.startswith("## ")]
    recorded = _recorded(page)
    for number, line in page.prose:
        for found, text in _strong(line):
            part = bisect_right(heads, number)
            if text in listed or found["digits"] in listed:
                continue
            backing = _run(page, heads, part, root) | recorded
            if not any(_is_shown(found, value) for value in backing):
                reason = (
                    f"{text} appears in no code, output or listing under this heading: "
                    "print it, or list it under numbers: in the front matter"
                )
                yield Problem(page.path, number, reason)


def _strong(line: str) -> Iterator[tuple[re.Match[str], str]]:
    for sentence in _SENTENCE.split(line):
        if _CITED.search(sentence):
            continue
        bare = _NOT_PROSE.sub(" ` ", sentence)
        for found in _NUMBER.finditer(bare):
            digits = found["digits"]
            whole = len(re.sub(r"\D", "", digits.partition(".")[0])) >= 3
            exact = "." in digits and len(re.sub(r"\D", "", digits).lstrip("0")) >= 2
            year = _YEAR.fullmatch(digits) or _NAMED.search(bare[: found.start()])
            if (whole or exact or found["percent"]) and not year:
                yield found, found[0].strip()


def _is_shown(found: re.Match[str], value: float) -> bool:
    """Return whether a value, rounded to these digits or as a percentage, reads so."""
    digits = found["digits"].replace(",", "")
    places = len(digits.partition(".")[2])
    values = [value, 100 * value] if found["percent"] else [value]
    unit = 10.0**-places
    return any(abs(each - float(digits)) <= unit * 0.500001 for each in values)


def _recorded(page: Page) -> frozenset[float]:
    found = frozenset[float]()
    for name in page.meta.get("records", []):
        with suppress(OSError):
            found |= _values((RECORDS / f"{name}.json").read_text("utf-8"))
    return found


def _run(page: Page, heads: list[int], part: int, root: Path) -> frozenset[float]:
    """Return the numbers of a part, or of the whole page if the part runs nothing."""
    parts = {bisect_right(heads, block.line) for block in page.blocks}
    everywhere = part == 0 or part not in parts

    def here(line: int) -> bool:
        return everywhere or bisect_right(heads, line) == part

    texts = [fence.text for fence in page.fences if here(fence.line)]
    for listing in page.listings:
        if here(listing.line):
            with suppress(ListingError):  # The audit reports it.
                texts.append(find_section(root, listing.path, listing.section).text)
    return _values("\n".join(texts))


@lru_cache(maxsize=64)
def _values(text: str) -> frozenset[float]:
    found = [*_SHOWN.findall(text), *_GROUPED.findall(text)]
    return frozenset(float(re.sub("[_,]", "", number)) for number in found)
