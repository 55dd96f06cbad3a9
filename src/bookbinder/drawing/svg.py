"""SVG pictures as parts of a page: ids that are unique on it."""

import re
from collections.abc import Iterable

_ID = re.compile(r'\bid="([^"]+)"')


def unique_ids(svg: str, stem: str, earlier: Iterable[str]) -> str:
    """Prefix every id of a picture, so that no other picture on the page has it.

    Args:
        svg: The picture.
        stem: What the ids are to begin with.
        earlier: What is on the page already; the same picture may be among it.
    """
    copies = sum(f'id="{stem}-' in other for other in earlier)
    prefix = f"{stem}-{copies + 1}-" if copies else f"{stem}-"
    names: list[str] = sorted(set(_ID.findall(svg)), key=len, reverse=True)
    if not names:
        return svg
    name = "|".join(map(re.escape, names))
    svg = re.sub(rf'\bid="({name})"', rf'id="{prefix}\1"', svg)
    svg = re.sub(rf"url\(#({name})\)", rf"url(#{prefix}\1)", svg)
    svg = re.sub(rf'\bhref="#({name})"', rf'href="#{prefix}\1"', svg)

    def references(match: re.Match[str]) -> str:
        values = [f"{prefix}{value}" for value in match[2].split()]
        return f'{match[1]}="{" ".join(values)}"'

    return re.sub(r'\b(aria-(?:labelledby|describedby))="([^"]*)"', references, svg)
