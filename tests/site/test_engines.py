"""The book outlives its engine: Zensical, which follows MkDocs Material, makes it too.

The same ``mkdocs.yml`` and the same pages are built by both, strictly. A reader gets
the same words, listings, formulas, diagrams, figures and links; what the publishing
step adds to a site is left out.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from bookbinder.publishing.book import load_book
from bookbinder.publishing.old_addresses import OLD
from bookbinder.publishing.publish import publish

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

# The publishing step fills the first, out of records of the tests, a hook the others.
FILLED_LATER = ("how-this-book-is-checked", "questions", "whats-new")

# What the publishing step and the hooks add: a chapter's number, too.
ADDED = re.compile(
    r'<p class="(?:ran|install)">.*?</p>|<nav class="this-page".*?</nav>|<!--.*?-->'
    r"|<summary>The code of this figure</summary>"
    r"|(?<=>)\d+\. (?=[^<]*<a [^>]*headerlink|<a )",
    re.DOTALL,
)
DRAWN = ('class="katex"', 'class="diagram"', 'class="figure"', 'class="live"')


@pytest.fixture(scope="module")
def zensical_site(
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
    assert not done.returncode, done.stdout
    return book / "site"


def read(page: str, address: str) -> dict[str, object]:
    """Return what a reader gets of a page, without a parser: it is megabytes."""
    article = page[page.index("<article") : page.rindex("</article>")]
    article = ADDED.sub("", article)
    links = re.findall(r'<a\b[^>]*?\bhref="([^"]*)"', article)
    return {
        "text": words(article),
        "code": [words(pre) for pre in re.findall(r"<pre.*?</pre>", article, re.S)],
        "links": [urljoin(f"https://book/{address}", unescape(to)) for to in links],
        **{kind: article.count(kind) for kind in DRAWN},
    }


def words(markup: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", markup)).split())


def addresses(site: Path) -> set[str]:
    folders = (file.parent for file in site.rglob("index.html"))
    return {folder.relative_to(site).as_posix() for folder in folders} - OLD.keys()


def test_both_engines_make_the_same_book(
    built: Path, zensical_site: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    assert addresses(built) == addresses(zensical_site)
    seen: set[str] = set()
    for name in addresses(zensical_site).difference(FILLED_LATER):
        one, two = (
            read((site / name / "index.html").read_text("utf-8"), f"{name}/")
            for site in (built, zensical_site)
        )
        assert one == two, name
        seen |= {kind for kind in one if one[kind]}
    assert {*DRAWN} <= seen  # nothing equals nothing, too
    # What the other engine made is published.
    site = tmp_path / "site"
    shutil.copytree(zensical_site, site)
    book = load_book(pytestconfig.rootpath, {})
    entries = tuple(entry for entry in book.entries if entry.file(site).is_file())
    publish(site, pytestconfig.rootpath, replace(book, entries=entries))
    page = (site / "chapters/padding/index.html").read_text("utf-8")
    assert 'id="block-1"' in page
    assert '<a href="../../chapters/padding.ipynb" download>Notebook</a>' in page
