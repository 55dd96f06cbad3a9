"""Train variants of the book's GPT that say how far the record ``parts`` reaches.

Its rows compare models after 500 steps. Here are those that miss most, after four times
as many, and averages without the feed-forward networks that make something of them.
"""

from dataclasses import replace
from typing import Any

from benchmarks.parts import PARTS, Part, combined, train_parts
from benchmarks.run import Results, Run

__all__ = ["CONTROLS", "measure"]

_LONG: dict[str, Any] = PARTS["four times the steps"].recipe
_MISSING = ("plain averages", "window of 4", "no positions", "no norms", "one layer")

CONTROLS: dict[str, Part] = {
    "averages, no feed-forward": combined("plain averages", "no feed-forward"),
    **{f"{name}, 4 × steps": replace(PARTS[name], recipe=_LONG) for name in _MISSING},
}


def measure(run: Run) -> Results:
    """Train each variant from some seeds."""
    return train_parts(run, CONTROLS)
