"""Save checkpoints atomically: completely or not at all, even if the run is killed.

First the new tensor files are written next to the old ones. Then ``checkpoint.json`` is
replaced by one that names the new files, in a single step of the file system. Only then
are the old files removed. Each step reaches the disk before the next one begins.
Tensors are stored as safetensors, which contain nothing that could be executed.
"""

import errno
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from tested_transformer.checkpoints.configs import (
    CheckpointError,
    describe_config,
    read_config,
    read_json,
)
from tested_transformer.gpt import GPT, GPTConfig

if sys.platform == "win32":  # which has no flock, so folders are not locked
    flock = None
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

__all__ = [
    "MANIFEST",
    "CheckpointWriter",
    "FileRecord",
    "Manifest",
    "check_fit",
    "save_checkpoint",
    "write_tensors",
]

MANIFEST = "checkpoint.json"
_FORMAT = "tested-transformer checkpoint"
_VERSION = 1
_TENSOR_FILE = re.compile(r"(model|training)-[0-9a-f]{16}\.safetensors")
_LOCK = ".lock"
_UNFINISHED = ".unfinished"
_SHOWN = 3


@dataclass(frozen=True)
class FileRecord:
    """The expected name, size and checksum of a file."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of ``checkpoint.json``: the names of the tensor files, and the rest.

    The name of a tensor file contains its hash, so new files never overwrite old ones.
    The manifest says which of them count, so replacing it replaces the checkpoint.

    Args:
        config: The settings of the model.
        settings: Other settings of the run by name, such as tokenizer, recipe and text.
        training: The JSON part of the training state, if the run can resume.
        files: ``model``, the file of the model's weights, and, if the run can resume,
            ``training``, the file of the optimizer's state.
    """

    config: GPTConfig
    settings: dict[str, Any]
    training: dict[str, Any] | None
    files: dict[str, FileRecord]

    def to_text(self) -> str:
        """Return the JSON text, with its own hash as the last entry.

        Raises:
            ValueError: If JSON would change ``settings`` or ``training``.
        """
        for name in ("settings", "training"):
            _check_json(name, getattr(self, name))
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "config": describe_config(self.config),
            "settings": self.settings,
            "training": self.training,
            "files": {kind: asdict(record) for kind, record in self.files.items()},
        }
        content["sha256"] = _hash(content)
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: bytes, path: Path) -> "Manifest":
        """Read what ``to_text`` returned.

        Args:
            text: The content of the file.
            path: The path of the file, for error messages.

        Raises:
            CheckpointError: If it is not a checkpoint, has another version, or was
                altered.
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
            raise CheckpointError(f"{path} was altered: its sha256 does not match")
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
            raise CheckpointError(f"{path} names an unexpected file, {foreign[0]!r}")
        return cls(read_config(values, path), settings, training, files)


class CheckpointWriter:
    """A folder to save checkpoints to, locked against other runs until ``close``.

    The folder is created if necessary, and holds only the latest checkpoint. Use
    ``with CheckpointWriter(folder) as writer:`` to close it automatically. The lock
    also ends when the process ends, even if it is killed.

    Args:
        folder: Where to save.

    Raises:
        CheckpointError: If another run is saving there.
        OSError: If the folder cannot be created or written to.
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
            pass  # some network disks have no locks

    def save(
        self,
        *,
        config: GPTConfig,
        weights: Mapping[str, Tensor],
        settings: Mapping[str, Any] | None = None,
        training: tuple[Mapping[str, Tensor], dict[str, Any]] | None = None,
    ) -> None:
        """Save a checkpoint, and replace the previous one.

        Args:
            config: The settings of the model.
            weights: Its ``state_dict()``.
            settings: Other settings of the run by name, such as tokenizer, recipe and
                text, in types that JSON can represent.
            training: The state of the run, in tensors and in values for JSON; ``None``
                if the run need not resume.

        Raises:
            CheckpointError: If the weights are not those of such a model.
            OSError: If the disk is full, or cannot be written for another reason. The
                previous checkpoint is still intact.
            TypeError: If safetensors does not support the type of a tensor.
            ValueError: If ``settings`` or ``training`` cannot be represented in JSON,
                or the writer is closed.
        """
        if self._lock is None:
            raise ValueError(f"the writer for {self.folder} is closed")
        like = GPT(config, device="meta").state_dict()
        check_fit(like, weights, "the model to save")
        tensors, values = training or (None, None)
        try:
            # A full disk may be full of files that a killed run left behind.
            self._remove_leftovers()
            files = {"model": self._write("model", weights)}
            if tensors is not None:
                files["training"] = self._write("training", tensors)
            manifest = Manifest(config, dict(settings or {}), values, files)
            self._exchange(manifest.to_text())
        except OSError as error:
            what = "the checkpoint was not saved; the previous one is unchanged"
            raise _explained(error, what, self.folder) from error
        finally:
            self._remove_leftovers()

    def close(self) -> None:
        """Release the lock, so that other runs can save to the folder."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "CheckpointWriter":
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the writer."""
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
        # The tensor files' names must reach the disk before the manifest with them.
        _sync_folder(self.folder)
        os.replace(unfinished, self.folder / MANIFEST)
        _sync_folder(self.folder)

    # --8<-- [end:exchange]

    def _remove_leftovers(self) -> None:
        """Remove files of a writer that the checkpoint does not name."""
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
            # Leftover files do no harm. And if the manifest cannot be read, they may be
            # all that is left of a checkpoint.
            pass


def save_checkpoint(
    folder: str | Path,
    *,
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any] | None = None,
    training: tuple[Mapping[str, Tensor], dict[str, Any]] | None = None,
) -> None:
    """Save one checkpoint to a folder; see ``CheckpointWriter`` for arguments."""
    with CheckpointWriter(folder) as writer:
        writer.save(
            config=config, weights=weights, settings=settings, training=training
        )


def check_fit(
    expected: Mapping[str, Tensor], weights: Mapping[str, Tensor], origin: str
) -> None:
    """Compare the names and shapes of weights.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape.
    """
    wrong = [f"{name} is missing" for name in expected if name not in weights]
    wrong += [f"{name} is unknown" for name in weights if name not in expected]
    wrong += [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if wrong:
        more = len(wrong) - _SHOWN
        shown = "; ".join(wrong[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise CheckpointError(
            f"{origin} does not have the weights that its settings require: {shown}"
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileRecord:
    """Write tensors to a file, and wait until they have reached the disk.

    Raises:
        OSError: If the file cannot be written.
        TypeError: If safetensors does not support the type of a tensor.
    """
    dense: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        # safetensors refuses tensors that share memory.
        dense[name] = tensor.clone() if memory in memories else tensor
        memories.add(memory)
    try:
        data = safetensors.torch.save(dense, {"format": "pt"})
    except KeyError as error:  # safetensors does not know the type
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


def _make_folder(folder: Path) -> None:
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in new:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder have reached the disk."""
    if os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network disks cannot sync a folder
            raise
    finally:
        os.close(handle)


def _explained(error: OSError, what: str, folder: Path) -> OSError:
    """Return an error with the same number that explains what it means."""
    return OSError(error.errno, f"{what}: {error.strerror or error}", str(folder))
