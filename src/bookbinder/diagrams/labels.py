"""Read the shapes in a mermaid diagram, and the program in its comments.

A shape is a list of sizes in parentheses, such as ``(B, T, 3D)``. In the label of a
node it belongs to the variable named like the node; elsewhere, to the word before it.
"""

import re
from dataclasses import dataclass, field

__all__ = ["Diagram", "Label", "read_diagram"]

_SIZE = r"(?:(?:\d+ ?)?[A-Za-z]\w*|\d+)"
# One size at least is a letter: words in parentheses are no shape, nor is ``f(x)``.
_SHAPE = re.compile(
    r"(?<!\w)\((?=[^)]*(?<![A-Za-z_])[A-Za-z](?:_\w+)?(?!\w))"
    rf"{_SIZE}(?:(?:,| \*) {_SIZE})*,?\)"
)
# A comment that begins as a link does is one: bookbinder.drawing.links reads it.
_LINKS = re.compile(r"^[ \t]*%% \[.*$", re.MULTILINE)
_PROGRAM = re.compile(r"^[ \t]*%% ?(?P<code>.*)$", re.MULTILINE)
_SPOKEN = re.compile(r"^[ \t]*acc(?:Title|Descr)\s*(?::.*|\{[^}]*\})", re.MULTILINE)
_NODE = re.compile(r'(?P<name>[A-Za-z]\w*)[\[({>/\\]+"(?P<text>[^"]*)"')
_LAST_WORD = re.compile(r"(\w+)\W*$")


@dataclass(frozen=True)
class Label:
    """Words with shapes; ``line`` counts from 0 within the diagram.

    Args:
        name: The variable with these shapes; a tuple if there are several.
        shapes: The shapes as written.
        line: The line of the label.
    """

    name: str
    shapes: list[str]
    line: int


@dataclass
class Diagram:
    """A diagram: labels with shapes, shapes for screen readers, and program lines."""

    labels: list[Label] = field(default_factory=list[Label])
    spoken: list[Label] = field(default_factory=list[Label])
    program: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


def read_diagram(source: str) -> Diagram:
    """Read a diagram, ignoring everything without a shape."""
    diagram = Diagram()

    def add(labels: list[Label], name: str, text: str, start: int) -> None:
        shapes = _SHAPE.findall(text)
        if shapes:
            labels.append(Label(name, shapes, source.count("\n", 0, start)))

    source = rest = _LINKS.sub(_blank, source)
    for found in _PROGRAM.finditer(source):
        line = source.count("\n", 0, found.start("code"))
        diagram.program.append((line, found["code"]))
    rest = _PROGRAM.sub(_blank, rest)
    for found in _SPOKEN.finditer(rest):
        add(diagram.spoken, "", found[0], found.start())
    rest = _SPOKEN.sub(_blank, rest)
    for found in _NODE.finditer(rest):
        add(diagram.labels, found["name"], found["text"], found.start())
    rest = _NODE.sub(
        lambda node: node["name"] + _blank(node)[len(node["name"]) :], rest
    )
    for found in _SHAPE.finditer(rest):
        word = _LAST_WORD.search(rest, 0, found.start())
        add(diagram.labels, word[1] if word else "", found[0], found.start())
    return diagram


def _blank(found: re.Match[str]) -> str:
    """Return white space with the same length and lines as the match."""
    return re.sub(r"[^\n]", " ", found[0])
