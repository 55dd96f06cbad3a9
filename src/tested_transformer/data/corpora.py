"""Texts to train on: generated, found on this machine, downloaded, or your own."""

import hashlib
import os
import secrets
import sys
import sysconfig
import urllib.request
from codecs import BOM_UTF8
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EISDIR
from http.client import HTTPException
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from tested_transformer.checks import validate_sizes
from tested_transformer.data.stories import FEW_NAMES, story_entropy, write_stories

__all__ = [
    "CORPORA",
    "Corpus",
    "Source",
    "cache_path",
    "check_text",
    "find_source",
    "load_corpus",
    "whole_file",
]

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A text and its origin.

    Args:
        name: The name or path that was asked for.
        text: The whole text. Lines end with a single line feed, whatever the file has.
        origin: Where it comes from: a path, a folder, or how it was generated.
        entropy: In nats per character, if it is known exactly. On average over new
            texts no honest model has a lower loss; on a single text one can, by chance.
    """

    name: str
    text: str
    origin: str
    entropy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text that is read piece by piece, so that it can be larger than memory.

    Args:
        name: The name or path that was asked for.
        origin: Where it comes from.
        file: The file to read, if there is one.
        content: The whole text in UTF-8, if there is no file.
        num_characters: Cut the text after this many; no limit by default.
        entropy: The same as for ``Corpus``.
    """

    name: str
    origin: str
    file: Path | None = None
    content: bytes = b""
    num_characters: int | None = None
    entropy: float | None = None

    def pieces(self) -> Iterator[str]:
        """Read the text from its beginning; errors are those of ``load_corpus``."""
        try:
            data = self.file.open("rb") if self.file else BytesIO(self.content)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no file {self.name!r}, and no corpus of that name; "
                f"wanted a path, or one of {', '.join(CORPORA)}"
            ) from None
        except IsADirectoryError:
            raise IsADirectoryError(
                f"{self.name!r} is a folder, not a text file"
            ) from None
        first, varied = "", False
        length, limit = 0, self.num_characters or sys.maxsize
        # Drop a byte order mark, and end each line with a single line feed.
        with TextIOWrapper(data, "utf-8-sig") as file:
            try:
                while piece := file.read(min(_PIECE, limit - length)):
                    length += len(piece)
                    first = first or piece[0]
                    varied = varied or bool(piece.strip(first))
                    yield piece
            except UnicodeDecodeError as error:
                # The bytes decoded last end where the file has been read to.
                at = data.tell() - len(error.object) + error.start
                wrong = error.object[error.start]
                raise ValueError(
                    f"{self.name!r} is not UTF-8: byte 0x{wrong:02x} at offset {at}"
                ) from None
        if not length:
            raise ValueError(f"{self.name!r} is empty")
        if not varied:
            raise ValueError(
                f"{self.name!r} has only the character {first!r}: "
                "there is nothing to predict"
            )


# For each text its address, its SHA-256, and the name of the cached file.
_DOWNLOADS = {
    "shakespeare": (
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
        "tinyshakespeare/input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        "tinyshakespeare.txt",
    ),
    "names": (
        "https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",
        "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
        "names.txt",
    ),
}

CORPORA = ("grammar", "stories", "stdlib", *_DOWNLOADS)
"""The names that `load_corpus` accepts; all but the first three are downloaded."""


def load_corpus(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
) -> Corpus:
    """Return a whole text to train on; for large files, use ``load_tokens``.

    - ``grammar``: stories generated on the spot by ``write_stories``.
    - ``stories``: the same with twelve names, for a model that reads whole words.
    - ``stdlib``: the source code of this Python's own modules, several megabytes.
    - ``shakespeare``: tiny Shakespeare, downloaded once and cached.
    - ``names``: 32,033 names, one per line, downloaded once and cached.
    - the path of a text file, or a pipe. If it has the name of a corpus, pass
      ``./names`` or a ``Path``.

    Args:
        name_or_path: The name of a corpus, or the path of a file.
        seed: The seed of ``grammar`` and ``stories``; other texts are always the same.
        num_characters: The length. ``grammar`` and ``stories`` write at least this many
            characters, a million by default; other texts are cut after this many.
        cache_folder: Where downloaded texts are kept; ``tested-transformer`` in
            ``$XDG_CACHE_HOME`` or in ``~/.cache`` by default.

    Raises:
        FileNotFoundError: If there is no such corpus and no such file.
        ConnectionError: If a text cannot be downloaded.
        OSError: If a file cannot be read or written.
        ValueError: If a text is empty, repeats a single character, is not UTF-8, or
            does not have the expected checksum.
    """
    source = find_source(
        name_or_path,
        seed=seed,
        num_characters=num_characters,
        cache_folder=cache_folder,
    )
    return Corpus(
        name=source.name,
        text="".join(source.pieces()),
        origin=source.origin,
        entropy=source.entropy,
    )


def find_source(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
) -> Source:
    """Find a text to read piece by piece, and download it if necessary.

    Arguments and errors are those of ``load_corpus``. Errors in a file are raised when
    it is read.
    """
    if num_characters is not None:
        validate_sizes(num_characters=num_characters)
    name = str(name_or_path)
    if isinstance(name_or_path, Path) or name not in CORPORA:
        file = Path(os.path.expanduser(name_or_path))
        if file.exists() and not file.is_file() and not file.is_dir():
            content = _read_pipe(file, num_characters)
            return Source(
                name=name, origin=name, content=content, num_characters=num_characters
            )
    elif name in ("grammar", "stories"):
        names = {"names": FEW_NAMES} if name == "stories" else {}
        stories = write_stories(num_characters or 1_000_000, seed=seed, **names)
        origin = f"a grammar, seed {seed}"
        content = stories.text.encode()
        entropy = story_entropy(*names.values())
        return Source(name=name, origin=origin, content=content, entropy=entropy)
    elif name == "stdlib":
        text, origin = _standard_library()
        content = text.encode()
        return Source(
            name=name, origin=origin, content=content, num_characters=num_characters
        )
    else:
        file = _fetch(name, cache_path(cache_folder))
    return Source(name=name, origin=str(file), file=file, num_characters=num_characters)


def _read_pipe(file: Path, num_characters: int | None) -> bytes:
    """Read what can be read only once; refuse what may have no end."""
    if not file.is_fifo():
        raise ValueError(f"{str(file)!r} is a device, not a text file")
    most = -1 if num_characters is None else 4 * num_characters + len(BOM_UTF8)
    with file.open("rb") as opened:
        return opened.read(most)


def _standard_library() -> tuple[str, str]:
    """Return the top-level modules of this Python, in alphabetical order.

    It takes only modules in plain ASCII, to keep the alphabet small, and skips files
    that were generated when this Python was built, which differ between machines.
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
    return text, str(folder)


def cache_path(cache_folder: str | Path | None) -> Path:
    """Return the folder for files that can be generated or downloaded again."""
    if cache_folder is not None:
        return Path(cache_folder)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tested-transformer"


def _fetch(name: str, folder: Path) -> Path:
    """Return the file of a downloaded text, downloading it if it is not cached."""
    address, sha256, file_name = _DOWNLOADS[name]
    path = folder / file_name
    if path.exists():
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
        check_text(str(path), actual, sha256, "; delete it to download it again")
        return path
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            data = answer.read()
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"{name} cannot be downloaded ({getattr(error, 'reason', error)}): "
            f"get {address} elsewhere and pass the path of the file"
        ) from None
    actual = hashlib.sha256(data).hexdigest()
    check_text(address, actual, sha256, "; nothing was kept")
    with whole_file(path) as file:
        file.write(data)
    return path


def check_text(name: str, actual: str, expected: str | None, advice: str = "") -> None:
    """Raise a ``ValueError`` if a text's SHA-256 is not the wanted one, if any."""
    if expected is not None and actual != expected:
        raise ValueError(
            f"{name} is not the expected text: its sha256 is {actual[:12]}...; "
            f"it must be {expected[:12]}...{advice}"
        )


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """Write a file atomically: readers see either the old content or all of the new.

    The content goes to a temporary file in the same folder, which is flushed to disk
    and then renamed. If anything fails, the temporary file is removed.

    Raises:
        OSError: If the folder cannot be written, or the disk is full, or ``path`` is a
            folder.
    """
    if path.is_dir():  # The error of the renaming would name the temporary file.
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
