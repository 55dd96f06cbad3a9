"""The site as a whole: its files, its search, and what its pages let one copy."""

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Browser

from bookbinder.page import load_page
from bookbinder.running.blocks import program

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def url_of(page: str) -> str:
    folder = page.removesuffix(".md").removesuffix("index")
    return f"{folder}/" if folder and not folder.endswith("/") else folder


def html_files(built: Path) -> dict[str, str]:
    return {
        file.relative_to(built).as_posix(): file.read_text(encoding="utf-8")
        for file in built.rglob("*.html")
    }


CHAINS = [
    (page, number)
    for page in PAGES
    for number in range(len(load_page(DOCS / page, ROOT).chains))
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "number"), Random(8).sample(CHAINS, 2))
def test_what_is_copied_last_runs_where_nothing_else_is(
    page: str, number: int, tmp_path: Path
) -> None:
    """Each chain runs as a test of its page; here a few run as a reader's file."""
    chain = load_page(DOCS / page, ROOT).chains[number]
    file = tmp_path / "copied.py"
    file.write_text("\n".join(block.code for block in chain.blocks), "utf-8")
    command = [sys.executable, str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outputs = [block.output.text for block in chain.blocks if block.output]
    assert done.stdout == "".join(outputs)


def test_what_is_copied_is_the_program_that_the_tests_run() -> None:
    for page in PAGES:
        for chain in load_page(DOCS / page, ROOT).chains:
            lines = program(chain).split("\n")
            for block in chain.blocks:  # where the tests tell the outputs apart
                lines[block.end - 1] = ""
            copied = "\n".join(block.code for block in chain.blocks).split("\n")
            assert [line for line in copied if line] == [line for line in lines if line]


def test_every_html_file_is_a_page_that_is_opened(built: Path) -> None:
    assert html_files(built).keys() == {
        "404.html",
        *(f"{url_of(page)}index.html" for page in PAGES),
    }


@pytest.mark.browser
def test_search_finds_words_of_a_page(address: str, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(address)
        # The theme has taken hold of the page once it has set this.
        page.wait_for_function("() => window.component$")
        page.locator(".md-search__input").click()
        page.keyboard.type("transformer")
        page.locator(".md-search-result__link").first.wait_for(timeout=20_000)
        dialog = page.locator(".md-search[role=dialog]")
        assert dialog.get_attribute("aria-label") == "Search"
    finally:
        page.close()


def test_search_leaves_formulas_and_pictures_out(built: Path) -> None:
    index = json.loads((built / "search" / "search_index.json").read_text("utf-8"))
    texts = [entry["title"] + entry["text"] for entry in index["docs"]]
    assert any("attention" in text for text in texts)
    prose = [re.sub("<code>.*?</code>", "", text, flags=re.DOTALL) for text in texts]
    assert not [text for text in prose if "\\" in text]
    drawn = [
        (name, tag)
        for name, html in html_files(built).items()
        for tag in re.findall(r'<(?:var|div|figure) class="[^>]*>', html)
        if re.search(r'class="(?:arithmatex|diagram|figure)"', tag)
    ]
    assert len(drawn) > 100
    assert not [(name, tag) for name, tag in drawn if "data-search-exclude" not in tag]


def test_the_site_holds_all_that_its_pages_ask_for_and_no_mermaid(built: Path) -> None:
    assert not list(built.rglob("*mermaid*"))
    for name, html in html_files(built).items():
        # One such word would have mkdocs-mermaid2-plugin parse and rewrite the page.
        assert "mermaid" not in html, name
        for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", html):
            assert not re.search(r'(?:src|href)="?(?:https?:)?//', tag), (
                f"{name}: {tag}"
            )
