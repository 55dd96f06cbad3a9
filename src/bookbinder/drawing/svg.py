"""Make an SVG picture part of a page, with the page's colors and unique ids.

Pictures are drawn in the colors of the palette. On a page each color becomes a variable
of ``docs/assets/css/book.css``, which gives it a light and a dark value.
"""

import re
from collections.abc import Iterable

PALETTE = {
    "#1b1f24": "--book-ink",
    "#6b7280": "--book-muted",
    "#3557c2": "--book-accent",
    "#c2562e": "--book-warm",
    "#ffffff": "--book-paper",
    "#d0d4dc": "--book-rule",
}

_COLOR = re.compile(r"(?<!url\()#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\([^)]*\)")
_NAMES = re.compile(r'\bid="|\burl\(#|\bhref="#|\baria-(?:labelledby|describedby)="')


def recolor(value: str) -> str:
    """Replace each color in an attribute by its variable.

    Raises:
        ValueError: If a color is not in the palette.
    """
    if "#" not in value and "(" not in value:  # as most are not
        return value
    for color in _COLOR.findall(value):
        if color.lower() not in PALETTE:
            raise ValueError(
                f"{color} is none of the book's colors: draw with a function of "
                f"transformer_book.plots, or take one of {', '.join(PALETTE)}"
            )
    return _COLOR.sub(lambda color: f"var({PALETTE[color[0].lower()]})", value)


def unique_ids(svg: str, stem: str, earlier: Iterable[object]) -> str:
    """Prefix every id of a picture, so that no other picture on the page has it.

    Args:
        svg: The picture, whose references are to its own ids.
        stem: The prefix of the ids.
        earlier: What is already on the page, perhaps including the same picture.
    """
    copies = sum(f'id="{stem}-' in str(content) for content in earlier)
    prefix = f"{stem}-{copies + 1}-" if copies else f"{stem}-"
    return _NAMES.sub(lambda name: name[0] + prefix, svg)
