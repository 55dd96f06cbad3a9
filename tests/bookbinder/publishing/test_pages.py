import re
from dataclasses import replace
from pathlib import Path

import pytest

from bookbinder.publishing.book import Book, load_book
from bookbinder.publishing.pages import foot, verified_words, with_code_blocks
from bookbinder.publishing.records import Record

BOOK = Book("The Book", "Sums.", "Free.", (), "", "https://github.com/me/book")
RECORD = Record(
    digest="",
    blocks=3,
    outputs=1,
    lines=6,
    first_run_by=[[1, 2]],
    torch="2.13.0",
    python="3.11.7",
    date="2026-11-02",
    commit="0123456789abcdef",
    changed=False,
)


def words(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def test_a_foot_says_what_was_verified_by_what_and_when() -> None:
    said = verified_words(RECORD, BOOK, "../checked")
    assert words(said) == (
        "Verified on November 2, 2026 at commit 0123456 with PyTorch 2.13.0 and"
        " Python 3.11.7: 3 blocks run, 1 output compared,"
        " 6 source lines listed and executed."
    )
    assert re.findall('href="([^"]*)"', said) == [
        "../checked/",
        "https://github.com/me/book/commit/0123456789abcdef",
    ]


def test_a_foot_claims_nothing_that_it_does_not_know() -> None:
    home = replace(BOOK, repository="")
    changed = words(verified_words(replace(RECORD, changed=True), home, ""))
    assert "at commit 0123456, with changes not committed, with PyTorch" in changed
    bare = replace(RECORD, blocks=0, outputs=0, lines=0, commit="")
    said = words(verified_words(bare, BOOK, ""))
    assert "2026 with PyTorch" in said
    assert said.endswith(": no code, all else checked.")
    never = words(verified_words(None, BOOK, ""))
    assert never.startswith("Not verified in this build.")
    assert "Verified" not in never


def test_a_foot_has_what_is_to_be_taken_away(root: Path) -> None:
    home, chapter, _ = load_book(root, {}).leaves
    text = foot(chapter, None, BOOK)
    assert re.findall(r'href="([^"]*)"', text) == [
        "../../how-this-book-is-checked/",
        "../../chapters/01-sums.md",
        "../../chapters/01-sums.ipynb",
        "https://colab.research.google.com/github/me/book/blob/notebooks/"
        "chapters/01-sums.ipynb",
    ]
    elsewhere = replace(BOOK, repository="https://git.example.org/me/book")
    assert "Colab" not in foot(chapter, None, elsewhere)
    assert "notebook" not in foot(home, None, BOOK)


def test_code_gets_names_sizes_copies_and_who_ran_it(root: Path, site: Path) -> None:
    _, chapter, _ = load_book(root, {}).leaves
    html = chapter.file(site).read_text("utf-8")
    made = with_code_blocks(html, chapter, RECORD)
    ids = re.findall(r'python highlight" id="([^"]*)"', made)
    assert ids == ["block-1", "block-2", "block-3"]
    local = with_code_blocks(html, chapter, replace(RECORD, torch="2.13.0+cpu"))
    assert set(re.findall(r'data-torch="([^"]*)"', local)) == {"2.13.0"}
    (copy,) = re.findall(r'py highlight" data-copy="([^"]*)"', made)
    assert copy == "../../listings/tested_transformer/adding-add.py"
    # Six lines, the longest of 29 characters as they are read.
    assert '<code><span class="sized" style="--lines:6;--columns:26">def' in made
    (note,) = re.findall(r'</code></pre></div>(<p class="ran">.*?</p>)', made)
    assert words(note) == "First run by block 1 and block 2."
    assert '<a href="#block-2">' in note
    assert 'class="ran"' not in with_code_blocks(html, chapter, None)


def test_a_docstring_is_folded_behind_its_first_line(root: Path, site: Path) -> None:
    _, chapter, _ = load_book(root, {}).leaves
    html = chapter.file(site).read_text("utf-8")
    first, rest = (
        '<span class="sd">"""Add.</span>',
        '\n\n<span class="sd">    a: b."""</span>',
    )
    start = '<div class="language-py highlight">'
    before, listing = html.split(start)
    listing = listing.replace("</code>", f"{first}{rest}\n</code>", 1)
    made = with_code_blocks(before + start + listing, chapter, RECORD)
    assert f'</label><span class="folded">{rest}</span>' in made
    assert f"{first}<label" in made
    # Six lines were there. What is folded takes no room until it is opened.
    assert "--lines:7;" in made


def test_a_block_that_only_draws_is_folded(root: Path, site: Path) -> None:
    _, chapter, _ = load_book(root, {}).leaves
    html = chapter.file(site).read_text("utf-8")
    silent = next(block for block in chapter.page.blocks if not block.output)
    assert "drawing" not in with_code_blocks(html, chapter, RECORD)
    silent.code += '\nfigure.savefig("sums.svg")'
    made = with_code_blocks(html, chapter, RECORD)
    (folded,) = re.findall(r'<details class="drawing">.*?</details>', made, re.DOTALL)
    number = chapter.page.blocks.index(silent) + 1
    assert f'id="block-{number}"' in folded
    assert re.findall(r'python highlight" id="([^"]*)"', made)[-1] == "block-3"


def test_a_shape_in_a_type_stays_in_one_line(root: Path) -> None:
    home = load_book(root, {}).leaves[0]
    shape = "Float[Tensor, {}] of &#34;words&#34;"
    made = with_code_blocks(shape.format("&#34;B T&#34;"), home, None)
    assert made == shape.format('<span class="whole">&#34;B T&#34;</span>')


@pytest.mark.parametrize("kind", ["text", "py"])
def test_a_site_of_other_pages_is_refused(kind: str, root: Path, site: Path) -> None:
    _, chapter, _ = load_book(root, {}).leaves
    html = chapter.file(site).read_text("utf-8")
    html = html.replace(f"language-{kind} highlight", "language-python highlight")
    with pytest.raises(ValueError, match="the site shows 4 blocks"):
        with_code_blocks(html, chapter, RECORD)
