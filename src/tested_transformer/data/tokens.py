"""Tokenize texts that can be larger than memory, in one to eight bytes per token.

A large text is read piece by piece. Its tokens are cached in a file that is mapped into
memory: the ids, then a description in JSON, then the length of the description in eight
bytes, and the SHA-256 of everything before it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from tested_transformer.data.corpora import (
    Source,
    cache_path,
    check_text,
    find_source,
    whole_file,
)
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    between_words,
    bpe_tokenizer,
    tokenizer_from_dict,
)

__all__ = ["TokenizedCorpus", "load_tokens"]

_DTYPES = {
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "int32": torch.int32,
    "int64": torch.int64,
}
# Tokenizing a smaller file takes less time than caching the result.
_KEPT_FROM = 1 << 24


@dataclass(frozen=True, kw_only=True)
class TokenizedCorpus:
    """The tokens of a text, and its origin.

    Args:
        name: The name or path that was asked for.
        origin: Where it comes from: a path, a folder, or how it was generated.
        tokenizer: The tokenizer that made the tokens.
        tokens: All tokens in order, in one to eight bytes each.
        num_characters: How many characters the text has.
        sha256: The checksum of the text in UTF-8, with each line ending in a line feed.
        entropy: In nats per character, if it is known exactly.
    """

    name: str
    origin: str
    tokenizer: Tokenizer
    tokens: Integer[Tensor, "N"]
    num_characters: int
    sha256: str
    entropy: float | None = None


def load_tokens(
    name_or_path: str | Path,
    *,
    tokenizer: Tokenizer | str = CharTokenizer.kind,
    vocab_size: int | None = None,
    sha256: str | None = None,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
    tell: Callable[[int, int], object] | None = None,
) -> TokenizedCorpus:
    """Return the tokens of a text that can be larger than memory.

    The tokens of a file of 16 MiB or more are cached, and mapped into memory from
    there. They are reused as long as the content of the file stays the same, and
    replaced if it changes.

    Args:
        name_or_path: The name of a corpus, or the path of a file; see ``load_corpus``.
        tokenizer: A tokenizer; or ``"characters"`` for the characters of the text,
            ``"words"`` for its words, or ``"byte pairs"`` for its frequent pairs.
        vocab_size: The size of the vocabulary of byte pairs; 1024 by default.
        sha256: The expected checksum of the text.
        seed: See ``load_corpus``.
        num_characters: See ``load_corpus``.
        cache_folder: Where downloaded texts and tokens are kept; see ``load_corpus``.
        tell: Called now and then with the number of characters that have been turned
            into tokens, and the number of all.

    Raises:
        ImportError: If byte pairs are asked for without the package ``tokenizers``.
        ValueError: If the text does not have the expected checksum, or the tokenizer
            lacks one of its characters; and for the reasons of ``load_corpus``.
    """
    _check_tokenizer(tokenizer, vocab_size)
    source = find_source(
        name_or_path,
        seed=seed,
        num_characters=num_characters,
        cache_folder=cache_folder,
    )
    # Cached tokens are reused only if they match all of this.
    required: dict[str, Any] = {"byteorder": sys.byteorder}
    if isinstance(tokenizer, str):
        required["request"] = [tokenizer, vocab_size]
    else:
        required["tokenizer"] = tokenizer.to_dict()
    path, file = None, source.file
    if file is not None and file.is_file() and file.stat().st_size >= _KEPT_FROM:
        with file.open("rb") as opened:
            required["content"] = hashlib.file_digest(opened, "sha256").hexdigest()
        # One cache entry per path, so that changed contents do not pile up.
        key = json.dumps([str(file.resolve()), num_characters])
        name = f"{file.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.tokens"
        path = cache_path(cache_folder) / "tokens" / name
    kept = None if path is None else _open(path, required)
    tokens, about = kept or _prepare(
        source, tokenizer, vocab_size, sha256, path, required, tell
    )
    check_text(repr(source.name), about["sha256"], sha256)
    return TokenizedCorpus(
        name=source.name,
        origin=source.origin,
        tokenizer=(
            tokenizer_from_dict(about["tokenizer"])
            if isinstance(tokenizer, str)
            else tokenizer
        ),
        tokens=tokens,
        num_characters=about["characters"],
        sha256=about["sha256"],
        entropy=source.entropy,
    )


def _prepare(
    source: Source,
    tokenizer: Tokenizer | str,
    vocab_size: int | None,
    sha256: str | None,
    path: Path | None,
    about: dict[str, Any],
    tell: Callable[[int, int], object] | None,
) -> tuple[Tensor, dict[str, Any]]:
    """Read the text once for its alphabet and checksum, and again for its tokens."""
    digest, characters, alphabet = hashlib.sha256(), 0, set[str]()
    for piece in source.pieces():
        digest.update(piece.encode())
        characters += len(piece)
        # Removing known characters first is many times faster than set(piece).
        alphabet.update(piece.translate(dict.fromkeys(map(ord, alphabet))))
    check_text(repr(source.name), digest.hexdigest(), sha256)
    if tokenizer == CharTokenizer.kind:
        tokenizer = CharTokenizer("".join(sorted(alphabet)))
    elif tokenizer == WordTokenizer.kind:
        tokenizer = WordTokenizer.from_text("".join(source.pieces()))
    elif isinstance(tokenizer, str):
        pieces = between_words(source.pieces())
        tokenizer = bpe_tokenizer(pieces, vocab_size or 1024)
    most = tokenizer.vocab_size - 1
    about = {
        **about,
        "tokenizer": tokenizer.to_dict(),
        "characters": characters,
        "sha256": digest.hexdigest(),
        "dtype": next(n for n, d in _DTYPES.items() if most <= torch.iinfo(d).max),
    }
    if path is not None:
        with suppress(OSError):  # without a writable cache, keep them in memory
            _write(path, _encode(source, tokenizer, characters, tell), about)
        kept = _open(path, about)
        if kept is not None:
            return kept
    dtype = _DTYPES[about["dtype"]]
    parts = _encode(source, tokenizer, characters, tell)
    return torch.cat([part.to(dtype) for part in parts]), about


def _encode(
    source: Source,
    tokenizer: Tokenizer,
    characters: int,
    tell: Callable[[int, int], object] | None,
) -> Iterator[Tensor]:
    read = 0
    by_character = isinstance(tokenizer, CharTokenizer)
    for piece in source.pieces() if by_character else between_words(source.pieces()):
        if isinstance(tokenizer, CharTokenizer):
            yield tokenizer.encode_tensor(piece, first=read)
        else:
            yield _encode_words(tokenizer, piece)
        read += len(piece)
        if tell is not None:
            tell(read, characters)


def _encode_words(tokenizer: Tokenizer, piece: str) -> Tensor:
    ids = tokenizer.encode(piece)
    if ids and not 0 <= min(ids) <= max(ids) < tokenizer.vocab_size:
        raise ValueError(
            f"the tokenizer has ids from {min(ids)} to {max(ids)}; they must be "
            f"at least 0 and less than its vocab_size={tokenizer.vocab_size}"
        )
    return torch.tensor(ids, dtype=torch.int64)


def _write(path: Path, parts: Iterable[Tensor], about: dict[str, Any]) -> None:
    digest, dtype = hashlib.sha256(), _DTYPES[about["dtype"]]
    rest = json.dumps(about).encode()
    with whole_file(path) as file:
        for part in parts:
            data = part.to(dtype).numpy().tobytes()
            file.write(data)
            digest.update(data)
        rest += len(rest).to_bytes(8, "little")
        digest.update(rest)
        file.write(rest + digest.digest())


def _open(path: Path, required: dict[str, Any]) -> tuple[Tensor, dict[str, Any]] | None:
    """Map cached tokens into memory, if they are intact and match the request."""
    try:
        with path.open("rb") as file:
            left, digest = file.seek(-40, os.SEEK_END) + 8, hashlib.sha256()
            length = int.from_bytes(file.read(8), "little")
            expected = file.read()
            size = left - 8 - length
            file.seek(0)
            while left:
                data = file.read(min(left, 1 << 20))
                digest.update(data)
                left -= len(data)
            if digest.digest() != expected:
                return None
            file.seek(size)
            about = json.loads(file.read(length))
    except OSError:
        return None
    if {**about, **required} != about:
        return None
    mapped = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return mapped.view(_DTYPES[about["dtype"]]), about


def _check_tokenizer(tokenizer: Tokenizer | str, vocab_size: int | None) -> None:
    kinds = (CharTokenizer.kind, WordTokenizer.kind, BytePairTokenizer.kind)
    if isinstance(tokenizer, str) and tokenizer not in kinds:
        raise ValueError(
            f"tokenizer={tokenizer!r} must be a tokenizer, or one of "
            f"{', '.join(map(repr, kinds))}"
        )
    if vocab_size is not None and tokenizer != BytePairTokenizer.kind:
        raise ValueError(
            f"vocab_size={vocab_size} needs tokenizer={BytePairTokenizer.kind!r}"
        )
