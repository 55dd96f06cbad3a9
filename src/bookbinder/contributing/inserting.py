"""Add lines to files that people write, and leave everything else as it stands."""

import re

from bookbinder.page import split_lines

__all__ = ["ChapterError", "with_line"]


class ChapterError(ValueError):
    """A chapter cannot be begun so; the message says what came, and what was wanted."""


def with_line(text: str, like: str, line: str, *, path: str) -> str:
    """Put a line behind the last of its kind, as far to the right.

    Args:
        text: The file.
        like: What a line of this kind looks like, without the spaces before it.
        line: The new line.
        path: How the file is called, to be told where it has no such line.

    Raises:
        ChapterError: If there is none.
    """
    kind = re.compile(rf"(?P<indent> *){like}")
    lines = split_lines(text)
    for index in range(len(lines) - 1, -1, -1):
        if found := kind.fullmatch(lines[index]):
            lines.insert(index + 1, found["indent"] + line)
            return "\n".join(lines) + "\n"
    raise ChapterError(f"{path}: wanted a line like {like}, to add one behind it")
