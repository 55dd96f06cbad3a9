"""Checkpoints written whole or not at all, whenever the run is killed.

First the new files of tensors are written beside the old ones, then ``checkpoint.json``
is exchanged for one that names them, in a single step of the file system, and only
then the old ones go. Each step has reached the disk before the next one begins.
"""

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from tested_transformer.checkpoints.errors import CheckpointError
from tested_transformer.checkpoints.manifest import (
    MANIFEST,
    TENSOR_FILE,
    Manifest,
    tensor_file,
)
from tested_transformer.checkpoints.tensors import FileRecord, write_tensors
from tested_transformer.gpt import GPTConfig

if sys.platform == "win32":  # There, nobody is refused.
    flock = None
else:
    from fcntl import LOCK_EX, LOCK_NB, flock

__all__ = ["CheckpointWriter", "save_checkpoint"]

_LOCK = ".lock"
_UNFINISHED = ".unfinished"


# --8<-- [start:writer]
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
            raise _said(error, "nothing can be saved there", self.folder) from error
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

    # --8<-- [end:writer]

    # --8<-- [start:save]
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
            TypeError: If a tensor holds numbers that safetensors does not know.
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
            raise _said(error, what, self.folder) from error
        finally:
            self._remove_what_is_left()

    # --8<-- [end:save]

    def close(self) -> None:
        """Let others save to the folder."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    def __enter__(self) -> "CheckpointWriter":
        """Give the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write(self, kind: str, tensors: Mapping[str, Tensor]) -> FileRecord:
        unfinished = self.folder / (kind + _UNFINISHED)
        record = write_tensors(unfinished, tensors)
        name = tensor_file(kind, record.sha256)
        os.replace(unfinished, self.folder / name)
        return FileRecord(name, record.bytes, record.sha256)

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

    # --8<-- [start:remove]
    def _remove_what_is_left(self) -> None:
        """Remove what the writer made and the checkpoint does not name."""
        path = self.folder / MANIFEST
        kept: set[str] = set()
        try:
            if path.exists():
                files = Manifest.from_text(path.read_bytes(), path).files
                kept = {record.file for record in files.values()}
            for file in self.folder.iterdir():
                ours = file.suffix == _UNFINISHED or TENSOR_FILE.fullmatch(file.name)
                if ours and file.name not in kept:
                    file.unlink()
        except (OSError, CheckpointError):
            # What is not removed does no harm. And if the manifest cannot be read,
            # files that nothing names may be all there is left of a checkpoint.
            pass

    # --8<-- [end:remove]


def save_checkpoint(
    folder: str | Path,
    *,
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any] | None = None,
    training: tuple[Mapping[str, Tensor], dict[str, Any]] | None = None,
) -> None:
    """Save one checkpoint to a folder, as ``CheckpointWriter.save``.

    Raises:
        CheckpointError: If another run is saving there.
        OSError: If the folder or the files cannot be written.
        TypeError: If a tensor holds numbers that safetensors does not know.
        ValueError: If ``settings`` or ``training`` is nothing for JSON.
    """
    with CheckpointWriter(folder) as writer:
        writer.save(
            config=config, weights=weights, settings=settings, training=training
        )


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


def _said(error: OSError, what: str, folder: Path) -> OSError:
    """Say what an error means, and give it the number that it had."""
    return OSError(error.errno, f"{what}: {error.strerror or error}", str(folder))
