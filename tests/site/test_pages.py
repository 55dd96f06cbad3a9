"""Pages in a browser: a few on every change, all of them each night."""

import gzip
import os
import re
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page as Tab

from bookbinder.browser import served
from bookbinder.listings import find_section
from bookbinder.page import Page, load_page
from bookbinder.publishing.book import Entry
from bookbinder.publishing.standalone import file_of, file_of_run

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
# Axe asks for targets of 24 pixels only when it is told to; and it would read every
# style sheet beforehand, for a rule about phones that are turned.
AXE = {
    "resultTypes": ["violations"],
    "preload": False,
    "rules": {"target-size": {"enabled": True}},
}
# What the same page may get wrong in another palette, or on another screen.
OF_LOOKS = ["color-contrast", "link-in-text-block", "target-size"]
# One of 360 pixels, and the scroll bar that a desktop's browser has.
PHONE = 375
View = tuple[int, Literal["light", "dark"]]
VIEWS: list[View] = [(PHONE, "dark"), (1440, "light")]
if ALL := bool(os.environ.get("BOOK_NIGHTLY")):
    VIEWS += [(PHONE, "light"), (1440, "dark")]
# KiB and requests, gzipped, when a page is first opened; 35 and 22 KiB are the theme's
# own script and style.
DRAWN, PLAIN = (190, 20), (100, 12)


def problems(tab: Tab) -> list[str]:
    """Return what a reader would find wrong with the page that is open."""
    reasons: list[str] = []
    tab.evaluate("document.querySelectorAll('details').forEach((e) => e.open = true)")
    for width in (PHONE, 1440):
        look(tab, width)
        # What only a narrow screen does to words is told of the narrow one.
        for what in ("wide", "pictures", "cramped" if width == PHONE else "askew"):
            wrong: list[str] = tab.evaluate(f"looking.{what}()")
            reasons += [f"at {width} px: {reason}" for reason in wrong]
    tab.evaluate("looking.thin()")
    for width, palette in VIEWS:
        look(tab, width, palette)
        all_rules = ALL or width == VIEWS[0][0]
        options = AXE if all_rules else AXE | {"runOnly": OF_LOOKS}
        for violation in Axe().run(tab, options=options).response["violations"]:
            html = violation["nodes"][0]["html"][:120]
            reasons.append(f"{palette}, at {width} px: {violation['id']}: {html}")
    return reasons


def look(tab: Tab, width: int, palette: Literal["light", "dark"] = "light") -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=palette)
    tab.evaluate("looking.settled()")


def test_a_page_is_found_without_fault(
    opened_page: str, page: Tab, complaints: list[str], address: str, built: Path
) -> None:
    requested: set[str] = set()
    page.on("request", lambda request: requested.add(urlsplit(request.url).path))
    folder = opened_page.removesuffix(".md").removesuffix("index").strip("/")
    page.goto(f"{address}{folder}/" if folder else address)
    reasons: list[str] = page.evaluate("looking.settled()")
    reasons += beyond_budget(requested, built, (built / folder / "index.html"))
    copied = [[label, SOURCE.sub("", text)] for label, text in page.evaluate(COPY)]
    source = load_page(ROOT / "docs" / opened_page, ROOT)
    expected = sorted(offers(source, built), key=itemgetter(0))
    assert copied == [offer for _, offer in expected]
    assert reasons + problems(page) + complaints == []


def beyond_budget(requested: set[str], built: Path, file: Path) -> list[str]:
    """Weigh requests as a static host answers them; a live model comes on top."""
    html = file.read_text("utf-8")
    if 'class="live"' in html:
        return []
    drawn = re.search(r'class="(?:arithmatex|diagram|figure)"', html)
    kib, requests = DRAWN if drawn else PLAIN
    sizes: dict[str, int] = {}
    for path in requested:
        at = built / path.strip("/")
        content = (at / "index.html" if at.is_dir() else at).read_bytes()
        packed = at.suffix in (".woff2", ".png")
        sizes[path] = len(content if packed else gzip.compress(content, 6))
    weight = sum(sizes.values()) / 1024
    over = weight > kib or len(sizes) > requests
    return [f"{weight:.0f} KiB of {kib}, {len(sizes)} of {requests}"] if over else []


# What to install, and what a block of a page that has run before is copied with.
SOURCE = re.compile(
    r"\A(?:# .*pip install .*\n)?"
    r"(?:# \S+#block-\d+ \(ran with PyTorch [\d.]+; MIT License\)\n)?"
)

# Presses every button, as its label says when it has copied.
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


def offers(page: Page, built: Path) -> Iterator[tuple[int, list[str]]]:
    """Return what each button has to say and to copy, by the line of its block."""
    for chain in page.chains:
        codes = [block.code for block in chain.blocks]
        for before, block in enumerate(chain.blocks):
            blocks = "the block" if before == 1 else f"the {before} blocks"
            label = f"Copied with {blocks} before" if before else "Copied"
            yield block.line, [label, "\n".join(codes[: before + 1])]
            number = page.blocks.index(block) + 1
            file = built / file_of_run(Entry("", "", page), number)
            if file.exists():
                yield block.line, ["Copied with all it needs", file.read_text("utf-8")]
    for listing in page.listings:
        if listing.language == "py":
            file = built / file_of(listing)
            yield listing.line, ["Copied with all it needs", file.read_text("utf-8")]
        else:
            section = find_section(ROOT, listing.path, listing.section)
            yield listing.line, ["Copied", section.text + "\n"]
    for fence in page.fences:
        if fence.info == "console":
            typed = (line for line in fence.text.splitlines() if line.startswith("$ "))
            yield fence.line, ["Copied", "".join(f"{line[2:]}\n" for line in typed)]
        elif fence.info in ("toml", "yaml", "json"):
            yield fence.line, ["Copied", fence.text]


# A page without fault, and what is wrong with it once it has these, and how it is told.
RIGHT = """<!doctype html><html lang="en"><head><title>Right</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<style>body {background:#fff; color:#111} a {color:inherit}
@media (prefers-color-scheme: dark) {body {background:#111; color:#eee}}</style></head>
<body><main><article><h1 id="top">Right</h1><p>All is <a href="#top">well</a>.</p>
</article></main></body></html>"""
FAULTS = """<p>moves</p>
<script>const heading = document.querySelector("h1")
new PerformanceObserver(() => heading.style.marginTop = "90px").observe({type: "paint"})
console.warn("hm")</script><script>throw new Error("boom")</script>
<script src="gone.js"></script><script src="https://example.org/x.js"></script>
<p style="width:500px">wide</p>
<div style="overflow:hidden"><p style="width:500px">hidden</p></div>
<h2 style="width:4em; overflow-wrap:anywhere">Unbreakableword</h2>
<p style="width:4em"><code>short = code</code></p>
<table><tr><td style="width:5px">a few words in so very narrow a cell</tr></table>
<figure><svg role="img" aria-label="A" viewBox="0 0 90 20" width="90">
<text x="80" y="14">label</text>
<text x="2" y="14" font-size="6">tiny</text>
<text x="30" y="14">one</text><text x="34" y="15">other</text></svg></figure>
<div class="arithmatex" style="margin-left:90px">e = mc</div>
<button></button><img src="data:,"><p style="color:#555">dim</p>
<p style="color:#999">pale</p><nav style="font-size:9px; line-height:1">
<a href="#top">one</a><br><a href="#top">two</a></nav>"""
MESSAGES = """moved by 0.|hm|script error: boom|404|failed: https://example.org/x.js
at 375 px: the page scrolls|at 375 px: sticks out: <p style="width:500px">wide
at 375 px: sticks out: <p style="width:500px">hidden|word is broken: Unbreakableword
short code is broken: short = code|a cell is|cut off: label|too small to read: tiny
at 375 px: on each other: one, other|at 1440 px: on each other: one, other
at 375 px: button-name|at 375 px: image-alt|target-size
at 1440 px: beside the text: <div class="arithmatex"
dark, at 375 px: color-contrast|light, at 1440 px: color-contrast"""


def test_each_fault_of_a_page_is_told(
    page: Tab, complaints: list[str], tmp_path: Path
) -> None:
    (tmp_path / "right.html").write_text(RIGHT, "utf-8")
    wrong = RIGHT.replace("</article>", f"{FAULTS}</article>")
    (tmp_path / "wrong.html").write_text(wrong, "utf-8")
    with served(tmp_path) as url:
        page.goto(f"{url}right.html")
        assert page.evaluate("looking.settled()") + problems(page) + complaints == []
        page.goto(f"{url}wrong.html")
        # Only what has been painted can move.
        page.wait_for_function("document.querySelector('h1').style.marginTop")
        moved: list[str] = page.evaluate("looking.settled()")
        reasons = moved + problems(page) + complaints
    expected = MESSAGES.replace("\n", "|").split("|")
    assert [
        words for words in expected if not any(words in one for one in reasons)
    ] == []


def test_page_and_scroll_bar_have_their_palette_before_the_theme_runs(
    page: Tab, address: str
) -> None:
    page.goto(address)
    page.route("**/bundle*.js", lambda route: route.abort())
    choices: list[tuple[int | None, Literal["light", "dark"], str]] = [
        (None, "dark", "dark"),
        (1, "dark", "light"),
        (2, "light", "dark"),
    ]
    for chosen, system, expected in choices:
        page.emulate_media(color_scheme=system)
        if chosen is not None:
            page.evaluate("(index) => __md_set('__palette', { index })", chosen)
        page.reload()
        seen = page.evaluate(
            "[document.documentElement, document.body]"
            ".map((element) => getComputedStyle(element).colorScheme)"
        )
        assert seen == [expected, expected]
    # Paper is white all the same.
    page.emulate_media(media="print")
    paper = "getComputedStyle(document.body).getPropertyValue('--book-paper')"
    assert page.evaluate(paper) in ("#fff", "#ffffff")
