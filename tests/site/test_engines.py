"""The book outlives its engine: Zensical, which follows MkDocs Material, makes it too.

The same ``mkdocs.yml`` and the same pages are built by both, strictly. A reader gets
the same words, listings, formulas, diagrams, figures and links; what the publishing
step adds to a site is left out.
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

from bookbinder.publishing.book import load_book
from bookbinder.publishing.old_addresses import OLD
from bookbinder.publishing.publish import publish

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

# The publishing step fills the first, out of records of the tests, a hook the others.
FILLED_LATER = {
    f"{name}/index.html"
    for name in ("how-this-book-is-checked", "questions", "whats-new")
}

# What the publishing step and the hooks add: a chapter's number, too.
ADDED = re.compile(
    r'<p class="(?:ran|install)">.*?</p>|<nav class="this-page".*?</nav>|<!--.*?-->'
    r"|<summary>The code of this figure</summary>"
    r"|(?<=>)\d+\. (?=[^<]*<a [^>]*headerlink|<a )",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def other(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Path:
    """Build the site with Zensical, in a copy: it writes beside its pages."""
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


def test_both_engines_make_the_same_book(built: Path, other: Path) -> None:
    names = {file.relative_to(other).as_posix() for file in other.rglob("index.html")}
    everything = [
        file
        for file in built.rglob("index.html")
        if file.parent.relative_to(built).as_posix() not in OLD
    ]
    assert names == {file.relative_to(built).as_posix() for file in everything}
    different: list[str] = []
    pages: list[Page] = []
    for name in sorted(names - FILLED_LATER):
        address = name.removesuffix("index.html")
        one, two = (
            read((site / name).read_text("utf-8"), address) for site in (built, other)
        )
        pages.append(two)
        different += [
            f"{name}: {field.name}"
            for field in fields(Page)
            if getattr(one, field.name) != getattr(two, field.name)
        ]
    assert different == []
    # Nothing equals nothing, too.
    for what in ("formulas", "diagrams", "figures", "live"):
        assert any(getattr(page, what) for page in pages)


def test_what_the_other_engine_made_is_published(
    other: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    site = tmp_path / "site"
    shutil.copytree(other, site)
    book = load_book(pytestconfig.rootpath, {})
    entries = tuple(entry for entry in book.entries if entry.file(site).is_file())
    publish(site, pytestconfig.rootpath, replace(book, entries=entries))
    page = (site / "chapters/padding/index.html").read_text("utf-8")
    assert 'id="block-1"' in page
    assert '<a href="../../chapters/padding.ipynb" download>Notebook</a>' in page
