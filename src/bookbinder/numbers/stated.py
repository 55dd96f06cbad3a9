"""What the runs, outputs and listings of a page state, part by part."""

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from bookbinder.numbers.facts import Fact, Phrase, facts, phrases
from bookbinder.numbers.numerals import Passage
from bookbinder.reading.listings import ListingError, find_section
from bookbinder.reading.pages import Page


@dataclass
class Stated:
    """What the runs below one ``##`` heading state: numbers, of what, in what words."""

    facts: list[Fact] = field(default_factory=list[Fact])
    phrases: set[Phrase] = field(default_factory=set[Phrase])
    said: str = ""


def read_stated(
    page: Page, prose: list[Passage], root: Path
) -> tuple[dict[int, Stated], str]:
    """Give what each part states, by the line of its heading, and all programs.

    What stands above the first heading speaks of the whole page, and counts its nouns.
    """
    parts = sorted({passage.part for passage in prose} | {0})
    texts = [(block.line, block.code) for block in page.blocks]
    for listing in page.listings:
        with suppress(ListingError):  # The audit has said so.
            section = find_section(root, listing.path, listing.section)
            texts.append((listing.line, section.text))
    outputs = [(b.output.line, b.output.text) for b in page.blocks if b.output]
    said = "\n".join(text for _, text in outputs).lower()
    stated = {part: Stated(said=said) for part in parts}
    for line, text in texts + outputs:
        part = stated[parts[bisect_right(parts, line) - 1]]
        part.facts += facts(text)
        part.phrases |= {*phrases(text)}
    for passage in takewhile(lambda each: not each.text.startswith("## "), prose):
        above = stated[passage.part]
        counts = (p for part in stated.values() for p in part.phrases)
        above.phrases |= {each for each in counts if each.noun != "decimal"}
    return stated, "\n".join(text for _, text in texts + outputs)
