"""Token ids in one to eight bytes each, on the disk, mapped into memory when needed.

A file of tokens is a line of JSON, filled up with spaces to 256 bytes, then the ids one
after the other, in as few bytes each as the vocabulary needs, and then what else is
known about them, in JSON.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from tested_transformer.data.corpora import (
    Source,
    cache_path,
    find_source,
    one_character,
    whole_file,
)
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    Tokenizer,
    bpe_tokenizer,
    tokenizer_from_dict,
)

__all__ = ["TokenizedCorpus", "load_tokens", "open_tokens", "save_tokens"]

_HEADER_SIZE = 256
_FORMAT = "tested-transformer tokens 1"
_DTYPES = {
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "int32": torch.int32,
    "int64": torch.int64,
}
# Smaller files are tokenized in less time than it takes to keep the result.
_KEPT_FROM = 1 << 24


@dataclass(frozen=True, kw_only=True)
class TokenizedCorpus:
    """The tokens of a text, and where it is from.

    Args:
        name: The name or the path it was asked for by.
        origin: Where it is from: a path, a folder, or how it was made.
        tokenizer: What the tokens are.
        tokens: All of them, in order, in one to eight bytes each.
        num_characters: How many characters the text has.
        sha256: The checksum of the text in UTF-8, each line ending with a line feed.
        entropy: In nats per character, where it is known exactly.
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
) -> TokenizedCorpus:
    """Return the tokens of a text that may be larger than the memory.

    The text is read piece by piece. The tokens of a file of 16 MiB or more are kept in
    the cache, whole or not at all, and mapped into memory from there. They are used
    again as long as the file has the same content; one that was changed is tokenized
    anew, and its tokens take the place of the old ones.

    Args:
        name_or_path: Which text, as for ``load_corpus``.
        tokenizer: The tokenizer; or ``"characters"`` for those that the text has, or
            ``"byte pairs"`` for those that are frequent in it.
        vocab_size: How many byte pairs, 1024 by default.
        sha256: What ``sha256`` of the result has to be.
        seed: As for ``load_corpus``.
        num_characters: As for ``load_corpus``.
        cache_folder: Where fetched texts and tokens are kept; ``tested-transformer``
            in ``$XDG_CACHE_HOME`` or in ``~/.cache`` by default.

    Raises:
        FileNotFoundError: If there is no such corpus and no such file.
        ConnectionError: If a text cannot be fetched.
        ImportError: If byte pairs are asked for without the package ``tokenizers``.
        OSError: If a file cannot be read.
        ValueError: If a text is empty, is one character again and again, is not UTF-8,
            is not the one that was meant, or the tokenizer lacks one of its characters.
    """
    wanted = _Wanted(tokenizer, vocab_size)
    source = find_source(
        name_or_path,
        seed=seed,
        num_characters=num_characters,
        cache_folder=cache_folder,
    )
    path, content = _place(source, wanted, num_characters, cache_folder)
    kept = None if path is None else _read_kept(path, content, wanted)
    if kept is None:
        kept = _prepare(source, wanted, sha256, path, content)
    tokens, about = kept
    _check_text(source.name, about["sha256"], sha256)
    if isinstance(tokenizer, str):
        tokenizer = tokenizer_from_dict(about["tokenizer"])
    return TokenizedCorpus(
        name=source.name,
        origin=source.origin,
        tokenizer=tokenizer,
        tokens=tokens,
        num_characters=about["characters"],
        sha256=about["sha256"],
        entropy=source.entropy,
    )


_Prepared = tuple[Tensor, dict[str, Any]]


class _Wanted:
    """Which tokenizer was asked for: one that is there, or one of a kind."""

    def __init__(self, tokenizer: Tokenizer | str, vocab_size: int | None) -> None:
        kinds = (CharTokenizer.kind, BytePairTokenizer.kind)
        self.ready = None if isinstance(tokenizer, str) else tokenizer
        if self.ready is not None:
            self.definition = self.ready.to_dict()
            self.kind = str(self.definition.get("kind"))
        elif tokenizer in kinds:
            self.definition, self.kind = None, tokenizer
        else:
            raise ValueError(
                f"tokenizer={tokenizer!r} must be a tokenizer, or one of "
                f"{', '.join(map(repr, kinds))}"
            )
        if vocab_size is not None and tokenizer != BytePairTokenizer.kind:
            raise ValueError(
                f"vocab_size={vocab_size} goes with tokenizer="
                f"{BytePairTokenizer.kind!r} alone"
            )
        self.vocab_size = vocab_size or 1024
        self.request = None if self.ready else [self.kind, vocab_size]

    def is_that_of(self, about: dict[str, Any]) -> bool:
        if self.ready is None:
            return about["request"] == self.request
        return about["tokenizer"] == self.definition

    def make(self, source: Source, alphabet: set[str]) -> Tokenizer:
        if self.ready is not None:
            return self.ready
        if self.kind == CharTokenizer.kind:
            return CharTokenizer("".join(sorted(alphabet)))
        return bpe_tokenizer(_between_words(source.pieces()), self.vocab_size)


def _place(
    source: Source,
    wanted: _Wanted,
    num_characters: int | None,
    cache_folder: str | Path | None,
) -> tuple[Path | None, str]:
    """Return where the tokens of a large file are kept, and the file's checksum."""
    file = source.file
    if file is None or not file.is_file() or file.stat().st_size < _KEPT_FROM:
        return None, ""
    with file.open("rb") as opened:
        content = hashlib.file_digest(opened, "sha256").hexdigest()
    # One place for all that the file ever holds, so that the cache does not grow.
    key = json.dumps([str(file.resolve()), num_characters, wanted.kind])
    name = f"{file.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.tokens"
    return cache_path(cache_folder) / "tokens" / name, content


def _read_kept(path: Path, content: str, wanted: _Wanted) -> _Prepared | None:
    """Return what is kept, if it is whole and is what would be prepared now."""
    try:
        tokens, about = _open(path)
    except (OSError, ValueError):
        return None
    if about.get("content") != content or not wanted.is_that_of(about):
        return None
    return tokens, about


def _prepare(
    source: Source, wanted: _Wanted, sha256: str | None, path: Path | None, content: str
) -> _Prepared:
    """Read the text once to know it, and once more for its tokens."""
    digest, characters, alphabet = hashlib.sha256(), 0, set[str]()
    for piece in source.pieces():
        digest.update(piece.encode())
        characters += len(piece)
        # What is known is taken out first: that is many times as fast as a set of all.
        alphabet.update(piece.translate(dict.fromkeys(map(ord, alphabet))))
    _check_text(source.name, digest.hexdigest(), sha256)
    if len(alphabet) == 1:
        raise ValueError(one_character(source.name, *alphabet))
    tokenizer = wanted.make(source, alphabet)
    about = {
        "content": content,
        "request": wanted.request,
        "characters": characters,
        "sha256": digest.hexdigest(),
        "tokenizer": tokenizer.to_dict(),
    }
    dtype = _dtype_for(tokenizer.vocab_size - 1)
    if path is not None:
        try:
            _write(path, _encode(source, tokenizer), dtype, about)
            return _open(path)
        except OSError:
            pass  # Nothing can be kept there; the memory will do.
    parts = [_narrowed(part, dtype) for part in _encode(source, tokenizer)]
    return torch.cat(parts), about


def _check_text(name: str, found: str, wanted: str | None) -> None:
    if wanted is not None and found != wanted:
        raise ValueError(
            f"{name!r} is not the text that was meant: its sha256 is {found[:12]}..., "
            f"and {wanted[:12]}... was wanted"
        )


def _encode(source: Source, tokenizer: Tokenizer) -> Iterator[Tensor]:
    if isinstance(tokenizer, CharTokenizer):
        read = 0
        for piece in source.pieces():
            yield tokenizer.encode_tensor(piece, first=read)
            read += len(piece)
    else:
        for piece in _between_words(source.pieces()):
            ids = tokenizer.encode(piece)
            if ids:
                yield torch.tensor(ids)


# The last place in a piece where white space follows a word.
_LAST_WORD = re.compile(r".*\S(?=[ \n])", re.DOTALL)


def _between_words(pieces: Iterable[str]) -> Iterator[str]:
    """Cut a text before white space: there, tokens of several characters end, too."""
    rest = ""
    for piece in pieces:
        rest += piece
        found = _LAST_WORD.match(rest)
        if found:
            yield found[0]
            rest = rest[found.end() :]
    if rest:
        yield rest


def save_tokens(path: str | Path, tokens: Integer[Tensor, "N"]) -> None:
    """Write token ids to a file for ``open_tokens``, whole or not at all.

    Raises:
        ValueError: If there are none, or one is negative.
        OSError: If the file cannot be written.
    """
    if not len(tokens):
        raise ValueError("there are no tokens to save")
    # Not every whole-number type of PyTorch can be compared.
    wide = tokens.detach().cpu().long()
    _write(Path(path), [wide], _dtype_for(int(wide.max())), None)


def open_tokens(path: str | Path, *, verify: bool = True) -> Integer[Tensor, "N"]:
    """Map the token ids of a file into memory; they are read when they are needed.

    Args:
        path: A file that ``save_tokens`` wrote.
        verify: Compare the checksum, which reads all of the file once.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not such a file, was cut short or altered, or is from a
            machine with another order of bytes.
    """
    return _open(Path(path), verify=verify)[0]


def _dtype_for(most: int) -> str:
    return next(n for n, dtype in _DTYPES.items() if most <= torch.iinfo(dtype).max)


def _narrowed(part: Tensor, dtype: str) -> Tensor:
    least, most = (int(extreme) for extreme in part.aminmax())
    if least < 0:
        raise ValueError(f"token ids must not be negative; the least is {least}")
    if most > torch.iinfo(_DTYPES[dtype]).max:
        raise ValueError(f"token id {most} is beyond what the vocabulary has")
    return part.to(_DTYPES[dtype])


def _write(
    path: Path, parts: Iterable[Tensor], dtype: str, about: dict[str, Any] | None
) -> None:
    digest, length = hashlib.sha256(), 0
    rest = b"" if about is None else json.dumps(about).encode()
    with whole_file(path) as file:
        file.seek(_HEADER_SIZE)
        for part in parts:
            data = _narrowed(part, dtype).numpy().data
            file.write(data)
            digest.update(data)
            length += len(part)
        file.write(rest)
        digest.update(rest)
        header: dict[str, Any] = {
            "format": _FORMAT,
            "dtype": dtype,
            "byteorder": sys.byteorder,
            "length": length,
            "sha256": digest.hexdigest(),
        }
        if rest:
            header["about"] = len(rest)
        file.seek(0)
        line = json.dumps(header).ljust(_HEADER_SIZE - 1) + "\n"
        file.write(line.encode("ascii"))


def _open(path: Path, *, verify: bool = True) -> _Prepared:
    with path.open("rb") as file:
        header = _read_header(file.read(_HEADER_SIZE), path)
        digest = hashlib.file_digest(file, "sha256") if verify else None
    if header["byteorder"] != sys.byteorder:
        raise ValueError(
            f"{path} is {header['byteorder']}-endian, and this machine is "
            f"{sys.byteorder}-endian"
        )
    dtype = _DTYPES[header["dtype"]]
    end = _HEADER_SIZE + header["length"] * dtype.itemsize
    wanted = end + header.get("about", 0)
    size = path.stat().st_size
    if size != wanted:
        raise ValueError(f"{path} has {size} bytes, and {wanted} were written")
    if digest and digest.hexdigest() != header["sha256"]:
        raise ValueError(f"{path} was altered: its sha256 is not that of its tokens")
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    about = json.loads(whole[end:].numpy().tobytes()) if size > end else {}
    return whole[_HEADER_SIZE:end].view(dtype), about


def _read_header(line: bytes, path: Path) -> dict[str, Any]:
    header: dict[str, Any] = {}
    try:
        header = json.loads(line)
        right = (
            header["format"] == _FORMAT
            and header["dtype"] in _DTYPES
            and isinstance(header["length"], int)
            and header["length"] > 0
            and {"byteorder", "sha256"} <= set(header)
        )
    except (ValueError, KeyError, TypeError):
        right = False
    if not right:
        raise ValueError(f"{path} is not a file of tokens, as save_tokens writes it")
    return header
