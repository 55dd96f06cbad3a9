"""Keep a shape in one line: a type of the reference may end a line before it.

A long type has to, for the words beside it to have room on a phone. A browser would end
the line at any space, and two halves of ``"B H T d_k"`` look like two shapes.
"""

import re

__all__ = ["with_whole_shapes"]

_TYPE = re.compile(r"<td>\s*<code>(?:(?!</code>).)*</code>", re.DOTALL)
# Tags as well, for what they quote is not shown.
_PIECE = re.compile(r"<[^>]*>|&#34;[^&<>]*&#34;|&quot;[^&<>]*&quot;")


def with_whole_shapes(page: str) -> str:
    """Wrap what is quoted in the types of a page, for the style.

    Args:
        page: The HTML of the page.
    """
    return _TYPE.sub(lambda cell: _PIECE.sub(_whole, cell[0]), page)


def _whole(piece: re.Match[str]) -> str:
    tag = piece[0].startswith("<")
    return piece[0] if tag else f'<span class="whole">{piece[0]}</span>'
