"""Checkpoints read back, or refused by name: which file, and what is wrong with it.

Everything that is read is compared with the hash that was taken when it was written,
and nothing that is read is ever executed: there is no pickle here.
"""

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.errors import CheckpointError
from tested_transformer.checkpoints.manifest import MANIFEST, Manifest
from tested_transformer.checkpoints.tensors import check_file, read_tensors
from tested_transformer.checkpoints.weights import model_with
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["Checkpoint", "has_checkpoint", "load_checkpoint"]


# --8<-- [start:checkpoint]
@dataclass(frozen=True)
class Checkpoint:
    """What was saved.

    Args:
        folder: Where it is from.
        config: What the model is made of.
        settings: What else the run was made with, by name.
        weights: The model's, on the CPU.
        training: Where the run stands, as tensors and as JSON can hold it; ``None`` if
            that was not saved, or not asked for.
    """

    folder: Path
    config: GPTConfig
    settings: dict[str, Any]
    weights: dict[str, Tensor]
    training: tuple[dict[str, Tensor], dict[str, Any]] | None

    def model(self, device: torch.device | str = "cpu") -> GPT:
        """Make the model as it was.

        Raises:
            CheckpointError: If the weights are not those of ``config``.
        """
        return model_with(self.config, self.weights, str(self.folder)).to(device)

    def require(
        self,
        *,
        config: GPTConfig | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuse the checkpoint if it was made with other settings than these.

        Args:
            config: What the model has to be made of.
            settings: What else it has to be made with. What is not named here may be
                anything, in dictionaries too.

        Raises:
            CheckpointError: If anything differs; the message has all that does.
        """
        wanted = {} if config is None else {"config": asdict(config)}
        wanted |= settings or {}
        found = {**self.settings, "config": asdict(self.config)}
        differing = [*_differences("", found, wanted)]
        if differing:
            raise CheckpointError(
                f"{self.folder} was saved with {'; '.join(differing)}"
            )


# --8<-- [end:checkpoint]


def has_checkpoint(folder: str | Path) -> bool:
    """Say whether there is a checkpoint in a folder, whole or not."""
    return (Path(folder) / MANIFEST).exists()


# --8<-- [start:load]
def load_checkpoint(folder: str | Path, *, training: bool = True) -> Checkpoint:
    """Read a checkpoint, and compare every byte of it with what was written.

    Args:
        folder: Where it was saved. Others may be saving there meanwhile.
        training: Also read where the run stands, if that was saved.

    Raises:
        CheckpointError: If there is none, or a file of it is missing, cut short,
            altered, or of a version that this library does not know.
        OSError: If a file cannot be read.
    """
    folder = Path(folder)
    if not has_checkpoint(folder):
        raise CheckpointError(f"{folder} holds no checkpoint: there is no {MANIFEST}")
    text = (folder / MANIFEST).read_bytes()
    while True:
        try:
            return _read(folder, text, training)
        except (CheckpointError, FileNotFoundError):
            # Perhaps it was exchanged for a newer one, and its files were removed.
            before, text = text, (folder / MANIFEST).read_bytes()
            if text == before:
                raise


# --8<-- [end:load]


def _read(folder: Path, text: bytes, training: bool) -> Checkpoint:
    manifest = Manifest.from_text(text, folder / MANIFEST)
    tensors = {
        kind: read_tensors(check_file(folder, record))
        for kind, record in manifest.files.items()
        if training or kind == "model"
    }
    stands = None
    if "training" in tensors and manifest.training is not None:
        stands = (tensors["training"], manifest.training)
    return Checkpoint(
        folder, manifest.config, manifest.settings, tensors["model"], stands
    )


def _differences(name: str, found: Any, wanted: Any) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key, value in wanted.items():
            path = f"{name}.{key}" if name else key
            if key in found:
                yield from _differences(path, found[key], value)
            else:
                yield f"no {path}, not {reprlib.repr(value)}"
    elif found != wanted:
        yield f"{name}={reprlib.repr(found)}, not {reprlib.repr(wanted)}"
