"""What is found on a page that is opened, for the tests of all pages.

They stand in two files, so that two workers share them; each opens its pages in one
window, one after another.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookbinder.browser.accessibility import barriers
from bookbinder.browser.browsing import Window, page_problems
from bookbinder.browser.weighing import budget_of, too_much, weight
from bookbinder.listings import find_section
from bookbinder.page import Page, load_page
from bookbinder.publishing.standalone import file_of

ROOT = Path(__file__).parents[3]

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

# What of a phone's page is set in too little width. A word may end at a hyphen.
CRAMPED = r"""() => {
  const found = [];
  const mark = document.createRange();
  const textsOf = (element, without) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode);
    return texts.filter(
      (text) => text.data.trim() && !text.parentElement.closest(without));
  };
  const tops = (text, start, end) => {
    mark.setStart(text, start);
    mark.setEnd(text, end);
    const boxes = [...mark.getClientRects()].filter((box) => box.width > 1);
    return boxes.map((box) => box.top);
  };
  const far = (one, other) => Math.abs(one - other) > 15;
  for (const heading of document.querySelectorAll("article :is(h1, h2, h3, h4)")) {
    const texts = textsOf(heading, ".headerlink, .katex");
    for (const text of texts) {
      for (const word of text.data.matchAll(/[^\s-]+/g)) {
        const end = word.index + word[0].length;
        const [first, ...others] = tops(text, word.index, end);
        if (others.some((top) => far(top, first))) {
          found.push(`a heading's word is broken: ${word[0]}`);
        }
      }
    }
    const link = heading.querySelector(".headerlink");
    if (!link || !texts.length) continue;
    const end = texts.at(-1).data.trimEnd().length;
    const last = tops(texts.at(-1), end - 1, end).at(-1);
    if (far(link.getBoundingClientRect().top, last)) {
      found.push(`a link stands below its heading: ${heading.textContent.trim()}`);
    }
  }
  for (const code of document.querySelectorAll("article :is(p, li) code:not(.long)")) {
    if (code.getClientRects().length > 1) {
      found.push(`short code is broken: ${code.textContent}`);
    }
  }
  for (const cell of document.querySelectorAll("article td")) {
    const { width } = cell.getBoundingClientRect();
    const texts = textsOf(cell, "code, .katex");
    const words = texts.flatMap((text) => text.data.match(/[a-z]{2,}/gi) ?? []);
    if (words.length >= 6 && width && width < 110) {
      found.push(`a cell is ${Math.round(width)} px wide: ${words.join(" ")}`);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def visit(
    request: pytest.FixtureRequest, address: str, built: Path, opened: Window
) -> dict[str, list[str]]:
    """Open a page once for all tests of it; give what each will find wrong."""
    page: str = request.param
    folder = page.removesuffix(".md").removesuffix("index").strip("/")
    folder = f"{folder}/" if folder else ""
    opened.open(address + folder)
    weights = weight(built, opened.asked)
    text = (built / folder / "index.html").read_text("utf-8")
    # The live model comes on top: test_watch.py weighs that page.
    live = 'class="live"' in text
    # All but the last leave the page as it was; that which takes parts out comes last.
    return {
        "fault": page_problems(opened) + opened.page.evaluate(CRAMPED),
        "weight": [] if live else too_much(weights, budget_of(text)),
        "copy": miscopied(
            opened.page.evaluate(COPY), load_page(ROOT / "docs" / page, ROOT), built
        ),
        "barrier": barriers(opened, frame=page in WITH_FRAME),
    }


def miscopied(copied: list[list[str]], page: Page, built: Path) -> list[str]:
    """Compare what each button copied, and said then, with what was tested."""
    wanted = [offer for _, offer in sorted(offers(page, built))]
    found = [f"wanted {len(wanted)} buttons, found {len(copied)}"]
    return (found if len(wanted) != len(copied) else []) + [
        f"button {number} copies {text!r} and says {said!r}, wanted {offer}"
        for number, ((said, text), offer) in enumerate(
            zip(copied, wanted, strict=False), 1
        )
        if (said, text) != offer
    ]


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
            file = built / file_of(listing)
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
