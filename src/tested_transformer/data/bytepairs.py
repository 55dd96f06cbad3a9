"""Tokens of several characters: byte-pair encoding, by the ``tokenizers`` package.

The package is an extra: ``pip install "tested-transformer[bpe]"``.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["BytePairTokenizer", "bpe_tokenizer"]


# --8<-- [start:adapter]
class BytePairTokenizer:
    """Encodes text as the tokenizer of a ``tokenizer.json`` does, GPT-2's for example.

    Args:
        definition: What such a file holds.

    Raises:
        ImportError: If the package ``tokenizers`` is not installed.
        ValueError: If ``definition`` is not that of a tokenizer.
    """

    kind = "byte pairs"

    def __init__(self, definition: str) -> None:
        package = _package()
        try:
            self._tokenizer = package.Tokenizer.from_str(definition)
        except Exception as error:  # The package raises nothing more exact.
            raise ValueError(f"this is no tokenizer.json: {error}") from None

    @classmethod
    def from_file(cls, path: str | Path) -> "BytePairTokenizer":
        """Read a ``tokenizer.json``.

        Raises:
            OSError: If the file cannot be read.
        """
        return cls(Path(path).read_text("utf-8"))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without any that mark its start or end."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: If an id is not one of the vocabulary's.
        """
        ids = list(ids)
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise ValueError(
                    f"token id {token} must lie between 0 and {self.vocab_size - 1}"
                )
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def to_dict(self) -> dict[str, object]:
        """Return the definition, as JSON can hold it."""
        return {"kind": self.kind, "tokenizer": json.loads(self._tokenizer.to_str())}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> "BytePairTokenizer":
        """Make the tokenizer that ``to_dict`` was called on.

        Raises:
            ValueError: If ``data`` holds no tokenizer.
        """
        return cls(json.dumps(data.get("tokenizer")))


# --8<-- [end:adapter]


# --8<-- [start:train]
def bpe_tokenizer(text: str, vocab_size: int) -> BytePairTokenizer:
    """Make a vocabulary for ``text``: bytes, and the pairs that are the most frequent.

    Begin with the 256 bytes. Join the two neighbors that come together most often
    into a new token, and do so again until there are ``vocab_size``, or no pair comes
    twice. Whatever the text, it can be encoded: in bytes, if need be.

    Raises:
        ImportError: If the package ``tokenizers`` is not installed.
        ValueError: If ``vocab_size`` is too small for the bytes, or there is no text.

    Source: Sennrich et al., 2016, "Neural Machine Translation of Rare Words with
    Subword Units", section 3.2; on bytes: Radford et al., 2019, "Language Models are
    Unsupervised Multitask Learners", section 2.2.
    """
    if vocab_size < 256:
        raise ValueError(f"vocab_size={vocab_size} must be at least 256, for the bytes")
    if not text:
        raise ValueError("the text is empty, and has no pairs")
    package = _package()
    byte_level = package.pre_tokenizers.ByteLevel
    tokenizer = package.Tokenizer(package.models.BPE())
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    tokenizer.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return BytePairTokenizer(tokenizer.to_str())


# --8<-- [end:train]


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "byte pairs need the package tokenizers: "
            'pip install "tested-transformer[bpe]"'
        ) from None
    return tokenizers
