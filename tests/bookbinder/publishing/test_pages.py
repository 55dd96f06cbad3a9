import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from bookbinder.publishing.book import Book, Entry, load_book
from bookbinder.publishing.pages import offers, verified_words, with_code_blocks
from bookbinder.publishing.records import Record

BOOK = Book("The Book", "Sums.", "Free.", (), "", "https://github.com/me/book")
RECORD = Record(
    digest="",
    blocks=3,
    outputs=1,
    lines=6,
    first_run_by=[[1, 2]],
    torch="2.13.0+cpu",
    python="3.11.7",
    date="2026-11-02",
    commit="0123456789abcdef",
    changed=False,
)


def words(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def test_a_foot_says_what_was_verified_by_what_and_when() -> None:
    html = verified_words(RECORD, BOOK, "../checked/")
    assert words(html) == (
        "Verified on November 2, 2026 at commit 0123456 with PyTorch 2.13.0+cpu and"
        " Python 3.11.7: 3 blocks run, 1 output compared,"
        " 6 source lines listed and executed."
    )
    commit = "https://github.com/me/book/commit/0123456789abcdef"
    assert re.findall('href="([^"]*)"', html) == ["../checked/", commit]
    # It claims nothing that it does not know.
    home = replace(BOOK, repository="")
    changed = words(verified_words(replace(RECORD, changed=True), home, ""))
    assert "at commit 0123456, with changes not committed, with PyTorch" in changed
    bare = replace(RECORD, blocks=0, outputs=0, lines=0, commit="")
    text = words(verified_words(bare, BOOK, ""))
    assert "2026 with PyTorch" in text
    assert text.endswith(": no code, all else checked.")
    never = words(verified_words(None, BOOK, ""))
    assert never.startswith("Not verified in this build.")
    assert "Verified" not in never


def test_a_page_offers_what_to_take_away(root: Path) -> None:
    home, chapter, _ = load_book(root, {}).entries
    assert re.findall(r'href="([^"]*)"', offers(chapter, BOOK, pdf=True)) == [
        "../../chapters/01-sums.ipynb",
        "https://colab.research.google.com/github/me/book/blob/notebooks/"
        "chapters/01-sums.ipynb",
        "../../chapters/01-sums.pdf",
        "../../chapters/01-sums.md",
    ]
    elsewhere = replace(BOOK, repository="https://git.example.org/me/book")
    assert "Colab" not in offers(chapter, elsewhere)
    assert "PDF" not in offers(chapter, BOOK)
    assert "Notebook" not in offers(home, BOOK, pdf=True)


@pytest.fixture
def chapter(root: Path) -> Entry:
    return replace(load_book(root, {}).entries[1], record=RECORD)


@pytest.fixture
def html(chapter: Entry, site: Path) -> str:
    return chapter.file(site).read_text("utf-8")


def test_code_has_names_sizes_copies_and_who_ran_it(chapter: Entry, html: str) -> None:
    first, rest = '<span class="sd">"""Add.</span>', '\n\n<span class="sd">b."""</span>'
    before, listing = html.split("    return a + b\n")
    html = f"{before}    return a + b\n{first}{rest}\n{listing}"
    page = with_code_blocks(html, chapter, BOOK)
    ids = re.findall(r'python highlight" id="([^"]*)" data-torch="2.13.0"', page)
    assert ids == ["block-1", "block-2", "block-3"]
    (copy,) = re.findall(r'py highlight" data-copy="([^"]*)"', page)
    assert copy == "../../listings/tested_transformer/adding-add.py"
    # A docstring is folded behind its first line.
    assert re.search(f'{first}<label.*</label><span class="folded">{rest}</span>', page)
    # What is folded takes no room; the longest line has 26 characters, as it is read.
    assert '<code><span class="sized" style="--lines:7;--columns:26">def' in page
    (note,) = re.findall(r'</code></pre></div>(<p class="ran">.*?</p>)', page)
    assert words(note) == "First run by block 1 and block 2."
    assert '<a href="#block-2">' in note
    bare = with_code_blocks(html, replace(chapter, record=None), BOOK)
    assert 'class="ran"' not in bare
    for kind in ("text", "py"):
        mislabeled = html.replace(f"-{kind} highlight", "-python highlight")
        with pytest.raises(ValueError, match="the site shows 4 blocks"):
            with_code_blocks(mislabeled, chapter, BOOK)


def test_a_block_that_only_draws_is_folded(chapter: Entry, html: str) -> None:
    assert "drawing" not in with_code_blocks(html, chapter, BOOK)
    silent = next(block for block in chapter.page.blocks if not block.output)
    silent.code += '\nfigure.savefig("sums.svg")'
    page = with_code_blocks(html, chapter, BOOK)
    (folded,) = re.findall(r'<details class="drawing">.*?</details>', page, re.DOTALL)
    assert f'id="block-{chapter.page.blocks.index(silent) + 1}"' in folded


def test_what_to_install_stands_before_the_first_run_that_needs_the_library(
    chapter: Entry, html: str
) -> None:
    def alone(page: str) -> list[str]:
        return re.findall(r'id="(block-\d)"[^>]* data-alone>', page)

    first, second, third = chapter.page.blocks
    first.code = "import torch"
    page = with_code_blocks(html, chapter, BOOK)
    assert "install" not in page
    assert alone(page) == ["block-1", "block-2"]
    second.code = "from tested_transformer import GPT"
    page = with_code_blocks(html, chapter, BOOK)
    assert alone(page) == ["block-1"]
    (line,) = re.findall(r'<p class="install">(.*?)</p><div [^>]*id="block-2"', page)
    assert words(line) == "To run it, pip install git+https://github.com/me/book"
    third.code = "from transformer_book.plots import curves\nimport jax\nimport jax"
    line = with_code_blocks(html, chapter, replace(BOOK, repository=""))
    assert 'in a clone: <code>pip install ".[plots]" jax<' in unescape(line)


def test_a_shape_in_a_type_stays_in_one_line(root: Path) -> None:
    home = load_book(root, {}).entries[0]
    shape = "Float[Tensor, {}] of &#34;words&#34;"
    html = with_code_blocks(shape.format("&#34;B T&#34;"), home, BOOK)
    assert html == shape.format('<span class="whole">&#34;B T&#34;</span>')
