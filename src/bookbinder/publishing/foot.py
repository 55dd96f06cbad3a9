"""Write the foot of a page: what verified it, and its downloads."""

from datetime import date
from html import escape

from bookbinder.publishing.book import Book, Leaf
from bookbinder.publishing.notebooks import colab_address
from bookbinder.publishing.records import Record

__all__ = ["CHECKED", "foot", "verified_words"]

# The page about how the book is checked.
CHECKED = "how-this-book-is-checked.md"


def foot(leaf: Leaf, record: Record | None, book: Book, extra: str = "") -> str:
    """Return the foot of a page as HTML, with an extra paragraph after it."""
    links = [f'<a href="{leaf.up}{leaf.source}">Markdown</a>']
    if leaf.page.blocks:
        links.append(f'<a href="{leaf.up}{leaf.notebook}" download>notebook</a>')
        if colab := colab_address(leaf, book):
            links.append(f'<a href="{escape(colab)}">open in Colab</a>')
    # Use the classes of the theme's articles, so that the foot is styled like one.
    return (
        '<footer class="md-content__inner md-typeset foot">'
        f"<p>{verified_words(record, book, leaf.up + CHECKED.removesuffix('.md'))}</p>"
        f"<p>This page to take away: {', '.join(links)}.</p>{extra}</footer>"
    )


def verified_words(record: Record | None, book: Book, more: str) -> str:
    """Return what was verified, by what and when, or that nothing was, with a link."""
    if record is None:
        return (
            f'<strong><a href="{more}/">Not verified</a> in this build.</strong> No'
            " test run has left a record of this text and this code."
        )
    found = (
        _counted(record.blocks, "block", "run"),
        _counted(record.outputs, "output", "compared"),
        _counted(record.lines, "source line", "listed and executed"),
    )
    what = ", ".join(filter(None, found)) or "no code, all else checked"
    day = date.fromisoformat(record.date)
    time = f'<time datetime="{record.date}">{day:%B} {day.day}, {day.year}</time>'
    return (
        f'<strong><a href="{more}/">Verified</a></strong> on {time}'
        f"{_commit(record, book)} with PyTorch {escape(record.torch)} and Python"
        f" {escape(record.python)}: {what}."
    )


def _counted(number: int, name: str, done: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'} {done}" if number else ""


def _commit(record: Record, book: Book) -> str:
    if not record.commit:
        return ""
    commit = f"<code>{record.commit[:7]}</code>"
    if book.repository:
        url = f"{book.repository}/commit/{record.commit}"
        commit = f'<a href="{escape(url)}">{record.commit[:7]}</a>'
    changes = ", with changes not committed," if record.changed else ""
    return f" at commit {commit}{changes}"
