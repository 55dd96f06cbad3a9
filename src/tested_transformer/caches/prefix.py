"""Pages that are found again by the text that they hold: prefix caching.

The keys and values of a token depend on all tokens before it. So a full page has a name
made of its own tokens and the name of the page before it, and a request whose prompt
begins with the same tokens finds it by that name.

Source: Kwon et al., 2023, "Efficient Memory Management for Large Language Model
Serving with PagedAttention", section 4.4; names by hashes are those of vLLM.
"""

from array import array
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from tested_transformer.caches.paged import PagePool

__all__ = ["PrefixPool", "page_names"]


# --8<-- [start:names]
def page_names(tokens: Sequence[int], page_size: int) -> list[bytes]:
    """Return a name for each full page of a text, which says all tokens up to its end.

    Args:
        tokens: The token ids of the text, from its first on.
        page_size: How many tokens a page holds.
    """
    names, name = list[bytes](), b""
    for end in range(page_size, len(tokens) + 1, page_size):
        name = sha256(name + array("q", tokens[end - page_size : end])).digest()
        names.append(name)
    return names


# --8<-- [end:names]


class PrefixPool(PagePool):
    """A pool that keeps named pages after their last user, until it needs the room.

    Then the one that was not used for the longest time goes first (LRU).

    Args:
        sizes: The arguments of ``PagePool``.
    """

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.num_evicted = 0
        self._pages: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        # Pages in nobody's use, without and with a name; the longest unused are first.
        self._blank = dict.fromkeys(range(len(self.users)))
        self._cached = dict[int, None]()

    @property
    def num_cached(self) -> int:
        """How many of the free pages are kept because somebody may ask for them."""
        return len(self._cached)

    @property
    def num_free(self) -> int:
        """How many pages are free, cached ones included."""
        return len(self._blank) + len(self._cached)

    def find(self, names: Sequence[bytes]) -> list[int]:
        """Return the pages with these names, up to the first that there is not."""
        pages = list[int]()
        for name in names:
            if name not in self._pages:
                break
            pages.append(self._pages[name])
        return pages

    def publish(self, pages: Sequence[int], names: Sequence[bytes]) -> None:
        """Name full pages, so that others find them; the first of a name stays it."""
        for page, name in zip(pages, names, strict=True):
            if name not in self._pages and page not in self._names:
                self._pages[name], self._names[page] = page, name

    def take(self) -> int:
        """Take a free page without a name, or else the one unused for longest.

        Raises:
            ValueError: If all pages are in use.
        """
        page = super().take()
        self._blank.pop(page, None)
        if page in self._cached:
            del self._cached[page], self._pages[self._names.pop(page)]
            self.num_evicted += 1
        return page

    def _next_free(self) -> int:
        return next(iter(self._blank or self._cached))

    def share(self, pages: Sequence[int]) -> None:
        """Let one more sequence hold pages, cached ones included."""
        super().share(pages)
        for page in pages:
            self._cached.pop(page, None)

    def release(self, pages: Sequence[int]) -> None:
        """Give back pages; the end of a text is unused for longer than its start."""
        super().release(pages)
        for page in reversed(pages):
            if self.users[page] == 0:
                free = self._cached if page in self._names else self._blank
                free[page] = None
