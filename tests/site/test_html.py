"""All pages of the finished site, read without a browser."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

NOT_DRAWN = re.compile(r'class="?[^">]*(?:book-error|katex-error|mermaid)|data-undrawn')
FROM_ELSEWHERE = re.compile(
    r'<(?:script|img|link|iframe)\b[^>]*?\s(?:src|href)="?(?:https?:)?//[^">]*'
)
# With links in it, a picture is a group.
KIND = r'role="?(?:img|group)\b'
NAMED = re.compile(rf"{KIND}[^>]*\saria-label|aria-label[^>]*\s{KIND}")


def faults(page: str) -> list[str]:
    """Return what is wrong with a page, as far as its HTML tells."""
    wrong = FROM_ELSEWHERE.findall(page) + NOT_DRAWN.findall(page)
    ids = Counter(re.findall(r'\sid="?([^" >]+)', page))
    wrong += [f"twice: {name}" for name, times in ids.items() if times > 1]
    if not re.search(r"<html\b[^>]* lang=", page) or "<main" not in page:
        wrong.append("no language, or no main part")
    article = page[page.index("<article") : page.index("</article>")]
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", article)]
    if levels.count(1) != 1 or any(b > a + 1 for a, b in pairwise(levels)):
        wrong.append(f"not one h1, or a level skipped: {levels}")
    pictures = re.findall(r"<figure\b[^>]*>\s*<svg\b[^>]*>", article)
    wrong += [f"no name: {tag}" for tag in pictures if not NAMED.search(tag)]
    wrong += [tag for tag in re.findall(r"<img\b[^>]*>", page) if " alt=" not in tag]
    return wrong


def test_every_page_is_there_and_without_fault(
    html: dict[str, str], built: Path
) -> None:
    pages = {p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")}
    folders = {re.sub(r"(^|/)index$", r"\1", page).strip("/") for page in pages}
    assert {address.strip("/") for address in html} == folders
    wrong = {address: faults(page) for address, page in html.items()}
    assert {address: reasons for address, reasons in wrong.items() if reasons} == {}
    # Each has a description of its own, for search engines and previews of links.
    texts = Counter[str]()
    for address, page in html.items():
        (text,) = re.findall(r'<meta name="description" content="([^"]*)"', page)
        assert 20 < len(text) < 180, address
        texts[text] += 1
    assert [text for text, count in texts.items() if count > 1] == []
    # Diagrams are drawn: the site ships no mermaid.
    assert not list(built.rglob("*mermaid*"))


RIGHT = """<html lang="en"><main><article><h1 id="a">A</h1>
<figure class="figure"><svg role="img" aria-label="A"></svg></figure>
<p>A</p></article></main>"""


def test_a_fault_is_told() -> None:
    assert faults(RIGHT) == []
    for old, new, words in (
        (' lang="en"', "", "no language"),
        ("<main>", "", "no main part"),
        ("<p>", '<p id="a">', "twice: a"),
        ("<p>", "<h3>B</h3><p>", "a level skipped"),
        ("<p>", "<h1>B</h1><p>", "not one h1"),
        ("<p>", '<p><img src="a.png">', "a.png"),
        (' aria-label="A"', "", "no name"),
        ("<p>", '<script src="https://example.org/x.js"></script><p>', "example"),
        ("<p>", '<p class="book-error">', "book-error"),
    ):
        reasons = faults(RIGHT.replace(old, new))
        assert any(words in fault for fault in reasons), f"{new}: {words}"
