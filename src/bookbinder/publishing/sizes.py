"""Say of each piece of code how many lines it has, and how long the longest is.

Most of what a page is made of is colored code, and a browser sets all of it before it
shows anything. The style of the site has it set what comes into sight; what does not is
as high as its lines and as wide as its columns, so that nothing moves, every link leads
to its place, and what scrolls sideways is known to.
"""

import re
from html import unescape

__all__ = ["with_sizes"]

_CODE = re.compile(r"(<pre[^>]*>(?:<span></span>)?<code>)(.*?)</code>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")


def with_sizes(page: str) -> str:
    """Wrap each block of code of a page into its lines and columns, for the style.

    Args:
        page: The HTML of the page.
    """
    return _CODE.sub(_sized, page)


def _sized(code: re.Match[str]) -> str:
    # The line break behind the last line begins no other.
    lines = unescape(_TAG.sub("", code[2])).removesuffix("\n").split("\n")
    sizes = f"--lines:{len(lines)};--columns:{max(map(len, lines))}"
    return f'{code[1]}<span class="sized" style="{sizes}">{code[2]}</span></code>'
