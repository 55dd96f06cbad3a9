"""Call-outs, folds and tabs: each ``/// kind`` has the ``///`` that ends it."""

from collections.abc import Iterable, Iterator


def unpaired(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Give the number of each line that opens or ends nothing, and what is wrong."""
    opened: list[tuple[int, str]] = []
    for number, line in lines:
        slashes = line[: len(line) - len(line.lstrip("/"))]
        if line.rstrip() != slashes:
            opened.append((number, slashes))
        elif opened and opened[-1][1] == slashes:
            opened.pop()
        else:
            yield number, f"{slashes} ends no call-out or tab"
    for number, slashes in opened:
        yield number, f"no {slashes} ends this call-out or tab"
