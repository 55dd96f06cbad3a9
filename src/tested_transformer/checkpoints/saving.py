"""Checkpoints written whole or not at all, whenever the run is killed.

First the new files of tensors are written beside the old ones, then ``checkpoint.json``
is exchanged for one that names them, in a single step of the file system, and only
then the old ones go. Each step has reached the disk before the next one begins. The
tensors are safetensors, which hold names and numbers, and nothing to execute.
"""

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from tested_transformer.gpt import GPTConfig

if sys.platform == "win32":  # There, nobody is refused.
    flock = None
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

__all__ = [
    "MANIFEST",
    "CheckpointError",
    "CheckpointWriter",
    "FileRecord",
    "Manifest",
    "read_config",
    "read_json",
    "save_checkpoint",
    "write_tensors",
]

MANIFEST = "checkpoint.json"
_FORMAT = "tested-transformer checkpoint"
_VERSION = 1
_TENSOR_FILE = re.compile(r"(model|training)-[0-9a-f]{16}\.safetensors")
_LOCK = ".lock"
_UNFINISHED = ".unfinished"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or a folder that another run is saving to.

    The message names the file, and what is wrong with it.
    """


@dataclass(frozen=True)
class FileRecord:
    """What a file has to be: its name, how many bytes, and which."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What ``checkpoint.json`` says: it names the files of tensors, and has the rest.

    Tensor files carry their hash in their name, so one never takes another's place.
    Which of them count, this file says: to replace it is to replace the checkpoint.

    Args:
        config: What the model is made of.
        settings: What else the run was made with, by name: tokenizer, recipe, text.
        training: What JSON can hold of where the run stands, if it is to go on.
        files: The file of the model's weights, ``model``, and, if the run is to go
            on, that of what its optimizer remembers, ``training``.
    """

    config: GPTConfig
    settings: dict[str, Any]
    training: dict[str, Any] | None
    files: dict[str, FileRecord]

    def to_text(self) -> str:
        """Return the JSON, with a hash of it as its last entry.

        Raises:
            ValueError: If ``settings`` or ``training`` would not come back the same.
        """
        for name in ("settings", "training"):
            _check_json(name, getattr(self, name))
        content = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        content["sha256"] = _hash(content)
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: bytes, path: Path) -> "Manifest":
        """Read what ``to_text`` returned.

        Args:
            text: The content of the file.
            path: Where it is from, for the message of an error.

        Raises:
            CheckpointError: If it is something else, of another version, or altered.
        """
        content = read_json(path, text)
        if content.get("format") != _FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint of this library")
        if content.get("version") != _VERSION:
            raise CheckpointError(
                f"{path} is of version {content.get('version')!r}; "
                f"this library reads version {_VERSION}"
            )
        if content.pop("sha256", None) != _hash(content):
            raise CheckpointError(f"{path} was altered: its sha256 is another")
        try:
            records = content["files"].items()
            files = {kind: FileRecord(**record) for kind, record in records}
            names = [record.file for record in (files["model"], *files.values())]
            foreign = [name for name in names if not _TENSOR_FILE.fullmatch(name)]
            values, settings = content["config"], content["settings"]
            training = content["training"]
        except (AttributeError, KeyError, TypeError):
            raise CheckpointError(f"{path} is not a complete checkpoint") from None
        if foreign:
            raise CheckpointError(f"{path} names a file {foreign[0]!r}")
        return cls(read_config(values, path), settings, training, files)


def read_json(path: Path, text: bytes | None = None) -> dict[str, Any]:
    """Return what a file of JSON says, or what it said when ``text`` was read of it.

    Raises:
        CheckpointError: If it is cut short, or something else.
    """
    try:
        content = json.loads(path.read_bytes() if text is None else text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is cut short or not JSON") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no settings")
    return content


def read_config(values: Mapping[str, Any], path: Path) -> GPTConfig:
    """Make a configuration of what a file says; what it does not say is as by default.

    Args:
        values: Fields of ``GPTConfig``, by name. Files that were written before a
            field was added lack it.
        path: Which file, for the message of an error.

    Raises:
        CheckpointError: If this library knows no such model.
    """
    unknown = sorted(values.keys() - {field.name for field in fields(GPTConfig)})
    if unknown:
        raise CheckpointError(
            f"{path}: config has {', '.join(unknown)}, which this library does not know"
        )
    try:
        return GPTConfig(**{name: _tuples(value) for name, value in values.items()})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: config: {error}") from None


class CheckpointWriter:
    """A folder to save to, refused to all others until ``close``.

    It is made if it is not there, and holds one checkpoint, the latest. Written as
    ``with CheckpointWriter(folder) as writer:``, it closes by itself; and the lock ends
    with the process, however that ends.

    Args:
        folder: Where to save.

    Raises:
        CheckpointError: If another run is saving there.
        OSError: If the folder cannot be made, or not be written to.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._lock: int | None = None
        try:
            _make_folder(self.folder)
            self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            what = "nothing can be saved there"
            raise _explained(error, what, self.folder) from error
        try:
            if flock is not None:
                flock(self._lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            self.close()
            raise CheckpointError(
                f"{self.folder} is in use: another run is saving there"
            ) from None
        except OSError:
            pass  # Some network disks know no locks; there, nobody is refused.

    def save(
        self,
        *,
        config: GPTConfig,
        weights: Mapping[str, Tensor],
        settings: Mapping[str, Any] | None = None,
        training: tuple[Mapping[str, Tensor], dict[str, Any]] | None = None,
    ) -> None:
        """Save a checkpoint in the place of the one before.

        Args:
            config: What the model is made of.
            weights: Its ``state_dict()``.
            settings: What else the run was made with, by name, as JSON can hold it:
                tokenizer, recipe, text.
            training: Where the run stands, as tensors and as JSON can hold it; nothing
                if it is not to go on.

        Raises:
            OSError: If the disk is full, or cannot be written for another reason. The
                checkpoint before is still there, and whole.
            TypeError: If safetensors cannot hold the numbers of a tensor.
            ValueError: If ``settings`` or ``training`` is nothing for JSON, or the
                writer is closed.
        """
        if self._lock is None:
            raise ValueError(f"the writer for {self.folder} is closed")
        tensors, values = training or (None, None)
        try:
            # What a killed run left may be what fills the disk.
            self._remove_what_is_left()
            files = {"model": self._write("model", weights)}
            if tensors is not None:
                files["training"] = self._write("training", tensors)
            manifest = Manifest(config, dict(settings or {}), values, files)
            self._exchange(manifest.to_text())
        except OSError as error:
            what = "the checkpoint was not saved, and the one before is as it was"
            raise _explained(error, what, self.folder) from error
        finally:
            self._remove_what_is_left()

    def close(self) -> None:
        """Let others save to the folder."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "CheckpointWriter":
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write(self, kind: str, tensors: Mapping[str, Tensor]) -> FileRecord:
        unfinished = self.folder / (kind + _UNFINISHED)
        written = write_tensors(unfinished, tensors)
        name = f"{kind}-{written.sha256[:16]}.safetensors"
        os.replace(unfinished, self.folder / name)
        return FileRecord(name, written.bytes, written.sha256)

    # --8<-- [start:exchange]
    def _exchange(self, text: str) -> None:
        unfinished = self.folder / (MANIFEST + _UNFINISHED)
        with open(unfinished, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        # The names of the tensors' files reach the disk before what speaks of them.
        _sync_folder(self.folder)
        os.replace(unfinished, self.folder / MANIFEST)
        _sync_folder(self.folder)

    # --8<-- [end:exchange]

    def _remove_what_is_left(self) -> None:
        """Remove what the writer made and the checkpoint does not name."""
        path = self.folder / MANIFEST
        kept: set[str] = set()
        try:
            if path.exists():
                files = Manifest.from_text(path.read_bytes(), path).files
                kept = {record.file for record in files.values()}
            for file in self.folder.iterdir():
                ours = file.suffix == _UNFINISHED or _TENSOR_FILE.fullmatch(file.name)
                if ours and file.name not in kept:
                    file.unlink()
        except (OSError, CheckpointError):
            # What is not removed does no harm. And if the manifest cannot be read,
            # files that nothing names may be all there is left of a checkpoint.
            pass


def save_checkpoint(
    folder: str | Path,
    *,
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any] | None = None,
    training: tuple[Mapping[str, Tensor], dict[str, Any]] | None = None,
) -> None:
    """Save one checkpoint to a folder; arguments and errors as ``CheckpointWriter``."""
    with CheckpointWriter(folder) as writer:
        writer.save(
            config=config, weights=weights, settings=settings, training=training
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileRecord:
    """Write tensors to a file, and wait until they have reached the disk.

    Raises:
        OSError: If the file cannot be written.
        TypeError: If safetensors cannot hold the numbers of a tensor.
    """
    dense: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        # The package refuses two names for one memory.
        dense[name] = tensor.clone() if memory in memories else tensor
        memories.add(memory)
    try:
        data = safetensors.torch.save(dense, {"format": "pt"})
    except KeyError as error:  # By which the package says that it knows no such type.
        strange = [name for name, x in dense.items() if x.dtype == error.args[0]]
        raise TypeError(f"safetensors cannot hold {strange[0]}, {error}") from None
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(path.name, len(data), hashlib.sha256(data).hexdigest())


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_json(name: str, value: Any) -> None:
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be written as JSON: {error}") from None
    if not same:
        raise ValueError(
            f"{name} would not survive JSON: it holds tuples, or "
            "keys that are not strings"
        )


def _tuples(value: Any) -> Any:
    """Make tuples of lists, which are all that JSON has."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _make_folder(folder: Path) -> None:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":
        return  # Windows opens no folders.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some network disks cannot.
            raise
    finally:
        os.close(handle)


def _explained(error: OSError, what: str, folder: Path) -> OSError:
    """Return an error with the same number that says what it means."""
    return OSError(error.errno, f"{what}: {error.strerror or error}", str(folder))
