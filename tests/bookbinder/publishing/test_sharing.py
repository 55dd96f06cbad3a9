"""What a page says to programs that show a link to it."""

import json
import re
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import yaml
from bs4 import BeautifulSoup
from PIL import Image

import tested_transformer
from bookbinder.publishing.book import Entry, load_book
from bookbinder.publishing.publish import publish
from bookbinder.publishing.sharing import card, head

ROOT = Path(__file__).parents[3]
AT = {"SITE_URL": "https://example.org/book"}
SUMS = "https://example.org/book/chapters/01-sums/"


def read_head(html: str) -> tuple[dict[str, str], dict[str, object]]:
    """Return the tags and the data in the head of a page."""
    soup = BeautifulSoup(html, "html.parser")
    tags = {
        str(tag.get("property") or tag.get("name")): str(tag["content"])
        for tag in soup.find_all("meta")
    }
    (data,) = soup.find_all("script", type="application/ld+json")
    return tags, json.loads(data.get_text())


def test_a_link_to_a_page_has_a_title_a_summary_and_a_card(root: Path) -> None:
    home, sums, *_ = load_book(root, AT).entries
    tags, data = read_head(head(sums, load_book(root, AT)))
    assert tags["og:title"] == data["headline"] == "Sums"
    assert tags["og:description"] == data["description"] == "How sums are made."
    assert tags["og:url"] == data["url"] == SUMS
    assert tags["og:image"] == f"{SUMS}card.png"
    assert (tags["og:image:width"], tags["og:image:height"]) == ("1200", "630")
    assert tags["twitter:card"] == "summary_large_image"
    assert data["@type"] == "TechArticle"
    tags, data = read_head(head(home, load_book(root, AT)))
    assert tags["og:title"] == data["name"] == "The Book"
    assert tags["og:description"] == "A book of sums & little else."
    assert tags["og:image"] == "https://example.org/book/card.png"
    assert data["@type"] == "Book"


def test_with_an_address_each_page_has_its_card_and_the_book_a_feed(
    root: Path, site: Path
) -> None:
    publish(site, root, load_book(root, AT))
    for page in ("", "chapters/01-sums", "how-this-book-is-checked"):
        folder = site / page
        html = (folder / "index.html").read_text("utf-8").partition("</head>")[0]
        links = re.findall(r'rel="alternate " [^>]*href="([^"]*)"', html)
        assert len(links) == 2
        assert [link for link in links if not (folder / link).is_file()] == []
        with Image.open(folder / "card.png") as image:
            assert image.size == (1200, 630)
    channel = ElementTree.parse(site / "whats-new.xml").getroot()[0]
    items = channel.findall("item")
    assert [item.findtext("title") for item in items] == ["add", "Differences"]
    about = "<p><code>add</code>: sums &amp; more. They are exact.</p>"
    assert items[0].findtext("description") == about
    assert channel.findtext("link") == "https://example.org/book/whats-new/"
    # The validator of the W3C asks for it.
    itself = channel.find("{http://www.w3.org/2005/Atom}link")
    assert itself is not None
    assert itself.attrib == {
        "href": "https://example.org/book/whats-new.xml",
        "rel": "self",
        "type": "application/rss+xml",
    }
    assert len({item.findtext("guid") for item in items}) == 2


def test_a_long_title_stays_on_its_card() -> None:
    book = load_book(ROOT, AT)

    def length(entry: Entry) -> int:
        return len(entry.title) * 2 + len(str(entry.page.meta.get("description")))

    for entry in sorted(book.entries, key=length)[-3:]:
        image = Image.open(BytesIO(card(entry, book))).convert("L")
        # Above the name of the book and at the right nothing is drawn.
        for box in ((90, 515, 1200, 530), (1150, 0, 1200, 630)):
            low, high = image.crop(box).getextrema()
            assert low == high, entry.source


def test_who_cites_the_book_cites_this_version() -> None:
    """Fields as in version 1.2.0 of the format, of which four have to be there."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"authors", "cff-version", "message", "title"} <= {*cited}
    optional = {"abstract", "keywords", "license", "type", "version"}
    assert {*cited} <= {"authors", "cff-version", "message", "title"} | optional
    assert cited["cff-version"] == "1.2.0"
    assert cited["authors"] == [{"name": "The Tested Transformer contributors"}]
    assert cited["version"] == tested_transformer.__version__
    page = (ROOT / "docs" / "cite.md").read_text("utf-8")
    assert f"Version {cited['version']}" in page
    assert f"{{{{{cited['authors'][0]['name']}}}}}" in page
    assert cited["title"] in page


def test_the_picture_of_the_readme_is_a_figure_of_the_book_on_white() -> None:
    figure = (ROOT / "docs/assets/figures/the-cache/frames.svg").read_text("utf-8")
    white = ' <rect width="100%" height="100%" fill="#fff"/>\n'
    picture = (ROOT / "docs/assets/readme.svg").read_text("utf-8")
    assert picture.replace(white, "", 1) == figure != picture
    assert "](docs/assets/readme.svg)" in (ROOT / "README.md").read_text("utf-8")
