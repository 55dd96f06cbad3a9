"""What a page says to programs that show a link to it: tags and a card.

A card is the picture of a link. Such programs ask for it by its full address, so there
are cards, and a feed, only where a book has an address.
"""

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
    title = entry.title if entry.folder else book.name
    tags = {
        "og:type": "article" if entry.folder else "website",
        "og:site_name": book.name,
        "og:title": title,
        "og:description": str(entry.page.meta.get("description", book.summary)),
        "twitter:card": "summary",
    }
    links = [f'type="text/markdown" href="{entry.up}{entry.source}"']
    if book.site:
        page = f"{book.site}{entry.folder}/" if entry.folder else book.site
        tags |= {
            "og:url": page,
            "og:image": page + CARD,
            "og:image:width": str(_SIZE[0]),
            "og:image:height": str(_SIZE[1]),
            "og:image:alt": f"{title}. {book.name}",
            "twitter:card": "summary_large_image",
        }
        links.append(f'type="application/rss+xml" href="{entry.up}{FEED}"')
    lines = [
        f'<meta {"name" if name.startswith("twitter") else "property"}="{name}" '
        f'content="{escape(text)}">'
        for name, text in tags.items()
    ]
    # Without the space, the theme would take each for the book in another language.
    lines += [f'<link rel="alternate " {link}>' for link in links]
    return "\n".join([*lines, ""])


def card(entry: Entry, book: Book) -> bytes:
    """Draw the card of a page: its title, and the name of the book."""
    image = Image.new("RGB", _SIZE, _BACK)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 24, _SIZE[1]), _BAR)
    title = entry.title if entry.folder else book.name
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
