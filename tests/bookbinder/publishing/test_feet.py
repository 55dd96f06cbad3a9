import re
from dataclasses import replace
from pathlib import Path

import pytest

from bookbinder.publishing.addresses import Addresses
from bookbinder.publishing.book import load_book
from bookbinder.publishing.feet import SiteError, foot, verified_words, with_foot
from bookbinder.publishing.records import Quoted, Record, Span

HOME = Addresses("", "https://github.com/me/book")
RECORD = Record(
    digest="",
    blocks=3,
    outputs=1,
    listings=(Quoted(20, 6, (Span(1, 5, 1), Span(6, 6, 2))),),
    torch="2.13.0",
    python="3.11.7",
    date="2026-11-02",
    commit="0123456789abcdef",
    changed=False,
)


def words(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def test_a_foot_says_what_was_verified_by_what_and_when() -> None:
    said = verified_words(RECORD, HOME, "../")
    assert words(said) == (
        "Verified on November 2, 2026 at commit 0123456 with PyTorch 2.13.0 and"
        " Python 3.11.7: 3 blocks run, 1 output compared,"
        " 6 source lines listed and executed."
    )
    assert 'href="https://github.com/me/book/commit/0123456789abcdef"' in said


def test_a_foot_says_what_it_does_not_know() -> None:
    changed = words(verified_words(replace(RECORD, changed=True), Addresses(), ""))
    assert "at commit 0123456, with changes not committed, with PyTorch" in changed
    apart = words(verified_words(replace(RECORD, commit=""), Addresses(), ""))
    assert "November 2, 2026 with PyTorch" in apart
    bare = replace(RECORD, blocks=0, outputs=0, listings=())
    assert words(verified_words(bare, HOME, "")).endswith(
        ": no code, all else checked."
    )


def test_without_a_record_nothing_is_claimed() -> None:
    said = words(verified_words(None, HOME, ""))
    assert said.startswith("Not verified in this build.")
    assert "Verified" not in said


def test_a_foot_has_what_is_to_be_taken_away(root: Path) -> None:
    home, chapter, _ = load_book(root).leaves
    text = foot(chapter, None, HOME)
    colab = (
        "https://colab.research.google.com/github/me/book/blob/notebooks/"
        "chapters/01-sums.ipynb"
    )
    assert re.findall(r'href="([^"]*)"', text) == [
        *("../../verified/", "index.md", "notebook.ipynb"),
        colab,
    ]
    assert 'download="01-sums.ipynb"' in text
    assert "Markdown, notebook or open in Colab." in words(text)
    assert "Colab" not in foot(chapter, None, Addresses())
    assert "notebook" not in foot(home, None, HOME)


def test_blocks_get_names_and_listings_say_who_ran_them(root: Path, site: Path) -> None:
    _, chapter, _ = load_book(root).leaves
    html = chapter.file(site).read_text("utf-8")
    made = with_foot(html, chapter, RECORD, "<footer>FOOT</footer>")
    assert re.findall(r'python highlight" id="([^"]*)"><pre><code>([^<]*)', made) == [
        ("block-1", "print(add(1, 2))"),
        ("block-2", "add(-1, 5)"),
        ("block-3", "math.pi"),
    ]
    note = (
        '<p class="ran">First run: lines 1 to 5 by <a href="#block-1">block 1</a>,'
        ' line 6 by <a href="#block-2">block 2</a>.</p>'
    )
    assert f"</code></pre></div>{note}\n<div" in made
    assert "</article><footer>FOOT</footer><footer>end" in made


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ((), ""),
        ((Span(1, 6, 3),), "First run by block 3."),
        (
            (Span(1, 2, 1), Span(3, 3, 2), Span(4, 6, 1)),
            "First run: lines 1 to 2 and 4 to 6 by block 1, line 3 by block 2.",
        ),
    ],
)
def test_a_note_names_lines_and_blocks(
    spans: tuple[Span, ...], said: str, root: Path, site: Path
) -> None:
    _, chapter, _ = load_book(root).leaves
    record = replace(RECORD, listings=(Quoted(20, 6, spans),))
    made = with_foot(chapter.file(site).read_text("utf-8"), chapter, record, "")
    assert words("".join(re.findall('<p class="ran">.*?</p>', made))) == said


def test_without_a_record_no_block_is_said_to_have_run_anything(
    root: Path, site: Path
) -> None:
    _, chapter, _ = load_book(root).leaves
    made = with_foot(chapter.file(site).read_text("utf-8"), chapter, None, "")
    assert 'class="ran"' not in made
    assert 'id="block-3"' in made


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '<div class="language-text highlight">',
            '<div class="language-python highlight">',
            "the site shows 4 blocks, the page has 3: build it anew",
        ),
        (
            '<div class="language-py highlight">',
            "<div>",
            "the site shows 0 listings, the page has 1: build it anew",
        ),
        ("</article>", "", "wanted a page with one article, it has 0"),
        (
            "</article>",
            '</article><footer class="md-content__inner md-typeset foot">',
            "the site has its feet already: build it anew",
        ),
    ],
)
def test_a_site_of_other_pages_is_refused(
    old: str, new: str, message: str, root: Path, site: Path
) -> None:
    _, chapter, _ = load_book(root).leaves
    html = chapter.file(site).read_text("utf-8").replace(old, new)
    with pytest.raises(SiteError) as refused:
        with_foot(html, chapter, RECORD, "")
    assert str(refused.value) == f"docs/chapters/01-sums.md: {message}"
