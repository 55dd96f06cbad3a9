"""Each check of a page has been seen red: a small broken page for each."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bookbinder.browser.browsing import page_problems, served

pytestmark = pytest.mark.browser

# A page with nothing wrong, palettes and their button included.
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Right</title>
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<style>body{margin:0;background:#fff;color:#111} [data-md-color-scheme=slate]{
background:#111;color:#eee} a{color:inherit} .scroll{overflow:auto} figure{margin:0}
</style></head>
<body data-md-color-scheme="default"><form data-md-component="palette">
<label>palette</label></form>
<script>document.querySelector("label").onclick = () => {
  const { dataset } = document.body;
  dataset.mdColorScheme = dataset.mdColorScheme === "slate" ? "default" : "slate";
};</script>
"""
RIGHT = """<article><h1 id="top">Right</h1><p>All is <a href="#top">well</a>.</p>
<p>Code may say <code>$HOME</code>.</p><div class="scroll"><pre>{wide}</pre></div>
<var class="arithmatex"><span class="katex"><math></math><span class="katex-html">x
</span></span></var><figure class="diagram"><svg role="img" aria-label="A box"
viewBox="0 0 90 20" width="90"><text x="2" y="14" fill="currentColor">box</text></svg>
</figure></article>""".format(wide="x" * 400)

Open = Callable[[str], list[str]]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Open:
    def open_page(html: str) -> list[str]:
        (tmp_path / "index.html").write_text(html, encoding="utf-8")
        with served(tmp_path) as url:
            return page_problems(browser, url)

    return open_page


def test_a_right_page_has_no_problems(opened: Open) -> None:
    assert opened(HEAD + RIGHT) == []


SVG = '<svg role="img" aria-label="A" viewBox="0 0 90 20" width="90">{}</svg>'
TEXT = '<text x="{}" y="14" fill="{}">label</text>'

BROKEN = {
    "console error": ("<script>console.error('no')</script>", "console error: no"),
    "console warning": ("<script>console.warn('hm')</script>", "console warning: hm"),
    "exception": ("<script>throw new Error('boom')</script>", "script error: boom"),
    "missing file": ("<script src='gone.js'></script>", "status 404"),
    "foreign request": (
        "<script src='https://example.org/x.js'></script>",
        "another host: https://example.org/x.js",
    ),
    "failed request": (
        "<script>fetch('http://127.0.0.1:9/')</script>",
        "a request failed: http://127.0.0.1:9/",
    ),
    "dollars": ("<p>where $x is</p>", "raw TeX is left"),
    "parens": (r"<p>where \(x\) is</p>", "raw TeX is left"),
    "macro": (r"<p>where \frac{1}{2} is</p>", "\\frac"),
    "formula": (r'<div class="arithmatex">QK</div>', "formula not drawn: QK"),
    "empty formula": (
        '<div class="arithmatex"><math></math><span class="katex-html"></span></div>',
        "formula without size",
    ),
    "error box": ('<p class="book-error">bad macro</p>', "error shown: bad macro"),
    "diagram source": ("<p>flowchart LR A to B</p>", "diagram source is left"),
    "undrawn diagram": ('<div class="mermaid">A</div>', "diagram not drawn: A"),
    "no picture": ('<figure class="diagram">A</figure>', "a figure without a picture"),
    "not inlined": (
        '<img alt="A" src="data:image/gif;base64,">',
        "a picture that cannot follow the palette",
    ),
    "no size": (
        '<figure class="diagram"><svg role="img" aria-label="A" width="0"></svg>'
        "</figure>",
        "a picture without size: A",
    ),
    "no name": (
        '<figure class="figure"><svg viewBox="0 0 9 9" width="9"></svg></figure>',
        "a picture without a name",
    ),
    "cut off": (
        f'<figure class="figure">{SVG.format(TEXT.format(80, "#777"))}</figure>',
        "text is cut off in A: label",
    ),
    "fence": ("<p>```python</p>", "Markdown is left"),
    "wide on a phone": ('<p style="width:500px">w</p>', "at 360 px the page scrolls"),
    "wide everywhere": ('<p style="width:5000px">w</p>', "at 1280 px the page scrolls"),
    "hidden width": (
        '<div style="overflow:hidden"><p style="width:500px">w</p></div>',
        "at 360 px <p> sticks out of the page: w",
    ),
    "one id twice": ('<p id="top">again</p>', "two elements have the id top"),
    "broken anchor": ('<a href="#nowhere">x</a>', "a link to #nowhere"),
    "two h1": ("<h1>Again</h1>", "not one h1"),
    "skipped level": ("<h3>Deep</h3>", "a heading skips a level: Deep"),
    "nameless link": ('<a href="/"></a>', "a link or button without a name"),
    "image without alt": ('<img src="data:image/gif;base64,">', "an image without alt"),
    "pale text": ('<p style="color:#bbb;background:#fff">pale</p>', "light: contrast"),
    "pale diagram": (
        f'<figure class="diagram">{SVG.format(TEXT.format(2, "#222"))}</figure>',
        "dark: contrast",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_page_is_reported(kind: str, opened: Open) -> None:
    html, reason = BROKEN[kind]
    problems = opened(HEAD + RIGHT.replace("</article>", f"{html}</article>"))
    assert any(reason in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (' lang="en"', "", "the page does not say its language"),
        ("<title>Right", r"<title>\(d_k\)", "raw TeX is left"),
        ("<label>palette</label>", "", "no button for the palette"),
        ('? "default" : "slate"', '? "slate" : "slate"', "does not make light and"),
    ],
)
def test_a_broken_frame_is_reported(
    old: str, new: str, reason: str, opened: Open
) -> None:
    assert old in HEAD
    head = HEAD.replace(old, new).replace('"label").on', '"label")?.on')
    problems = opened(head + RIGHT)
    assert any(reason in problem for problem in problems), problems
