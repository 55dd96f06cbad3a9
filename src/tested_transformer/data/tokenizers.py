"""From text to whole numbers and back: what tokenizers have in common, and our own."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from tested_transformer.data.bytepairs import BytePairTokenizer

__all__ = ["CharTokenizer", "Tokenizer", "tokenizer_from_dict"]


# --8<-- [start:protocol]
@runtime_checkable
class Tokenizer(Protocol):
    """Whatever turns text into token ids from 0 to ``vocab_size - 1``, and back."""

    @property
    def vocab_size(self) -> int:
        """How many different tokens there are."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return what ``tokenizer_from_dict`` makes the same tokenizer of."""
        ...


# --8<-- [end:protocol]


# --8<-- [start:char]
class CharTokenizer:
    """Gives each character of an alphabet its place in it.

    Args:
        alphabet: The characters, each once.

    Raises:
        ValueError: If the alphabet is empty, or has a character twice.
    """

    kind = "characters"

    def __init__(self, alphabet: str) -> None:
        self._ids = {character: at for at, character in enumerate(alphabet)}
        if not alphabet:
            raise ValueError("an alphabet needs at least one character")
        if len(self._ids) < len(alphabet):
            twice = next(c for c in alphabet if alphabet.count(c) > 1)
            raise ValueError(f"{twice!r} is twice in the alphabet {alphabet!r}")
        self.alphabet = alphabet

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Take the characters that occur in ``text``, in the order of their codes."""
        if not text:
            raise ValueError("the text is empty, and has no alphabet")
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        """How many characters the alphabet has."""
        return len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """Return the place of each character.

        Raises:
            ValueError: If the alphabet lacks one of them.
        """
        try:
            return [self._ids[character] for character in text]
        except KeyError:
            raise ValueError(self._missing(text)) from None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the characters at these places.

        Raises:
            ValueError: If an id is not one of the alphabet's.
        """
        ids = list(ids)
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"token id {token} must lie between 0 and {self.vocab_size - 1}"
                )
        return "".join([self.alphabet[token] for token in ids])

    def to_dict(self) -> dict[str, object]:
        """Return the alphabet, as JSON can hold it."""
        return {"kind": self.kind, "alphabet": self.alphabet}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "CharTokenizer":
        """Make the tokenizer that ``to_dict`` was called on.

        Raises:
            ValueError: If ``data`` holds no alphabet.
        """
        alphabet = data.get("alphabet")
        if not isinstance(alphabet, str):
            raise ValueError(f"alphabet={alphabet!r} must be a string")
        return cls(alphabet)

    # --8<-- [start:missing]
    def _missing(self, text: str) -> str:
        known = self._ids
        places = [at for at, each in enumerate(text) if each not in known]
        missing = list(dict.fromkeys(text[at] for at in places))
        named = ", ".join(map(repr, missing[:5]))
        if len(missing) > 5:
            named += f" and {len(missing) - 5} more"
        shown = self.alphabet
        if len(shown) > 40:
            shown = f"{shown[:30]}...{shown[-7:]}"
        return (
            f"{named} (first at position {places[0]}) not in the alphabet "
            f"of {self.vocab_size} characters, {shown!r}"
        )

    # --8<-- [end:missing]


# --8<-- [end:char]


def tokenizer_from_dict(data: Mapping[str, object]) -> Tokenizer:
    """Make the tokenizer that ``to_dict`` was called on, whichever it was.

    Raises:
        ValueError: If ``data`` describes no tokenizer.
    """
    for tokenizer in (CharTokenizer, BytePairTokenizer):
        if data.get("kind") == tokenizer.kind:
            return tokenizer.from_dict(data)
    raise ValueError(
        f"kind={data.get('kind')!r} must be "
        f"{CharTokenizer.kind!r} or {BytePairTokenizer.kind!r}"
    )
