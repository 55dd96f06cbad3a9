"""The colors of pictures and diagrams, and the CSS variables they stand for.

Whatever is drawn is drawn in these colors. On a page each becomes a variable of the
stylesheet, ``docs/assets/css/book.css``, which gives it a light and a dark value.
"""

import re

__all__ = ["PALETTE", "recolor"]

PALETTE = {
    "#1b1f24": "--book-ink",
    "#6b7280": "--book-muted",
    "#3557c2": "--book-accent",
    "#c2562e": "--book-warm",
    "#ffffff": "--book-paper",
    "#d0d4dc": "--book-rule",
}

_COLOR = re.compile(r"(?<!url\()#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\([^)]*\)")


def recolor(value: str) -> str:
    """Replace each color in an attribute by its variable.

    Raises:
        ValueError: If a color is none of the palette.
    """

    def variable(match: re.Match[str]) -> str:
        name = PALETTE.get(match[0].lower())
        if name is None:
            raise ValueError(
                f"{match[0]} is none of the book's colors: draw with a function of "
                f"tested_transformer.plots, or take one of {', '.join(PALETTE)}"
            )
        return f"var({name})"

    return _COLOR.sub(variable, value)
