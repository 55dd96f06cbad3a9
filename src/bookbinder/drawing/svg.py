"""SVG pictures as parts of a page: ids that are unique on it."""

import re
from collections.abc import Iterable

__all__ = ["unique_ids"]

_NAMES = re.compile(r'\bid="|\burl\(#|\bhref="#|\baria-(?:labelledby|describedby)="')


def unique_ids(svg: str, stem: str, earlier: Iterable[str]) -> str:
    """Prefix every id of a picture, so that no other picture on the page has it.

    Args:
        svg: The picture, whose references are to ids of its own.
        stem: What the ids are to begin with.
        earlier: What is on the page already; the same picture may be among it.
    """
    copies = sum(f'id="{stem}-' in other for other in earlier)
    prefix = f"{stem}-{copies + 1}-" if copies else f"{stem}-"
    return _NAMES.sub(lambda name: name[0] + prefix, svg)
