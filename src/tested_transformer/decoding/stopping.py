"""Stop sequences: they end an answer and are never shown, not even in part.

The same watch works on tokens and on text. Anything that could be the start of a stop
sequence is held back until it is clear that it is not.
"""

from collections.abc import Callable, Container, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["StopWatch", "TextWatch"]

Run = TypeVar("Run", str, tuple[int, ...])


class StopWatch(Generic[Run]):
    """Pass an answer on, piece by piece, up to the first stop sequence.

    Args:
        stops: The sequences that end the answer: strings, or tuples of token ids.
        nothing: An empty piece: ``""`` or ``()``.

    Raises:
        ValueError: If a stop sequence is empty.
    """

    def __init__(self, stops: Sequence[Run], nothing: Run) -> None:
        for index, stop in enumerate(stops):
            if not stop:
                raise ValueError(f"stop[{index}] is empty: it would stop at once")
        self.stops = list(stops)
        # Any, because types cannot say that pieces are either all text or all tuples.
        self.nothing: Any = nothing
        self.held: Any = nothing
        self.stopped = False

    def feed(self, piece: Run) -> Run:
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

    def finish(self) -> Run:
        """Return what was held back, when no more pieces will come."""
        return self.nothing if self.stopped else self._release(len(self.held))

    def _beginning(self) -> int:
        """Return the length of the end of ``held`` that may start a stop sequence."""
        for length in range(len(self.held), 0, -1):
            if any(stop[:length] == self.held[-length:] for stop in self.stops):
                return length
        return 0

    def _release(self, length: int) -> Run:
        shown, self.held = self.held[:length], self.held[length:]
        return shown


class TextWatch:
    """Turn tokens into text as they come, up to the first stop string.

    The pieces together are what ``decode`` returns for all tokens at once: tokens are
    decoded together with those before them, since many tokenizers put or drop a space
    at the start of whatever they decode. A character that is spread over several tokens
    is held back until it is complete.

    Args:
        decode: A function from token ids to text.
        stops: The strings that end the answer.
        before: The tokens that the answer continues; their text is not repeated.
        byte_tokens: Tokens for single bytes, if ``decode`` reads a row of these as a
            whole, so that one wrong byte changes the text of all. They are held back
            until another token comes; see ``BytePairTokenizer.byte_tokens``.

    Raises:
        ValueError: If a stop string is empty.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        stops: Sequence[str] = (),
        *,
        before: Sequence[int] = (),
        byte_tokens: Container[int] = (),
    ) -> None:
        self.decode = decode
        self.byte_tokens = byte_tokens
        self.watch = StopWatch(stops, "")
        # The tokens of the latest text that was passed on, and those after them.
        self.tokens = [*before]
        self.passed = len(self.tokens)
        self.before = decode(self.tokens) if self.tokens else ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self.watch.stopped

    def feed(self, tokens: Sequence[int]) -> str:
        """Take the next tokens; return the text that can be shown so far."""
        self.tokens += tokens
        if not self.tokens or self.tokens[-1] in self.byte_tokens:
            return ""
        return self.watch.feed(self._new_text(at_end=False))

    def finish(self) -> str:
        """Return what was held back, when no more tokens will come."""
        return self.watch.feed(self._new_text(at_end=True)) + self.watch.finish()

    def _new_text(self, *, at_end: bool) -> str:
        text = self.decode(self.tokens) if self.tokens else ""
        new = text[len(self.before) :]
        unfinished = text.endswith("\N{REPLACEMENT CHARACTER}")
        if not at_end and (not new or unfinished or not text.startswith(self.before)):
            return ""
        # What comes next needs only the latest tokens, if these alone have a text: some
        # tokenizers drop spaces up to the first other character.
        own = self.decode(self.tokens[self.passed :]) if new else ""
        if own:
            del self.tokens[: self.passed]
        self.before, self.passed = own or text, len(self.tokens)
        return new
