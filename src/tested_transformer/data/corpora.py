"""Texts to train on: made here, found on this machine, fetched, or the reader's own."""

import hashlib
import os
import sysconfig
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tested_transformer.data.files import write_whole
from tested_transformer.data.stories import story_entropy, write_stories

__all__ = ["CORPORA", "Corpus", "load_corpus"]


# --8<-- [start:corpus]
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


# --8<-- [end:corpus]


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


# --8<-- [start:load]
def load_corpus(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    num_characters: int | None = None,
    cache_folder: str | Path | None = None,
) -> Corpus:
    """Return a text to train on.

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
        ValueError: If a text is empty, is not UTF-8 or not the one that was meant.
    """
    if num_characters is not None and num_characters < 1:
        raise ValueError(f"num_characters={num_characters} must be positive")
    name = str(name_or_path)
    if name == "grammar" and not isinstance(name_or_path, Path):
        stories = write_stories(num_characters or 1_000_000, seed=seed)
        origin = f"a grammar, seed {seed}"
        return Corpus(
            name=name, text=stories.text, origin=origin, entropy=story_entropy()
        )
    if isinstance(name_or_path, Path) or name not in CORPORA:
        path = Path(name_or_path).expanduser()
        text, origin = _read_file(path, name), str(path)
    elif name == "stdlib":
        text, origin = _standard_library()
    else:
        text, origin = _fetch(name, _folder(cache_folder))
    return Corpus(name=name, text=text[:num_characters], origin=origin)


# --8<-- [end:load]


def _read_file(path: Path, name: str) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no file {name!r}, and no corpus of that name; "
            f"wanted a path, or one of {', '.join(CORPORA)}"
        ) from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{name!r} is a folder, and not a text file") from None
    return _decode(data, name)


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A mark of the byte order, which the decoder takes away, is 3 bytes long.
        at = error.start + 3 * data.startswith(b"\xef\xbb\xbf")
        raise ValueError(
            f"{name!r} is not UTF-8: byte 0x{data[at]:02x} at offset {at}"
        ) from None
    if not text:
        raise ValueError(f"{name!r} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --8<-- [start:stdlib]
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


# --8<-- [end:stdlib]


def _folder(cache_folder: str | Path | None) -> Path:
    if cache_folder is not None:
        return Path(cache_folder)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tested-transformer"


# --8<-- [start:fetch]
def _fetch(name: str, folder: Path) -> tuple[str, str]:
    """Return a text from the folder of fetched ones, or fetch it there first."""
    download = _DOWNLOADS[name]
    path = folder / download.file
    if not path.exists():
        data = _get(name, download)
        _check(data, download, download.address, "nothing was kept")
        write_whole(path, [data])
    data = path.read_bytes()
    _check(data, download, str(path), "delete it, and it is fetched anew")
    return _decode(data, str(path)), str(path)


def _get(name: str, download: _Download) -> bytes:
    try:
        with urllib.request.urlopen(download.address, timeout=30) as answer:
            return answer.read()
    except (OSError, HTTPException) as error:
        raise ConnectionError(
            f"{name} cannot be fetched ({getattr(error, 'reason', error)}): "
            f"get {download.address} elsewhere and give the path of the file instead"
        ) from None


def _check(data: bytes, download: _Download, where: str, advice: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != download.sha256:
        raise ValueError(
            f"{where} is not the text that was meant: its sha256 is {found[:12]}..., "
            f"and {download.sha256[:12]}... was wanted; {advice}"
        )


# --8<-- [end:fetch]
