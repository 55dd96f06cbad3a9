"""What a page says to programs that show a link to it: tags, data and a card.

A card is the picture of a link. Such programs ask for it by its full address, so there
are cards, and a feed, only where a book has an address.
"""

import json
from html import escape
from io import BytesIO
from textwrap import wrap

from PIL import Image, ImageDraw, ImageFont

from bookbinder.publishing.book import Book, Entry
from bookbinder.publishing.news import FEED

CARD = "card.png"
_SIZE = 1200, 630
_BACK, _INK, _BAR = "#fbfaf7", "#22252b", "#24406e"


def head(entry: Entry, book: Book) -> str:
    """Return the elements that a page's ``head`` ends with."""
    home = not entry.address
    page = book.site + entry.address
    about = str(entry.page.meta.get("description", book.summary))
    title = book.name if home else entry.title
    tags = {
        "og:type": "website" if home else "article",
        "og:site_name": book.name,
        "og:title": title,
        "og:description": about,
        "twitter:card": "summary",
    }
    work = {"@type": "Book", "name": book.name, "inLanguage": "en"}
    data: dict[str, object] = {"@context": "https://schema.org", "description": about}
    data |= work if home else {"@type": "TechArticle", "headline": title}
    data["author"] = {"@type": "Organization", "name": f"{book.name} contributors"}
    if not home:
        data["isPartOf"] = work
    links = [f'type="text/markdown" href="{entry.up}{entry.source}"']
    if book.site:
        data["url"] = tags["og:url"] = page
        tags |= {"og:image": page + CARD, "twitter:card": "summary_large_image"}
        tags["og:image:width"], tags["og:image:height"] = map(str, _SIZE)
        tags["og:image:alt"] = f"{title}. {book.name}"
        links.append(f'type="application/rss+xml" href="{entry.up}{FEED}"')
    lines = [
        f'<meta {"name" if name.startswith("twitter") else "property"}="{name}" '
        f'content="{escape(text)}">'
        for name, text in tags.items()
    ]
    # Without the space, the theme would take each for the book in another language.
    lines += [f'<link rel="alternate " {link}>' for link in links]
    # Nothing in a script may look like its end.
    written = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return "\n".join(
        [*lines, f'<script type="application/ld+json">{written}</script>', ""]
    )


def card(entry: Entry, book: Book) -> bytes:
    """Draw the card of a page: its title, and the name of the book."""
    image = Image.new("RGB", _SIZE, _BACK)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 24, _SIZE[1]), _BAR)
    title = entry.title if entry.address else book.name
    about = str(entry.page.meta.get("description", book.summary))
    bottom = 70
    for text, size, width in ((title, 64, 31), (about, 34, 60)):
        place, lines = (90, bottom), "\n".join(wrap(text, width))
        font = ImageFont.load_default(size)
        bottom = 40 + draw.multiline_textbbox(place, lines, font, spacing=size / 3)[3]
        draw.multiline_text(place, lines, _INK, font, spacing=size / 3)
    draw.text((90, 540), book.name, _BAR, ImageFont.load_default(40))
    file = BytesIO()
    image.quantize(16).save(file, "PNG", optimize=True)
    return file.getvalue()
