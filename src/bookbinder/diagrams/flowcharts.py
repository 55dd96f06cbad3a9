"""Read a mermaid flowchart: its nodes, its arrows, the shapes on both, its program.

Only what the book draws is understood: nodes with a label in quotes, arrows with or
without one. A line that is not understood is an error, since nothing would check it.
"""

import re
from dataclasses import dataclass, field

__all__ = ["SHAPE", "Arrow", "Flowchart", "FlowchartError", "Node", "read_flowchart"]

_NAME = r"[A-Za-z]\w*"
_PART = rf"(?:\d+ ?{_NAME}|{_NAME}|\d+)"
_SIZE = rf"{_PART}(?: \* {_PART})*"
SHAPE = re.compile(rf"\((?P<sizes>{_SIZE}(?:, {_SIZE})*),?\)")

_NODE = re.compile(
    rf'(?P<id>{_NAME})(?P<open>\[|\(\(|\(|\{{)?(?(open)"(?P<label>[^"]*)"(?:\]|\)\)|\)|\}}))'
)
_ARROW = re.compile(
    r"\s*(?:(?:-->|-\.->|==>)(?:\|(?P<bars>[^|]*)\|)?"
    r"|(?:--|-\.|==)\s+(?P<words>.+?)\s+(?:-->|\.->|==>))\s*"
)
_SPOKEN = re.compile(r"acc(?:Title|Descr)\s*:\s*(?P<text>.*)")
_HEAD = re.compile(r"flowchart (?:TB|TD|LR|BT|RL)")
_LOOKS = re.compile(r"(?:classDef|class|style|linkStyle|direction|subgraph|end)\b")


class FlowchartError(ValueError):
    """A line that cannot be read; ``line`` counts from 0 within the diagram."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


@dataclass
class Node:
    """A box: ``line`` counts from 0 within the diagram."""

    name: str
    label: str = ""
    line: int = 0


@dataclass(frozen=True)
class Arrow:
    """A line from one box to another, and what is written on it."""

    start: str
    end: str
    label: str
    line: int


@dataclass
class Flowchart:
    """A diagram; ``spoken`` is what screen readers read out, ``code`` its program."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    arrows: list[Arrow] = field(default_factory=list[Arrow])
    spoken: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    code: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def labels(self) -> list[tuple[int, str]]:
        """Everything that is written into the drawing, with its line."""
        boxes = [(node.line, node.label) for node in self.nodes.values()]
        return boxes + [(arrow.line, arrow.label) for arrow in self.arrows]


def read_flowchart(source: str) -> Flowchart:
    """Read a flowchart.

    Raises:
        FlowchartError: If a line is not understood.
    """
    chart = Flowchart()
    for number, raw in enumerate(source.split("\n")):
        line = raw.strip()
        if line.startswith("%%"):
            chart.code.append((number, line.removeprefix("%%").removeprefix(" ")))
        elif spoken := _SPOKEN.fullmatch(line):
            chart.spoken.append((number, spoken["text"]))
        elif line and not _HEAD.fullmatch(line) and not _LOOKS.match(line):
            _read_line(chart, line, number)
    return chart


def _read_line(chart: Flowchart, line: str, number: int) -> None:
    """Read a box, or boxes with arrows between them."""
    position, before, arrow = 0, None, None
    while found := _NODE.match(line, position):
        known = found["open"] or arrow or found["id"] in chart.nodes
        if not (known or _ARROW.match(line, found.end())):
            break  # A word that stands for itself is no node.
        node = chart.nodes.setdefault(found["id"], Node(found["id"], line=number))
        if found["open"]:
            node.label, node.line = found["label"], number
        if before and arrow:
            label = (arrow["bars"] or arrow["words"] or "").strip().strip('"')
            chart.arrows.append(Arrow(before, node.name, label, number))
        position, before = found.end(), node.name
        arrow = _ARROW.match(line, position)
        if not arrow:
            break
        position = arrow.end()
    if position != len(line):
        raise FlowchartError(
            number, f"this line of a diagram is not understood: {line}"
        )
