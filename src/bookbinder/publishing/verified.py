"""The page on which the whole book says what verified it, filled in for this build."""

from collections.abc import Mapping
from html import escape

from bookbinder.publishing.book import Book, Leaf
from bookbinder.publishing.records import Record

__all__ = ["BEFORE", "PAGE", "Records", "as_html", "as_markdown"]

PAGE = "verified.md"
# Behind this paragraph of the page stands the table. In a preview there is none.
BEFORE = (
    "The records that the tests have left are set out here when the site is published."
)

_HEAD = ("page", "blocks run", "outputs compared", "source lines", "verified")
_NEVER = "not in this build"

Records = Mapping[str, Record | None]
"""The fresh record of each page, by the page's file."""


def as_html(book: Book, records: Records) -> str:
    """Give the table for the page in the site."""
    rows = "".join(
        f'<tr><td><a href="{_up(leaf)}">{escape(leaf.title)}</a></td>'
        + "".join(f"<td{_RIGHT}>{cell}</td>" for cell in cells[:-1])
        + f"<td>{cells[-1]}</td></tr>"
        for leaf, cells in _rows(book, records)
    )
    *totals, _ = _total(records)
    sums = "".join(f"<td{_RIGHT}>{total}</td>" for total in totals)
    first, *counted, last = _HEAD
    names = "".join(f"<th{_RIGHT}>{name}</th>" for name in counted)
    head = f"<th>{first}</th>{names}<th>{last}</th>"
    return (
        '<section class="published">'
        f"<p>{_summary(book, records)}</p>"
        # In a frame, as the theme/ gives one to every table of a page.
        f'<div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}<tr><td>together</td>{sums}<td></td></tr></tbody></table></div>"
        "</section>"
    )


_RIGHT = ' style="text-align: right;"'


def as_markdown(book: Book, records: Records) -> str:
    """Give the table as the page would have it in Markdown."""
    lines = [_row(_HEAD), _row(["---", *(["---:"] * 3), "---"])]
    for leaf, cells in _rows(book, records):
        lines.append(_row([f"[{leaf.title}]({leaf.source})", *cells]))
    lines.append(_row(["together", *_total(records)]))
    return "\n".join([_summary(book, records), "", *lines])


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _up(leaf: Leaf) -> str:
    """Lead from this page's folder, which lies at the top of the site, to another."""
    return f"../{leaf.folder}/" if leaf.folder else "../"


def _rows(book: Book, records: Records) -> list[tuple[Leaf, list[str]]]:
    """Give a row for each page that runs something."""
    return [
        (leaf, _cells(records[leaf.source])) for leaf in book.leaves if leaf.page.blocks
    ]


def _cells(record: Record | None) -> list[str]:
    if record is None:
        return ["", "", "", _NEVER]
    commit = f" at {record.commit[:7]}" if record.commit else ""
    changed = " and changes" if record.changed else ""
    numbers = (record.blocks, record.outputs, record.lines)
    return [*map(str, numbers), f"{record.date}{commit}{changed}"]


def _total(records: Records) -> list[str]:
    found = [record for record in records.values() if record]
    return [
        str(sum(record.blocks for record in found)),
        str(sum(record.outputs for record in found)),
        str(sum(record.lines for record in found)),
        "",
    ]


def _summary(book: Book, records: Records) -> str:
    found = [record for record in records.values() if record]
    if not found:
        return "None of the pages has been verified in this build."
    versions = sorted({f"PyTorch {r.torch}, Python {r.python}" for r in found})
    return (
        f"{len(found)} of {len(book.leaves)} pages verified, with"
        f" {' and '.join(versions)}."
    )
