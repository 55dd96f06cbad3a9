"""Write into a page of the built site what verified it, and where to take it from.

The HTML is the engine's; what is put in stands behind the article, beneath the
listings, and as names on the blocks, so that a link can lead to each.
"""

import re
from datetime import date
from html import escape

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import Leaf
from bookbinder.publishing.notebooks import NOTEBOOK, notebook_name
from bookbinder.publishing.records import Quoted, Record
from bookbinder.publishing.twins import TWIN

__all__ = ["FOOT", "SiteError", "counted", "foot", "verified_words", "with_foot"]

FOOT = "foot"
# Where the records of all pages are, from the top of the site.
VERIFIED = "verified/"

_ARTICLE_END = "</article>"
_RUN = re.compile(r'<div class="language-python highlight">')
_LISTING = re.compile(r'<div class="language-(?:py|js) highlight">.*?</div>', re.DOTALL)


class SiteError(ValueError):
    """A built page that is not what its Markdown makes; the message says how."""


def with_foot(html: str, leaf: Leaf, record: Record | None, text: str) -> str:
    """Put a foot into a page, names on its blocks, and links beneath its listings.

    Args:
        html: The page, as the engine built it.
        leaf: The page, as it was written.
        record: What a run found of it, if there is a fresh one.
        text: The foot.

    Raises:
        SiteError: If the page shows other blocks or listings than it was written with,
            or has a foot already.
    """
    where = leaf.page.path
    if f'class="{_classes()}"' in html:
        raise SiteError(f"{where}: the site has its feet already: build it anew")
    if html.count(_ARTICLE_END) != 1:
        found = html.count(_ARTICLE_END)
        raise SiteError(f"{where}: wanted a page with one article, it has {found}")
    numbers = iter(range(1, len(leaf.page.blocks) + 1))
    html, blocks = _RUN.subn(
        lambda div: f'{div[0][:-1]} id="block-{next(numbers, 0)}">', html
    )
    listings = _LISTING.findall(html)
    for what, shown, written in (
        ("blocks", blocks, len(leaf.page.blocks)),
        ("listings", len(listings), len(leaf.page.listings)),
    ):
        if shown != written:
            reason = f"the site shows {shown} {what}, the page has {written}"
            raise SiteError(f"{where}: {reason}: build it anew")
    if record:
        notes = (_ran(quoted) for quoted in record.listings)
        html = _LISTING.sub(lambda div: div[0] + next(notes), html)
    before, _, after = html.partition(_ARTICLE_END)
    return f"{before}{_ARTICLE_END}{text}{after}"


def _classes() -> str:
    # Those of the theme's own article, so that it is set like one.
    return f"md-content__inner md-typeset {FOOT}"


def foot(leaf: Leaf, record: Record | None, home: Addresses, extra: str = "") -> str:
    """Write the foot of a page.

    Args:
        leaf: The page.
        record: What a run found of it, if there is a fresh one.
        home: Where the book lives.
        extra: Another paragraph, as HTML.
    """
    links = [f'<a href="{TWIN}">Markdown</a>']
    if leaf.page.blocks:
        name = f"{leaf.name}.ipynb"
        links.append(f'<a href="{NOTEBOOK}" download="{name}">notebook</a>')
        colab = home.colab(notebook_name(leaf))
        if colab:
            links.append(f'<a href="{escape(colab)}">open in Colab</a>')
    depth = len(leaf.folder.split("/")) if leaf.folder else 0
    *others, last = links
    taken = f"{', '.join(others)} or {last}" if others else last
    return (
        f'<footer class="{_classes()}">'
        f"<p>{verified_words(record, home, '../' * depth + VERIFIED)}</p>"
        f"<p>This page to take away: {taken}.</p>{extra}</footer>"
    )


def verified_words(record: Record | None, home: Addresses, more: str) -> str:
    """Say in HTML what was verified, by what and when, or that nothing was.

    Args:
        record: What a run found of the page, if there is a fresh one.
        home: Where the book lives.
        more: Where the records of all pages are.
    """
    if record is None:
        return (
            f'<strong><a href="{more}">Not verified</a> in this build.</strong> No test'
            " run has left a record of this text and this code."
        )
    found = [
        counted(record.blocks, "block", "run"),
        counted(record.outputs, "output", "compared"),
        counted(record.lines, "source line", "listed and executed"),
    ]
    what = ", ".join(filter(None, found)) or "no code, all else checked"
    return (
        f'<strong><a href="{more}">Verified</a></strong> {_when(record, home)} with'
        f" PyTorch {escape(record.torch)} and Python {escape(record.python)}: {what}."
    )


def counted(number: int, name: str, done: str) -> str:
    """Say how many of something there are, "" if there are none."""
    plural = "" if number == 1 else "s"
    return f"{number} {name}{plural} {done}" if number else ""


def _when(record: Record, home: Addresses) -> str:
    day = date.fromisoformat(record.date)
    words = f'on <time datetime="{record.date}">{day:%B} {day.day}, {day.year}</time>'
    if not record.commit:
        return words
    short, url = record.commit[:7], home.commit(record.commit)
    commit = f'<a href="{escape(url)}">{short}</a>' if url else f"<code>{short}</code>"
    changes = ", with changes not committed," if record.changed else ""
    return f"{words} at commit {commit}{changes}"


def _ran(quoted: Quoted) -> str:
    """Say beneath a listing which block ran which of its lines first."""
    if not quoted.spans:
        return ""
    parts: list[str] = []
    for block in dict.fromkeys(span.block for span in quoted.spans):
        lines = [
            f"{span.first} to {span.last}"
            if span.first < span.last
            else f"{span.first}"
            for span in quoted.spans
            if span.block == block
        ]
        link = f'<a href="#block-{block}">block {block}</a>'
        one = len(lines) == 1 and "to" not in lines[0]
        named = f"{'line' if one else 'lines'} {_listed(lines)}"
        parts.append(link if len(quoted.spans) == 1 else f"{named} by {link}")
    text = f": {', '.join(parts)}" if len(quoted.spans) > 1 else f" by {parts[0]}"
    return f'<p class="ran">First run{text}.</p>'


def _listed(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
