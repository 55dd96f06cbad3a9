"""Train deeper models of the book with local layers: what is lost, and kept in a cache.

A local layer sees a window of four tokens. Words are far apart in the stories, so four
layers with windows alone cannot read all of them.
"""

from typing import Any

from benchmarks.parts import Part, train_parts
from benchmarks.run import Results, Run
from tested_transformer.attentions import AdjustedSoftmax

__all__ = ["PATTERNS", "measure"]

_WINDOW = 4
_FOUR: dict[str, Any] = {"num_layers": 4, "positions": "rotary"}
_SIX: dict[str, Any] = {"num_layers": 6, "positions": "rotary"}


def _in_turns(pattern: str, sizes: dict[str, Any], **more: Any) -> Part:
    """Return a part whose layers are local or global, such as ``"lllg"``."""
    windows = tuple(_WINDOW if letter == "l" else None for letter in pattern)
    return Part({**sizes, "windows": windows, **more})


PATTERNS = {
    "4 global": Part(_FOUR),
    "local, global in turns": _in_turns("lglg", _FOUR),
    "3 local, 1 global": _in_turns("lllg", _FOUR),
    "1 global, 3 local": _in_turns("glll", _FOUR),
    "4 local": _in_turns("llll", _FOUR),
    "3 local, 1 global, not rotated": _in_turns(
        "lllg", _FOUR, rotary_layers=(True, True, True, False)
    ),
    "3 local, 1 global, sinks": _in_turns(
        "lllg", _FOUR, attention=AdjustedSoftmax(learned_sink=True)
    ),
    "6 global": Part(_SIX),
    "5 local, 1 global": _in_turns("lllllg", _SIX),
}


def measure(run: Run) -> Results:
    """Train each pattern from some seeds."""
    return train_parts(run, PATTERNS)
