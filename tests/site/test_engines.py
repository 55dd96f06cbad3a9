"""The book outlives its engine: Zensical, which follows MkDocs Material, makes it too.

The same ``mkdocs.yml`` and the same pages are built by both. A reader gets the same
words, listings, formulas, diagrams, figures and links; what the publishing step adds to
a built site of either engine is left out of the comparison.
"""

import html
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from urllib.parse import urljoin

import pytest

from bookbinder.browser.browsing import DESKTOP, Window, page_problems
from bookbinder.browser.serving import served
from bookbinder.publishing.book import load_book
from bookbinder.publishing.publish import publish

pytestmark = pytest.mark.slow

# This page is filled by the publishing step, out of records of the tests.
FILLED_LATER = {"how-this-book-is-checked/index.html"}
# Both engines make a page for what is not found, of their own themes.
OWN = {"404.html"}

ADDED = re.compile(
    r'<p class="ran">.*?</p>|<nav class="book-foot".*?</nav>|<!--.*?-->', re.DOTALL
)


@pytest.fixture(scope="module")
def other(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Path:
    """Build the site with Zensical, strictly, in a copy: it writes beside its pages."""
    root, book = pytestconfig.rootpath, tmp_path_factory.mktemp("zensical")
    shutil.copytree(root / "docs", book / "docs")
    shutil.copy(root / "mkdocs.yml", book)
    for name in ("src", "theme", "node_modules", "package.json"):
        (book / name).symlink_to(root / name)
    ours = ("BOOKBINDER_PREVIEW", "SITE_URL", "REPO_URL")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=book,
        env={k: v for k, v in os.environ.items() if k not in ours},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"zensical build --strict:\n{done.stdout}", pytrace=False)
    return book / "site"


@dataclass(frozen=True)
class Page:
    """What a reader gets of a page."""

    text: str
    listings: list[str]
    links: list[str]
    formulas: int
    diagrams: int
    figures: int
    live: int


def read(page: str, address: str) -> Page:
    """Read a built page, without a parser: there are megabytes of formulas."""
    article = page[page.index("<article") : page.rindex("</article>")]
    article = ADDED.sub("", article)
    count = article.count
    return Page(
        text=words(article),
        listings=[words(pre) for pre in re.findall(r"<pre.*?</pre>", article, re.S)],
        links=[
            urljoin(f"https://book/{address}", html.unescape(target))
            for target in re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', article)
        ],
        formulas=count('class="katex"'),
        diagrams=count('<figure class="diagram"'),
        figures=count('<figure class="figure"'),
        live=count('class="live"'),
    )


def words(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", markup)).split())


def pages(site: Path) -> set[str]:
    files = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    return files - FILLED_LATER - OWN


def test_both_engines_make_the_same_book(built: Path, other: Path) -> None:
    assert pages(built) == pages(other)
    different: list[str] = []
    total = dict.fromkeys(("formulas", "diagrams", "figures"), 0)
    for name in sorted(pages(built)):
        one, two = (
            read((site / name).read_text("utf-8"), name.removesuffix("index.html"))
            for site in (built, other)
        )
        different += [
            f"{name}: {field.name}"
            for field in fields(Page)
            if getattr(one, field.name) != getattr(two, field.name)
        ]
        for what in total:
            total[what] += getattr(two, what)
    assert different == []
    # Nothing equals nothing, too.
    assert total["formulas"] > 1000
    assert total["diagrams"] > 20
    assert total["figures"] > 30


@pytest.mark.browser
def test_what_the_other_engine_made_is_published_and_read(
    other: Path, opened: Window, tmp_path: Path
) -> None:
    """Two pages are as good as all, and take a moment."""
    book, site = load_book(other.parent, {}), tmp_path
    leaves = [leaf for leaf in book.leaves if leaf.name in ("index", "07-padding")]
    shutil.copytree(other / "assets", site / "assets")
    shutil.copy(other / "search.json", site)
    for leaf in leaves:
        leaf.file(site).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(leaf.file(other), leaf.file(site))
    publish(site, other.parent, replace(book, leaves=tuple(leaves)))
    chapter = "chapters/07-padding/index.html"
    before, after = ((at / chapter).read_text("utf-8") for at in (other, site))
    assert read(before, "") == read(after, "")
    assert 'id="block-1"' not in before
    assert 'id="block-1"' in after
    assert "This page to take away: " in after
    with served(site) as url:
        opened.open(f"{url}chapters/07-padding/")
        assert page_problems(opened) == []
        # A corner that heads nothing is no heading any more.
        assert opened.page.locator("th:empty").count() == 0
        opened.resize(DESKTOP)
        opened.page.wait_for_load_state("networkidle")
        opened.page.locator(".md-search__button").click()
        opened.page.locator("dialog input").first.fill("key_padding_mask")
        result = opened.page.get_by_role("option", name="Masks the other way around")
        result.wait_for(timeout=20_000)
        assert opened.complaints == []


RIGHT = """<body><article><h1>Page</h1><p>Two words <a href="../x/#y">more</a>.</p>
<pre><span>x</span> = 1\n</pre><span class="katex">x</span>
<figure class="diagram"></figure><figure class="figure"></figure>
<section class="live"></section><p class="ran">by block 1</p></article></body>"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Two words", "Two word", {"text"}),
        ("x</span> = 1", "x</span> = 2", {"text", "listings"}),
        ("../x/#y", "../x/#z", {"links"}),
        ("../x/#y", "x/#y", {"links"}),
        ("../x/#y", "../../book/x/#y", set[str]()),  # the same page
        ('class="katex"', "", {"formulas"}),
        ('<figure class="diagram">', "<figure>", {"diagrams"}),
        ('<figure class="figure">', "<figure>", {"figures"}),
        ('class="live"', "", {"live"}),
        ("by block 1", "by block 2", set[str]()),
    ],
)
def test_what_one_engine_loses_is_seen(old: str, new: str, what: set[str]) -> None:
    assert old in RIGHT
    one = read(RIGHT, "book/page/")
    two = read(RIGHT.replace(old, new), "book/page/")
    assert what == {
        field.name
        for field in fields(Page)
        if getattr(one, field.name) != getattr(two, field.name)
    }
