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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

from bookbinder.listings import Section
from bookbinder.page import Listing, Page, Problem
from transformer_book import RECORDS

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


def number_problems(
    page: Page, sections: Sequence[tuple[Listing, Section]]
) -> Iterator[Problem]:
    """Return a problem for each strong number without a source on the page."""
    listed = {str(number) for number in page.meta.get("numbers", {})}
    recorded = _recorded(page)
    for anchor, part in page.parts.items():
        # A part that runs nothing may speak of the whole page.
        runs = anchor and any(block.line in part for block in page.blocks)
        lines = part if runs else range(1, len(page.lines) + 1)
        values = _values_on(lines, page, sections) | recorded
        for line, text in page.prose:
            for number in _strong_numbers(text) if line in part else ():
                known = {number[0].strip(), number["digits"]} & listed
                if not known and not any(_reads_so(number, v) for v in values):
                    reason = (
                        f"{number[0].strip()} appears in no code, output or listing "
                        "under this heading: print it, or list it under numbers: in "
                        "the front matter"
                    )
                    yield Problem(page.path, line, reason)


def _strong_numbers(line: str) -> Iterator[re.Match[str]]:
    for sentence in _SENTENCE.split(line):
        if _CITED.search(sentence):
            continue
        bare = _NOT_PROSE.sub(" ` ", sentence)
        for number in _NUMBER.finditer(bare):
            before, _, after = number["digits"].replace(",", "").partition(".")
            significant = len((before + after).lstrip("0"))
            strong = len(before) >= 3 or (after and significant >= 2)
            year = _YEAR.fullmatch(number["digits"])
            named = _NAMED.search(bare[: number.start()])
            if (strong or number["percent"]) and not year and not named:
                yield number


def _reads_so(number: re.Match[str], value: float) -> bool:
    """Return whether a value, rounded to these digits or as a percentage, reads so."""
    digits = number["digits"].replace(",", "")
    unit = 10.0 ** -len(digits.partition(".")[2])
    values = [value, 100 * value] if number["percent"] else [value]
    return any(abs(near - float(digits)) <= unit * 0.500001 for near in values)


def _recorded(page: Page) -> frozenset[float]:
    values = frozenset[float]()
    for name in page.meta.get("records", []):
        with suppress(OSError):
            values |= _values((RECORDS / f"{name}.json").read_text("utf-8"))
    return values


def _values_on(
    lines: range, page: Page, sections: Sequence[tuple[Listing, Section]]
) -> frozenset[float]:
    """Return the numbers in the fences and the listings on some lines of a page."""
    texts = [fence.text for fence in page.fences if fence.line in lines]
    texts += [section.text for listing, section in sections if listing.line in lines]
    return _values("\n".join(texts))


@lru_cache(maxsize=64)
def _values(text: str) -> frozenset[float]:
    shown = [*_SHOWN.findall(text), *_GROUPED.findall(text)]
    return frozenset(float(re.sub("[_,]", "", number)) for number in shown)
