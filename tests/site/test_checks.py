"""Each check of a page has been seen red: a small broken page for each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookbinder.browser.accessibility import barriers
from bookbinder.browser.browsing import Window, page_problems
from bookbinder.browser.serving import served

pytestmark = pytest.mark.browser

# A page with nothing wrong, in both palettes.
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Right</title>
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<style>body{margin:0;background:#fff;color:#111} a{color:inherit}
@media (prefers-color-scheme: dark) {body{background:#111;color:#eee}}
.scroll{overflow:auto} figure{margin:0}</style></head><body>
"""
RIGHT = """<main><article><h1 id="top">Right</h1><p>All is <a href="#top">well</a>.</p>
<p>Code may say <code>$HOME</code>.</p>
<div class="scroll" tabindex="0"><pre>{wide}</pre></div>
<var class="arithmatex"><span class="katex"><math></math><span class="katex-html">x
</span></span></var><figure class="diagram"><svg role="img" aria-label="A box"
viewBox="0 0 90 20" width="90"><text x="2" y="14" fill="currentColor">box</text></svg>
</figure></article></main>""".format(wide="x" * 400)

Open = Callable[..., Window]


@pytest.fixture
def show(opened: Window, tmp_path: Path) -> Iterator[Open]:
    """Give what opens a page that was just written, served with headers of its own."""
    with ExitStack() as until_the_end:

        def open_page(page: str, headers: str = "") -> Window:
            (tmp_path / "index.html").write_text(page, encoding="utf-8")
            (tmp_path / "_headers").write_text(headers, encoding="utf-8")
            opened.open(until_the_end.enter_context(served(tmp_path)))
            return opened

        yield open_page


def test_a_right_page_has_no_problems(show: Open) -> None:
    assert page_problems(show(HEAD + RIGHT)) == []
    assert barriers(show(HEAD + RIGHT)) == []


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
    "small letters": (
        f'<figure class="figure">{SVG.format(TEXT.format(2, "#777"))}</figure>'.replace(
            'width="90"', 'width="45"'
        ),
        "at 360 px letters too small to read in A: label",
    ),
    "smaller on a desk": (
        "<style>@media (min-width: 720px) {article figure svg {width:30px}}</style>"
        f'<figure class="figure">{SVG.format(TEXT.format(2, "#777"))}</figure>',
        "at 1440 px letters too small to read in A: label",
    ),
    "a comma alone": (
        '<p style="width:50px"><var class="arithmatex"><span class="katex"><math>'
        '</math><span class="katex-html"><span class="katex-base" style="width:50px;'
        'display:inline-block">x</span></span></span>,</var></p>',
        "at 1440 px a line begins with , behind a formula: x",
    ),
    "cut short": (
        '<p class="md-footer"><span class="md-ellipsis" style="display:block;'
        'width:3em;overflow:hidden;white-space:nowrap">A long name</span></p>',
        "at 360 px a name is cut short: A long name",
    ),
    "fence": ("<p>```python</p>", "Markdown is left"),
    "wide on a phone": ('<p style="width:500px">w</p>', "at 360 px the page scrolls"),
    "wide everywhere": ('<p style="width:5000px">w</p>', "at 1440 px the page scrolls"),
    "hidden width": (
        '<div style="overflow:hidden"><p style="width:500px">w</p></div>',
        "at 360 px <p> sticks out of the page: w",
    ),
    "one id twice": ('<p id="top">again</p>', "two elements have the id top"),
    "broken anchor": ('<a href="#nowhere">x</a>', "a link to #nowhere"),
    "two h1": ("<h1>Again</h1>", "not one h1"),
    "skipped level": ("<h3>Deep</h3>", "a heading skips a level: Deep"),
    "nameless link": ('<a href="/"></a>', "a link or button without a name"),
    "no keyboard": (
        '<button tabindex="-1">Go</button>',
        'no keyboard reaches <button tabindex="-1">Go',
    ),
    "no keyboard outside": (
        '</article><a href="/" tabindex="-1">Home</a>',
        'no keyboard reaches <a href="/" tabindex="-1">Home',
    ),
    "no keyboard for a label": (
        '<label>Tab <input type="radio" style="display:none"></label>',
        "no keyboard reaches <label>Tab",
    ),
    "fades": ('<p style="transition:color 1s">x</p>', "it moves for who asked"),
    "turns": ('<p style="animation:turn 1s">x</p>', "it moves for who asked"),
    "glides": ('<p style="scroll-behavior:smooth">x</p>', "it moves for who asked"),
    "image without alt": ('<img src="data:image/gif;base64,">', "an image without alt"),
    "pale text": ('<p style="color:#bbb;background:#fff">pale</p>', "light: contrast"),
    "pale diagram": (
        f'<figure class="diagram">{SVG.format(TEXT.format(2, "#222"))}</figure>',
        "dark: contrast",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_page_is_reported(kind: str, show: Open) -> None:
    html, reason = BROKEN[kind]
    page = HEAD + RIGHT.replace("</article>", f"{html}</article>")
    problems = page_problems(show(page))
    assert any(reason in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (' lang="en"', "", "the page does not say its language"),
        ("<title>Right", r"<title>\(d_k\)", "raw TeX is left"),
        ("prefers-color-scheme: dark", "print", "the system is dark, the page is not"),
    ],
)
def test_a_broken_frame_is_reported(
    old: str, new: str, reason: str, show: Open
) -> None:
    assert old in HEAD
    problems = page_problems(show(HEAD.replace(old, new) + RIGHT))
    assert any(reason in problem for problem in problems), problems


BARRIERS = {
    "no text alternative": ('<img src="data:,">', ["dark, at 360 px: image-alt"]),
    # Of texts that look alike one is judged: none of the first, which axe passes over.
    "pale, the last of many": (
        """<style>.dim {color:#666} .pale {color:#999} div p {margin:0}</style><div>
        <p class="dim">x</p><p class="pale">x</p>
        <p class="dim" style="visibility:hidden">no</p>
        <p class="pale" style="visibility:hidden">no</p>
        <p class="dim" style="margin-left:-999px; width:99px">no</p>
        <p class="pale" style="margin-left:-999px; width:99px">no</p>
        <button disabled style="all:unset"><span class="dim">no</span>
        <span class="pale">no</span></button>
        <section style="background-image:linear-gradient(#111, #111)">
        <p class="dim">no</p><p class="pale">no</p></section>
        <p>fine</p><p>fine</p><p class="dim">dim</p><p class="pale">pale</p></div>""",
        ["light, at 1440 px: color-contrast", "dark, at 360 px: color-contrast"],
    ),
    "pale where it lies": (
        """<style>@media (prefers-color-scheme: dark) {i {background:#fff}}</style>
        <i style="position:absolute; top:99px; height:99px; width:99px"></i><p>fine</p>
        <p style="position:absolute; top:120px; margin:0">pale</p>""",
        ["dark, at 360 px: color-contrast"],
    ),
    # What nobody saw on the phone.
    "on a desktop": (
        """<style>@media (max-width: 500px) {#wide{display:none}}</style>
        <img id="wide" src="data:,">""",
        ["light, at 1440 px: image-alt"],
    ),
    "on a phone": (
        """<style>@media (max-width: 500px) {#menu{display:block!important}}
        @media (min-width: 500px) {body{background:#000; color:#fff}}</style>
        <button id="menu" style="display:none"></button>""",
        ["dark, at 360 px: button-name", "light, at 1440 px: the page is not light"],
    ),
}


@pytest.mark.parametrize("kind", BARRIERS)
def test_a_barrier_is_reported(kind: str, show: Open) -> None:
    html, wanted = BARRIERS[kind]
    found = barriers(show(HEAD + RIGHT.replace("</article>", f"{html}</article>")))
    assert [w for w in wanted if not any(f.startswith(w) for f in found)] == []


def test_with_the_frame_every_view_is_looked_at(show: Open) -> None:
    image = '<img src="data:,"></article>'
    page = show(HEAD + RIGHT.replace("</article>", image))
    found = barriers(page, frame=True)
    views = {each.partition(":")[0] for each in found if "image-alt" in each}
    palettes = ("light", "dark")
    assert views == {f"{p}, at {w} px" for p in palettes for w in (360, 1440)}


POLICY = "/*\n  Content-Security-Policy: script-src 'self'; style-src 'unsafe-inline'\n"


@pytest.mark.parametrize(
    ("html", "reason"),
    [
        ("<script>1</script>", "script-src-elem forbids inline"),
        ('<p onclick="x()">x</p>', "script-src-attr forbids inline"),
        ("<script src='a.js'></script>", None),
    ],
)
def test_what_a_policy_forbids_is_reported(
    html: str, reason: str | None, show: Open, tmp_path: Path
) -> None:
    (tmp_path / "a.js").write_text("1", "utf-8")
    page = HEAD + RIGHT.replace("</article>", f"{html}</article>")
    problems = page_problems(show(page, POLICY))
    if reason is None:
        assert problems == []
    else:
        assert any(problem.startswith(reason) for problem in problems), problems


def test_a_page_that_moves_is_reported(show: Open) -> None:
    window = show(HEAD + RIGHT)
    window.page.evaluate("document.querySelector('h1').style.marginTop = '200px'")
    window.page.wait_for_function("() => noted.shift", timeout=20_000)
    problems = page_problems(window)
    assert len(problems) == 1
    assert problems[0].startswith("what was shown moved by 0.")
