"""Texts to train on: made here, found on this machine, fetched, or the reader's own."""

import codecs
import hashlib
import io
import os
import secrets
import sysconfig
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from tested_transformer.data.stories import story_entropy, write_stories

__all__ = [
    "CORPORA",
    "Corpus",
    "Source",
    "cache_path",
    "find_source",
    "load_corpus",
    "one_character",
    "whole_file",
]

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A text and where it is from.

    Args:
        name: The name or the path it was asked for by.
        text: All of it; each line ends with one line feed, whatever the file has.
        origin: Where it is from: a path, a folder, or how it was made.
        entropy: In nats per character, where it is known exactly: no honest model has
            a lower loss on text it was not trained on.
    """

    name: str
    text: str
    origin: str
    entropy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text that is read piece by piece, so that it may be larger than the memory.

    Args:
        name: The name or the path it was asked for by.
        origin: Where it is from.
        pieces: Called to read it, from its beginning.
        file: The file that it is read from, if it is one.
        entropy: As of a ``Corpus``.
    """

    name: str
    origin: str
    pieces: Callable[[], Iterator[str]]
    file: Path | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class _Download:
    address: str
    sha256: str
    file: str


_DOWNLOADS = {
    "shakespeare": _Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
        "tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        "tinyshakespeare.txt",
    ),
    "names": _Download(
        "https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",
        "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
        "names.txt",
    ),
}

CORPORA = ("grammar", "stdlib", *_DOWNLOADS)
"""The names that `load_corpus` knows; all but the first two are downloaded."""


def load_corpus(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
) -> Corpus:
    """Return a text to train on, whole; ``load_tokens`` is for those of 100 MB.

    - ``grammar``: stories written on the spot, with ``write_stories``; needs nothing.
    - ``stdlib``: the source text of this Python's own modules, megabytes of it.
    - ``shakespeare``: tiny Shakespeare, fetched once and kept.
    - ``names``: 32,033 names, one a line, fetched once and kept.
    - the path of a text file; one that is called as a corpus is given as
      ``./names``, or as a ``Path``.

    Args:
        name_or_path: Which text.
        seed: Of ``grammar``; the others are always the same.
        num_characters: How long a text is wanted: ``grammar`` writes at least as much,
            a million by default, and the others are cut there.
        cache_folder: Where fetched texts are kept; ``tested-transformer`` in
            ``$XDG_CACHE_HOME`` or in ``~/.cache`` by default.

    Raises:
        FileNotFoundError: If there is no such corpus and no such file.
        ConnectionError: If a text cannot be fetched.
        OSError: If a file cannot be read or written.
        ValueError: If a text is empty, is one character again and again, is not UTF-8
            or not the one that was meant.
    """
    source = find_source(
        name_or_path,
        seed=seed,
        num_characters=num_characters,
        cache_folder=cache_folder,
    )
    text = "".join(source.pieces())
    if text.count(text[0]) == len(text):
        raise ValueError(one_character(source.name, text[0]))
    return Corpus(
        name=source.name, text=text, origin=source.origin, entropy=source.entropy
    )


def one_character(name: str, character: str) -> str:
    """Return what is wrong with a text that has one character again and again."""
    return f"{name!r} has no character but {character!r}: there is nothing to predict"


def find_source(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
) -> Source:
    """Find a text, and fetch it if need be, to be read piece by piece.

    Arguments and errors are those of ``load_corpus``; what is wrong with a file is
    found when it is read.
    """
    if num_characters is not None and num_characters < 1:
        raise ValueError(f"num_characters={num_characters} must be positive")
    name, text, file, entropy = str(name_or_path), "", None, None
    if isinstance(name_or_path, Path) or name not in CORPORA:
        file = Path(name_or_path).expanduser()
        origin = str(file)
    elif name == "grammar":
        text = write_stories(num_characters or 1_000_000, seed=seed).text
        origin, entropy = f"a grammar, seed {seed}", story_entropy()
        num_characters = None
    elif name == "stdlib":
        text, origin = _standard_library()
    else:
        path = _fetch(name, cache_path(cache_folder))
        text, origin = path.read_text("utf-8"), str(path)

    def pieces() -> Iterator[str]:
        if file is not None:
            whole = _decoded(_read(file, name), name)
        else:
            whole = (text[i : i + _PIECE] for i in range(0, len(text), _PIECE))
        return whole if num_characters is None else _first(whole, num_characters)

    return Source(name=name, origin=origin, pieces=pieces, file=file, entropy=entropy)


def _read(path: Path, name: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {name!r}, and no corpus of that name; "
            f"wanted a path, or one of {', '.join(CORPORA)}"
        ) from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{name!r} is a folder, and not a text file") from None


def _decoded(data: Iterable[bytes], name: str) -> Iterator[str]:
    """Decode UTF-8 and make every line end a line feed, piece by piece."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    read, length = 0, 0
    for piece in chain(data, [b""]):
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            # It has what was left of the piece before, too.
            at = read + len(piece) - len(error.object) + error.start
            raise ValueError(
                f"{name!r} is not UTF-8: byte 0x{error.object[error.start]:02x} "
                f"at offset {at}"
            ) from None
        if not read:
            text = text.removeprefix("\ufeff")  # a mark of the byte order
        read, length = read + len(piece), length + len(text)
        if text:
            yield text
    if not length:
        raise ValueError(f"{name!r} is empty")


def _first(pieces: Iterable[str], num_characters: int) -> Iterator[str]:
    for piece in pieces:
        yield piece[:num_characters]
        num_characters -= len(piece)
        if num_characters <= 0:
            return


def _standard_library() -> tuple[str, str]:
    """Return the modules of this Python that lie in the open, in alphabetical order.

    Only plain ASCII, so that the alphabet stays small, and nothing that was made when
    this Python was built, which differs from machine to machine.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = [
        file.read_bytes()
        for file in sorted(folder.glob("*.py"))
        if not file.name.startswith(("_sysconfigdata", "sitecustomize"))
    ]
    text = "\n".join(data.decode("ascii") for data in files if data.isascii())
    if not text:
        raise ValueError(f"there is no source text of Python in {folder}")
    return text.replace("\r\n", "\n"), str(folder)


def cache_path(cache_folder: str | Path | None) -> Path:
    """Return where files are kept that can be made or fetched again."""
    if cache_folder is not None:
        return Path(cache_folder)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tested-transformer"


def _fetch(name: str, folder: Path) -> Path:
    """Return the file of a text that was fetched, now or before."""
    download = _DOWNLOADS[name]
    path = folder / download.file
    if path.exists():
        advice = "delete it, and it is fetched anew"
        _check(path.read_bytes(), download, str(path), advice)
        return path
    try:
        with urllib.request.urlopen(download.address, timeout=30) as answer:
            data = answer.read()
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"{name} cannot be fetched ({getattr(error, 'reason', error)}): "
            f"get {download.address} elsewhere and give the path of the file instead"
        ) from None
    _check(data, download, download.address, "nothing was kept")
    with whole_file(path) as file:
        file.write(data)
    return path


def _check(data: bytes, download: _Download, where: str, advice: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != download.sha256:
        raise ValueError(
            f"{where} is not the text that was meant: its sha256 is {found[:12]}..., "
            f"and {download.sha256[:12]}... was wanted; {advice}"
        )


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Write a file so that whoever opens it finds the old content or all of the new.

    What is written goes to a file beside it, reaches the disk, and only then takes its
    name. If anything fails on the way, nothing is left behind.

    Raises:
        OSError: If the folder cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
