"""Convert text to token ids and back: by characters, words or byte pairs.

Byte pairs need the optional package ``tokenizers``:
``pip install "tested-transformer[bpe]"``.
"""

import atexit
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = [
    "BytePairTokenizer",
    "CharTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "between_words",
    "bpe_tokenizer",
    "check_utf8",
    "encode_prompt",
    "tokenizer_from_dict",
]

# While pairs are learned, longer words are cut, in bytes: the time for one word grows
# with the square of its length. No useful token is as long.
_LONGEST_WORD = 256
# Pairs are learned from at most so many characters. Words that hardly ever repeat, as
# in DNA, take about 80 bytes of memory for each of them.
_LEARNED = 1 << 24
# A text without white space is cut after this many characters.
_SLICE = 1 << 16
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


@runtime_checkable
class Tokenizer(Protocol):
    """Whatever turns text into token ids, 0 to ``vocab_size - 1``, and back."""

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
        """Return a description from which ``tokenizer_from_dict`` rebuilds this."""
        ...


class CharTokenizer:
    """A tokenizer that numbers the characters of an alphabet.

    Args:
        alphabet: The characters, each once.

    Raises:
        ValueError: If the alphabet is empty, or contains a character twice.
    """

    kind = "characters"

    def __init__(self, alphabet: str) -> None:
        self._ids = {character: at for at, character in enumerate(alphabet)}
        if not alphabet:
            raise ValueError("alphabet must have at least one character; it is empty")
        if len(self._ids) < len(alphabet):
            twice = next(c for c in alphabet if alphabet.count(c) > 1)
            raise ValueError(f"{twice!r} occurs twice in the alphabet {alphabet!r}")
        self.alphabet = alphabet

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Make a tokenizer of the characters of ``text``, sorted by code point."""
        if not text:
            raise ValueError("the text is empty: it has no alphabet")
        return cls("".join(sorted(set(text))))

    @property
    def vocab_size(self) -> int:
        """How many characters the alphabet has."""
        return len(self.alphabet)

    def encode(self, text: str) -> list[int]:
        """Return the index of each character in the alphabet.

        Raises:
            ValueError: If the alphabet lacks one of them.
        """
        try:
            return [self._ids[character] for character in text]
        except KeyError:
            raise ValueError(self._missing(text)) from None

    def encode_tensor(self, text: str, *, first: int = 0) -> Int[Tensor, "N"]:
        """Return the index of each character, a hundred times as fast as ``encode``.

        Args:
            text: The text to encode.
            first: How many characters come before it, for the error message.

        Raises:
            ValueError: If the alphabet lacks one of them.
        """
        if not text:  # PyTorch reads no empty buffer
            return torch.empty(0, dtype=torch.int32)
        points = bytearray(text.encode("utf-32-le", "surrogatepass"))
        codes = torch.frombuffer(points, dtype=torch.int32)
        ids = self._table.index_select(0, codes)
        if (ids < 0).any():
            raise ValueError(self._missing(text, first))
        return ids

    @cached_property
    def _table(self) -> Tensor:
        """The index of every Unicode character in the alphabet; -1 if it is missing."""
        table = torch.full((0x110000,), -1, dtype=torch.int32)
        table[torch.tensor([*map(ord, self.alphabet)])] = torch.arange(
            self.vocab_size, dtype=torch.int32
        )
        return table

    def decode(self, ids: Iterable[int]) -> str:
        """Return the characters with these ids.

        Raises:
            ValueError: If an id is not in the alphabet.
        """
        return "".join([self.alphabet[token] for token in _checked(ids, self)])

    def to_dict(self) -> dict[str, object]:
        """Return the kind and the alphabet, for JSON."""
        return {"kind": self.kind, "alphabet": self.alphabet}

    def _missing(self, text: str, first: int = 0) -> str:
        known = self._ids
        places = [at for at, character in enumerate(text) if character not in known]
        missing = list(dict.fromkeys(text[at] for at in places))
        named = ", ".join(map(repr, missing[:5]))
        if len(missing) > 5:
            named += f" and {len(missing) - 5} more"
        shown = self.alphabet
        if len(shown) > 40:
            shown = f"{shown[:30]}...{shown[-7:]}"
        return (
            f"{named} (first at position {first + places[0]}) not in the alphabet "
            f"of {self.vocab_size} characters, {shown!r}"
        )


class WordTokenizer:
    """A tokenizer that numbers the words and marks of a small language.

    A token is a run of letters and digits, any other character that is not white space,
    or a line feed. Other white space is not kept: ``decode`` sets one space before each
    token, except before marks such as a full stop and at the start of a line.

    Args:
        vocabulary: The words, marks and line feed, each once.

    Raises:
        ValueError: If the vocabulary is empty, has a word twice, or has a text that is
            not one token.
    """

    kind = "words"

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._ids = {word: at for at, word in enumerate(self.vocabulary)}
        if not self.vocabulary:
            raise ValueError("vocabulary must have at least one word; it is empty")
        if len(self._ids) < len(self.vocabulary):
            twice = next(w for w in vocabulary if self.vocabulary.count(w) > 1)
            raise ValueError(f"{twice!r} occurs twice in the vocabulary")
        for word in self.vocabulary:
            if not _WORD.fullmatch(word):
                raise ValueError(f"{word!r} in the vocabulary is not one word or mark")

    @classmethod
    def from_text(cls, text: str) -> "WordTokenizer":
        """Make a tokenizer of the words and marks of ``text``, sorted.

        Raises:
            ValueError: If the text has none.
        """
        words = sorted({*_WORD.findall(text)})
        if not words:
            raise ValueError("the text has no words")
        return cls(words)

    @property
    def vocab_size(self) -> int:
        """How many words and marks the vocabulary has."""
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Return the index of each word and mark in the vocabulary.

        Raises:
            ValueError: If the vocabulary lacks one of them.
        """
        words = _WORD.findall(text)
        try:
            return [self._ids[word] for word in words]
        except KeyError:
            missing = [w for w in dict.fromkeys(words) if w not in self._ids]
            named = ", ".join(map(repr, missing[:5]))
            if len(missing) > 5:
                named += f" and {len(missing) - 5} more"
            shown = " ".join(self.vocabulary[-8:])
            raise ValueError(
                f"{named} not in the vocabulary of {self.vocab_size} words "
                f"(... {shown})"
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the words with these ids, with spaces between them.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        text = ""
        for token in _checked(ids, self):
            word = self.vocabulary[token]
            glued = not text or text[-1] == "\n" or word in _GLUED
            text += word if glued else f" {word}"
        return text

    def to_dict(self) -> dict[str, object]:
        """Return the kind and the vocabulary, for JSON."""
        return {"kind": self.kind, "vocabulary": [*self.vocabulary]}


# What a word tokenizer takes for one token, and what follows without a space.
_WORD = re.compile(r"\w+|[^\w\s]|\n")
_GLUED = frozenset("\n.,;:!?")


class BytePairTokenizer:
    """The tokenizer of a ``tokenizer.json``, such as GPT-2's or Llama's.

    It encodes a text alone, as training needs it. What the file's post-processor puts
    before a text, such as BOS, is in ``opening``; ``encode_prompt`` adds it. The file's
    truncation and padding do not apply.

    Args:
        definition: The content of such a file.

    Raises:
        ImportError: If the package ``tokenizers`` is not installed.
        ValueError: If ``definition`` does not describe a tokenizer.
    """

    kind = "byte pairs"

    def __init__(self, definition: str) -> None:
        package = _package()
        try:
            self._tokenizer = package.Tokenizer.from_str(definition)
        except Exception as error:  # the package raises no more specific type
            raise ValueError(f"definition is not a tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Ids may leave gaps, so that the largest counts.
        vocabulary = self._tokenizer.get_vocab()
        self._vocab_size = 1 + max(vocabulary.values(), default=-1)
        decoder = json.dumps(json.loads(definition).get("decoder"))
        self.byte_tokens = frozenset(
            token
            for text, token in vocabulary.items()
            if '"ByteFallback"' in decoder and _BYTE.fullmatch(text)
        )
        """Tokens for single bytes, of which ``decode`` reads a row as a whole."""
        self.opening = (*_opening(json.loads(definition).get("post_processor")),)
        """Tokens that the file's post-processor puts before a text, such as BOS."""

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
        return self._vocab_size

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without any that mark its start or end.

        Raises:
            ValueError: If the text has half a surrogate pair, which UTF-8 lacks, or
                something that the vocabulary lacks.
        """
        check_utf8(text)
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the package raises no more specific type
            lacks = f"the tokenizer's vocabulary lacks a part of the text: {error}"
            raise ValueError(lacks) from None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        return self._tokenizer.decode(_checked(ids, self), skip_special_tokens=False)

    @property
    def definition(self) -> dict[str, Any]:
        """The content of the ``tokenizer.json``."""
        return json.loads(self._tokenizer.to_str())

    def to_dict(self) -> dict[str, object]:
        """Return the kind and the definition, for JSON."""
        return {"kind": self.kind, "tokenizer": self.definition}


def _opening(processor: Mapping[str, Any] | None) -> Iterator[int]:
    """Yield what a post-processor puts before a text."""
    processor = processor or {}
    for part in processor.get("processors", ()):
        yield from _opening(part)
    for piece in processor.get("single", ()):  # of a template
        if "SpecialToken" not in piece:
            break
        yield from processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
    if "cls" in processor:  # of BERT and RoBERTa
        yield processor["cls"][1]


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text that a model is to read from its start.

    They begin with the tokenizer's ``opening``, if it has one: models such as Llama and
    Gemma were trained on texts that begin with BOS.

    Raises:
        ValueError: If the tokenizer cannot encode the text.
    """
    return [*getattr(tokenizer, "opening", ()), *tokenizer.encode(text)]


def bpe_tokenizer(text: str | Iterable[str], vocab_size: int) -> BytePairTokenizer:
    """Return a byte-pair tokenizer trained on a text.

    Start with the 256 bytes. Merge the most frequent pair of neighbors into a new
    token, and repeat until there are ``vocab_size`` tokens or no pair occurs twice. Any
    text can be encoded, if necessary in single bytes.

    Only the first 16 million characters count, and words of more than 256 bytes are
    cut, so that any text can be learned from in a short time, even one without spaces.

    Args:
        text: The text, or the pieces of one that does not fit in memory.
        vocab_size: How many tokens there may be.

    Raises:
        ImportError: If the package ``tokenizers`` is not installed.
        ValueError: If ``vocab_size`` is less than 256, or ``text`` is empty.

    Source: Sennrich et al., 2016, "Neural Machine Translation of Rare Words with
    Subword Units", section 3.2; on bytes: Radford et al., 2019, "Language Models are
    Unsupervised Multitask Learners", section 2.2.
    """
    if vocab_size < 256:
        raise ValueError(f"vocab_size={vocab_size} must be at least 256, for the bytes")
    if not text:
        raise ValueError("the text is empty: it has no pairs")
    package = _package()
    splitters = package.pre_tokenizers
    byte_level = splitters.ByteLevel(add_prefix_space=False)
    short = package.Regex(f".{{1,{_LONGEST_WORD}}}")
    tokenizer = package.Tokenizer(package.models.BPE())
    tokenizer.pre_tokenizer = splitters.Sequence(
        [byte_level, splitters.Split(short, "isolated")]
    )
    tokenizer.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    lines = _lines([text] if isinstance(text, str) else text)
    _in_thread(lambda: tokenizer.train_from_iterator(lines, trainer))
    tokenizer.pre_tokenizer = byte_level
    return BytePairTokenizer(tokenizer.to_str())


def _in_thread(learn: Callable[[], None]) -> None:
    """Wait for a function in a thread, so that Ctrl-C arrives: the package is deaf."""
    # Not a thread's join: in Python 3.11, a thread counts as ended if Ctrl-C ends that.
    done = Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            learn()
        except BaseException as error:
            failed.append(error)
        done.set()

    atexit.register(_end_unless, done)
    Thread(target=run, daemon=True).start()
    while not done.wait(0.2):
        pass
    if failed:
        raise failed[0]


def _end_unless(done: Event) -> None:
    """End at once: a thread that is in the package when Python ends would crash it."""
    if not done.is_set():
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(130)


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    left = _LEARNED
    for piece in pieces:
        yield from piece[:left].splitlines(keepends=True)
        left -= len(piece)
        if left <= 0:
            return


# Matches up to the last word that white space follows.
_LAST_WORD = re.compile(r".*\S(?=[ \n])", re.DOTALL)


def between_words(pieces: Iterable[str]) -> Iterator[str]:
    """Cut a text before white space, where tokens of several characters end too.

    A text without white space is cut after each 65,536 characters, to bound the memory.
    """
    rest = ""
    for piece in pieces:
        rest += piece
        match = _LAST_WORD.match(rest)
        if match:
            yield match[0]
            rest = rest[match.end() :]
        while len(rest) >= _SLICE:
            yield rest[:_SLICE]
            rest = rest[_SLICE:]
    if rest:
        yield rest


def check_utf8(text: str, name: str = "") -> None:
    """Refuse half a surrogate pair, which Python puts for a byte that is no UTF-8.

    Raises:
        ValueError: If there is one; the message begins with ``name``.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}{text[error.start]!r} (at position {error.start}) is not a "
            "character: the text must be UTF-8"
        ) from None


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ImportError(
            "byte pairs need the package tokenizers: "
            'pip install "tested-transformer[bpe]"'
        ) from None
    return tokenizers


def tokenizer_from_dict(data: Mapping[str, object]) -> Tokenizer:
    """Return the tokenizer that a ``to_dict`` describes.

    Raises:
        ValueError: If ``data`` does not describe a tokenizer.
    """
    if not isinstance(data, Mapping):  # whatever a JSON file has
        raise ValueError(f"{data!r} is not the description of a tokenizer")
    kind = data.get("kind")
    if kind == CharTokenizer.kind:
        alphabet = data.get("alphabet")
        if not isinstance(alphabet, str):
            raise ValueError(f"alphabet={alphabet!r} must be a string")
        return CharTokenizer(alphabet)
    if kind == WordTokenizer.kind:
        vocabulary = data.get("vocabulary")
        if not isinstance(vocabulary, list):
            raise ValueError(f"vocabulary={vocabulary!r} must be a list of words")
        return WordTokenizer(vocabulary)
    if kind == BytePairTokenizer.kind:
        return BytePairTokenizer(json.dumps(data.get("tokenizer")))
    raise ValueError(
        f"kind={kind!r} must be {CharTokenizer.kind!r}, {WordTokenizer.kind!r} or "
        f"{BytePairTokenizer.kind!r}"
    )


def _checked(ids: Iterable[int], tokenizer: Tokenizer) -> list[int]:
    ids = list(ids)
    most = tokenizer.vocab_size - 1
    for token in ids:
        if not 0 <= token <= most:
            raise ValueError(f"token id {token} must lie between 0 and {most}")
    return ids
