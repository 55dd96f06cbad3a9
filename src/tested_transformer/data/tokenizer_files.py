"""Write a tokenizer as a ``tokenizer.json``, which other libraries open."""

import re
from typing import Any

from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
)

__all__ = ["tokenizer_file"]

_EACH_CHARACTER = r"[\s\S]"
# Python counts the separators of ASCII as white space, the package does not.
_SPACES = r"[\s\x1c-\x1f&&[^\n]]+"
# The spaces that a word tokenizer does not set; none is part of a token.
_GLUED = r" (?=[\n.,;:!?])|(?<=\n) "


def tokenizer_file(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` that does what a tokenizer does.

    Opened by the package ``tokenizers`` or by ``transformers``, it gives the same ids
    and the same text, and raises an error for what the vocabulary lacks.

    Args:
        tokenizer: A tokenizer of this library.

    Raises:
        TypeError: If it is a tokenizer of another kind.
    """
    if isinstance(tokenizer, BytePairTokenizer):
        return tokenizer.definition
    if isinstance(tokenizer, CharTokenizer):
        split = [_split(_EACH_CHARACTER, "Isolated")]
        return _file(tokenizer.alphabet, split, {"type": "Fuse"})
    if isinstance(tokenizer, WordTokenizer):
        # A space before each token but the first, and then away with those too many.
        spaced = {"type": "WordPiece", "prefix": "##", "cleanup": False}
        glue = {"type": "Replace", "pattern": {"Regex": _GLUED}, "content": ""}
        decoders = [spaced, {"type": "Fuse"}, glue]
        words = _each_word(tokenizer.vocabulary)
        split = [_split(_SPACES, "Removed"), _split(words, "Isolated")]
        decoder = {"type": "Sequence", "decoders": decoders}
        return _file(tokenizer.vocabulary, split, decoder)
    raise TypeError(f"a {type(tokenizer).__name__} cannot become a tokenizer.json")


def _each_word(vocabulary: tuple[str, ...]) -> str:
    r"""Return a pattern for words and marks.

    The package's ``\w`` is not Python's, and differs between versions of Unicode. The
    letters of the vocabulary are enough: one that it lacks is an error in any case.
    """
    letters = sorted({*re.findall(r"\w", "".join(vocabulary))}) or ["_"]
    escaped = "".join(rf"\x{{{ord(letter):x}}}" for letter in letters)
    return f"[{escaped}]+|[^{escaped}]"


def _split(pattern: str, behavior: str) -> dict[str, Any]:
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": behavior, "invert": False}


def _file(
    vocabulary: str | tuple[str, ...],
    splits: list[dict[str, Any]],
    decoder: dict[str, Any],
) -> dict[str, Any]:
    model = {
        "type": "WordLevel",
        "vocab": {piece: at for at, piece in enumerate(vocabulary)},
        "unk_token": "<unk>",  # it is not in the vocabulary, so it is an error
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
