"""Every page of the site, opened in a browser and found without fault."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Browser

from bookbinder.browser.accessibility import barriers
from bookbinder.browser.browsing import Window, page_problems
from bookbinder.browser.weighing import budget_of, too_much, weight
from bookbinder.copying.files import file_of
from bookbinder.reading.listings import find_section
from bookbinder.reading.pages import Page, load_page
from bookbinder.running.blocks import program

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))

# What is around the article is looked at on one page of each kind.
WITH_FRAME = ("index.md", "chapters/04-many-heads.md", "reference/multihead.md")

# Presses every button of a page, as its label says when it has copied.
COPY = """async () => {
  const copied = [];
  for (const button of document.querySelectorAll("article button.copy")) {
    const label = button.textContent;
    button.click();
    const patience = performance.now() + 10000;
    while (button.textContent === label && performance.now() < patience) {
      await new Promise((later) => setTimeout(later));
    }
    copied.push([button.textContent, await navigator.clipboard.readText()]);
  }
  return copied;
}"""


def url_of(page: str) -> str:
    folder = page.removesuffix(".md").removesuffix("index")
    return f"{folder}/" if folder and not folder.endswith("/") else folder


def html_files(built: Path) -> dict[str, str]:
    return {
        file.relative_to(built).as_posix(): file.read_text(encoding="utf-8")
        for file in built.rglob("*.html")
    }


@dataclass
class Visit:
    """A page, and all that was found when it was opened, once for all tests of it."""

    page: str
    problems: list[str]
    too_much: list[str]
    copied: list[list[str]]
    barriers: list[str]


@pytest.fixture(scope="module", params=PAGES)
def visit(
    request: pytest.FixtureRequest, address: str, built: Path, opened: Window
) -> Visit:
    page: str = request.param
    opened.open(address + url_of(page))
    weights = weight(built, opened.asked)
    text = (built / url_of(page) / "index.html").read_text("utf-8")
    # The live model comes on top: test_watch.py weighs that page.
    live = 'class="live"' in text
    problems = page_problems(opened)
    return Visit(
        f"docs/{page}",
        problems,
        [] if live else too_much(weights, budget_of(text)),
        opened.page.evaluate(COPY),
        barriers(opened, frame=page in WITH_FRAME),
    )


@pytest.mark.browser
def test_page_opens_without_fault(visit: Visit) -> None:
    assert not visit.problems, "\n".join([f"{visit.page}:", *visit.problems])


@pytest.mark.browser
def test_page_keeps_nobody_out(visit: Visit) -> None:
    assert not visit.barriers, "\n".join([f"{visit.page}:", *visit.barriers])


@pytest.mark.browser
def test_page_is_within_its_budget(visit: Visit) -> None:
    assert not visit.too_much, "\n".join([f"{visit.page}:", *visit.too_much])


@pytest.mark.browser
def test_each_button_copies_what_was_tested(visit: Visit, built: Path) -> None:
    page = load_page(ROOT / visit.page, ROOT)
    wanted = [offer for _, offer in sorted(offers(page, built))]
    assert [tuple(each) for each in visit.copied] == wanted


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


Offer = tuple[int, tuple[str, str]]


def offers(page: Page, built: Path) -> Iterator[Offer]:
    """Give what each button has to copy, and to say then, by the line of its block."""
    for chain in page.chains:
        codes = [block.code for block in chain.blocks]
        for before, block in enumerate(chain.blocks):
            blocks = "the block" if before == 1 else f"the {before} blocks"
            said = f"Copied with {blocks} before" if before else "Copied"
            yield block.line, (said, "\n".join(codes[: before + 1]))
    for listing in page.listings:
        if listing.language == "py":
            file = built / file_of(listing.path, listing.section)
            offer = ("Copied with all it needs", file.read_text("utf-8"))
        else:
            section = find_section(ROOT, listing.path, listing.section)
            offer = ("Copied", section.text + "\n")
        yield listing.line, offer
    fence = re.compile(r"```(console|toml|yaml|json)\n(.*?)^```$", re.DOTALL | re.M)
    text = "\n".join(page.lines)
    for found in fence.finditer(text):
        code = found[2]
        if found[1] == "console":
            typed = (line for line in code.splitlines() if line.startswith("$ "))
            code = "".join(f"{line[2:]}\n" for line in typed)
        yield text.count("\n", 0, found.start()) + 1, ("Copied", code)


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
        page.wait_for_function("window.component$")
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
