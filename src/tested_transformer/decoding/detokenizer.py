"""Detokenizing: the text of tokens as they come, up to the first stop string."""

from collections.abc import Callable, Container, Sequence

from tested_transformer.decoding.stopping import StopFilter

__all__ = ["Detokenizer"]


class Detokenizer:
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
        self.filter = StopFilter(stops, "")
        # The tokens of the latest text that was passed on, and those after them.
        self.tokens = [*before]
        self.passed = len(self.tokens)
        self.before = decode(self.tokens) if self.tokens else ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self.filter.stopped

    def feed(self, tokens: Sequence[int]) -> str:
        """Take the next tokens; return the text that can be shown so far."""
        self.tokens += tokens
        if not self.tokens or self.tokens[-1] in self.byte_tokens:
            return ""
        return self.filter.feed(self._new_text(at_end=False))

    def finish(self) -> str:
        """Return what was held back, when no more tokens will come."""
        return self.filter.feed(self._new_text(at_end=True)) + self.filter.finish()

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
