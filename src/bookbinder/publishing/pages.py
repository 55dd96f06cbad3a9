"""Finish the HTML of a page: what ran each piece of code, and what verified the page.

A docstring in a listing shows its first line; a switch shows the rest. A block that
only draws, and prints nothing, is folded above its figure.
"""

import re
import sys
from collections.abc import Collection
from datetime import date
from html import escape, unescape

from bookbinder.places import PACKAGES
from bookbinder.publishing.book import Book, Entry, address_of
from bookbinder.publishing.notebooks import colab_address, imported, installation
from bookbinder.publishing.records import Record
from bookbinder.publishing.standalone import file_of, file_of_run

# The page about how the book is checked.
CHECKED = "how-this-book-is-checked.md"

# It begins with a sign that is always there, for which a page is searched quickly.
_RUN = re.compile(
    r"<(!--pytest-codeblocks:cont-->\s*<)?"
    r'div class="language-python highlight">(.*?</div>)',
    re.DOTALL,
)
_LISTING = re.compile(
    r'(<div class="language-(?:py|js) highlight")(>.*?</div>)', re.DOTALL
)
_DOCSTRING = re.compile(
    r'(<span class="sd">[^<]*</span>)((?:\n+<span class="sd">[^<]*</span>)+)'
)
_FOLD = (
    r'\1<label class="fold"><input type="checkbox" '
    r'aria-label="Show the whole docstring"></label><span class="folded">\2</span>'
)
_FOLDED = re.compile(
    r'<span class="folded">(?:\n+<span class="sd">[^<]*</span>)+</span>'
)
_CODE = re.compile(r"(<pre[^>]*>(?:<span></span>)?<code>)(.*?)</code>", re.DOTALL)
# A shape in a type of the reference, which must not be broken into two.
_SHAPE = re.compile(r"&#34;[^&<>]+&#34;(?=\])")


def with_code_blocks(
    html: str, entry: Entry, book: Book, files: Collection[str] = ()
) -> str:
    """Finish the code of a page's HTML.

    What to install stands before the first run that needs the library. Runs that need
    PyTorch alone are marked, for their copy buttons, and so are those that have a file
    among ``files`` with what they need of the library.

    Raises:
        ValueError: If the HTML has other blocks or listings than the page.
    """
    page, record = entry.page, entry.record
    shown = len(_RUN.findall(html)), len(_LISTING.findall(html))
    if shown != (len(page.blocks), len(page.listings)):
        raise ValueError(
            f"{page.path}: the site shows {shown[0]} blocks and {shown[1]} listings, "
            f"the page has {len(page.blocks)} and {len(page.listings)}: build it again"
        )
    torch = record.torch.partition("+")[0] if record else ""  # without its build
    ran_with = f' data-torch="{torch}"' if record else ""
    command = escape(installation(page, book), quote=False)
    command = re.sub(r"pip.*", r"<code>\g<0></code>", command)
    needs = [imported(run) for run in page.runs()]
    needing = (n for n, names in enumerate(needs, start=1) if names & {*PACKAGES})
    first_needing = next(needing, 0)
    alone = [{"torch"} == names - sys.stdlib_module_names for names in needs]
    blocks = iter(enumerate(page.blocks, start=1))
    first_run_by = record.first_run_by if record else [[]] * len(page.listings)
    listings = iter(zip(page.listings, first_run_by, strict=True))

    def run(div: re.Match[str]) -> str:
        number, block = next(blocks)
        names = f'class="language-python highlight" id="block-{number}"{ran_with}'
        names += " data-alone" * alone[number - 1]
        if (file := file_of_run(entry, number)) in files:
            names += f' data-copy="{entry.up}{file}"'
        code = f"<{div[1] or ''}div {names}>{div[2]}"
        if number == first_needing:
            code = f'<p class="install">To run it, <span>{command}</span></p>{code}'
        if ".savefig(" not in block.code or block.output:
            return code
        summary = "<summary>The code of this figure</summary>"
        return f'<details class="drawing">{summary}{code}</details>'

    def listing(div: re.Match[str]) -> str:
        shown, ran_by = next(listings)
        copy = file_of(shown)
        address = f' data-copy="{entry.up}{copy}"' if copy else ""
        code = f"{div[1]}{address}{_DOCSTRING.sub(_FOLD, div[2])}"
        links = [f'<a href="#block-{block}">block {block}</a>' for block in ran_by]
        words = ", ".join(links[:-1]) + " and " * (len(links) > 1) + "".join(links[-1:])
        return f'{code}<p class="ran">First run by {words}.</p>' if links else code

    html = _LISTING.sub(listing, _RUN.sub(run, html))
    html = _SHAPE.sub(r'<span class="whole">\g<0></span>', html)
    return _CODE.sub(_sized, html)


def _sized(code: re.Match[str]) -> str:
    """Tell the stylesheet how many lines and columns some code has.

    A browser lays out only the code in view, which saves a third of the time for a long
    page. With these numbers nothing moves, and every link leads to its place.
    """
    text = unescape(re.sub(r"<[^>]*>", "", _FOLDED.sub("", code[2])))
    lines = text.removesuffix("\n").split("\n")
    sizes = f"--lines:{len(lines)};--columns:{max(map(len, lines))}"
    return f'{code[1]}<span class="sized" style="{sizes}">{code[2]}</span></code>'


def offers(entry: Entry, book: Book, *, pdf: bool = False) -> str:
    """Return links to what there is of a page to take away, perhaps as a PDF."""
    links = [f'<a href="{entry.up}{entry.source}">Markdown</a>']
    if entry.page.blocks:
        if pdf:
            links.insert(0, f'<a href="{entry.up}{entry.pdf}">PDF</a>')
        if colab := colab_address(entry, book):
            links.insert(0, f'<a href="{escape(colab)}">Colab</a>')
        links.insert(0, f'<a href="{entry.up}{entry.notebook}" download>Notebook</a>')
    return "".join(links)


def footer(entry: Entry, book: Book, extra: str = "") -> str:
    """Return the foot of a page as HTML, with an extra paragraph after it."""
    more = entry.up + address_of(CHECKED)
    # Use the classes of the theme's articles, so that the foot is styled like one.
    return (
        '<footer class="md-content__inner md-typeset foot">'
        f"<p>{verified_words(entry.record, book, more)}</p>"
        f"{extra}</footer>"
    )


def verified_words(record: Record | None, book: Book, more: str) -> str:
    """Return what was verified, by what and when, or that nothing was, with a link."""
    if record is None:
        return (
            f'<strong><a href="{more}">Not verified</a> in this build.</strong> No'
            " test run has left a record of this text and this code."
        )
    counts = (
        (record.blocks, "block", "run"),
        (record.outputs, "output", "compared"),
        (record.lines, "source line", "listed and executed"),
    )
    what = ", ".join(
        f"{number} {name}{'' if number == 1 else 's'} {done}"
        for number, name, done in counts
        if number
    )
    commit = f"<code>{record.commit[:7]}</code>"
    if book.repository:
        url = escape(f"{book.repository}/commit/{record.commit}")
        commit = f'<a href="{url}">{record.commit[:7]}</a>'
    changes = ", with changes not committed," if record.changed else ""
    at = f" at commit {commit}{changes}" if record.commit else ""
    day = date.fromisoformat(record.date)
    return (
        f'<strong><a href="{more}">Verified</a></strong> on'
        f' <time datetime="{record.date}">{day:%B} {day.day}, {day.year}</time>{at}'
        f" with PyTorch {escape(record.torch)} and Python {escape(record.python)}:"
        f" {what or 'no code, all else checked'}."
    )
