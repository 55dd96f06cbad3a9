"""Stop sequences: they end an answer and are never shown, not even in part.

The same filter works on tokens and on text. Anything that could be the start of a stop
sequence is held back until it is clear that it is not.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

__all__ = ["StopFilter"]

Piece = TypeVar("Piece", str, tuple[int, ...])


class StopFilter(Generic[Piece]):
    """Pass an answer on, piece by piece, up to the first stop sequence.

    Args:
        stops: The sequences that end the answer: strings, or tuples of token ids.
        nothing: An empty piece: ``""`` or ``()``.

    Raises:
        ValueError: If a stop sequence is empty.
    """

    def __init__(self, stops: Sequence[Piece], nothing: Piece) -> None:
        for index, stop in enumerate(stops):
            if not stop:
                raise ValueError(f"stop[{index}] is empty: it would stop at once")
        self.stops = list(stops)
        # Any, because types cannot say that pieces are either all text or all tuples.
        self.nothing: Any = nothing
        self.held: Any = nothing
        self.stopped = False

    def feed(self, piece: Piece) -> Piece:
        """Take the next piece; return what can be shown so far."""
        if not self.stops:
            return piece
        shown = self.nothing
        for at in range(len(piece)):
            if self.stopped:
                break
            self.held += piece[at : at + 1]
            ended = [stop for stop in self.stops if self.held[-len(stop) :] == stop]
            self.stopped = bool(ended)
            keep = max(map(len, ended)) if ended else self._beginning()
            shown += self._release(len(self.held) - keep)
        return shown

    def finish(self) -> Piece:
        """Return what was held back, when no more pieces will come."""
        return self.nothing if self.stopped else self._release(len(self.held))

    def _beginning(self) -> int:
        """Return the length of the end of ``held`` that may start a stop sequence."""
        for length in range(len(self.held), 0, -1):
            if any(stop[:length] == self.held[-length:] for stop in self.stops):
                return length
        return 0

    def _release(self, length: int) -> Piece:
        shown, self.held = self.held[:length], self.held[length:]
        return shown
