"""Finish the code of a built page: sizes, copies, folds, and first runs of listings.

A docstring in a listing shows its first line; a switch shows the rest. A block that
only draws, and prints nothing, is folded above its figure.

A browser lays out only the code in view, which saves a third of the time for a long
page. Code out of view gets its height from its lines and its width from its columns, so
that nothing moves and every link leads to its place.
"""

import re
from html import unescape

from bookbinder.publishing.book import Leaf
from bookbinder.publishing.records import Record
from bookbinder.publishing.standalone import file_of

__all__ = ["with_code_blocks"]

_RUN = re.compile(
    r"(<!--pytest-codeblocks:cont-->\s*)?"
    r'<div class="language-python highlight">(.*?</div>)',
    re.DOTALL,
)
_DRAWS = ".savefig("
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


def with_code_blocks(html: str, leaf: Leaf, record: Record | None) -> str:
    """Finish the code of a page's HTML.

    Raises:
        ValueError: If the HTML has other blocks or listings than the page.
    """
    page = leaf.page
    shown = len(_RUN.findall(html)), len(_LISTING.findall(html))
    if shown != (len(page.blocks), len(page.listings)):
        raise ValueError(
            f"{page.path}: the site shows {shown[0]} blocks and {shown[1]} listings, "
            f"the page has {len(page.blocks)} and {len(page.listings)}: build it again"
        )
    numbered = iter(enumerate(page.blocks, start=1))
    torch = record.torch.partition("+")[0] if record else ""  # without its build
    ran_with = f' data-torch="{torch}"' if record else ""

    def run(div: re.Match[str]) -> str:
        number, block = next(numbered)
        names = f'class="language-python highlight" id="block-{number}"{ran_with}'
        code = f"{div[1] or ''}<div {names}>{div[2]}"
        if _DRAWS not in block.code or block.output:
            return code
        summary = "<summary>The code of this figure</summary>"
        return f'<details class="drawing">{summary}{code}</details>'

    html = _RUN.sub(run, html)
    first_run_by = iter(record.first_run_by if record else [[]] * len(page.listings))
    listings = iter(page.listings)

    def finished(div: re.Match[str]) -> str:
        copy = file_of(next(listings))
        address = f' data-copy="{leaf.up}{copy}"' if copy else ""
        code = _DOCSTRING.sub(_FOLD, div[2])
        return f"{div[1]}{address}{code}{_first_run(next(first_run_by))}"

    html = _LISTING.sub(finished, html)
    html = _SHAPE.sub(r'<span class="whole">\g<0></span>', html)
    return _CODE.sub(_sized, html)


def _first_run(blocks: list[int]) -> str:
    if not blocks:
        return ""
    *others, last = [f'<a href="#block-{block}">block {block}</a>' for block in blocks]
    by = f"{', '.join(others)} and {last}" if others else last
    return f'<p class="ran">First run by {by}.</p>'


def _sized(code: re.Match[str]) -> str:
    text = unescape(re.sub(r"<[^>]*>", "", _FOLDED.sub("", code[2])))
    lines = text.removesuffix("\n").split("\n")
    sizes = f"--lines:{len(lines)};--columns:{max(map(len, lines))}"
    return f'{code[1]}<span class="sized" style="{sizes}">{code[2]}</span></code>'
