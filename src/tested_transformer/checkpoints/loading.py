"""Load checkpoints, or refuse them with the name of the file and what is wrong.

Everything is checked against the hash taken when it was saved, and nothing that is read
is ever executed: there are no pickles. ``layouts`` reads files of other libraries.
"""

import hashlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError, describe_config
from tested_transformer.checkpoints.saving import (
    MANIFEST,
    FileRecord,
    Manifest,
    check_fit,
)
from tested_transformer.checkpoints.tensor_files import TensorFiles, on_meta
from tested_transformer.gpt import GPT, GPTConfig

__all__ = [
    "Checkpoint",
    "check_file",
    "check_sizes",
    "fill_model",
    "has_checkpoint",
    "load_checkpoint",
    "model_with",
]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Args:
        folder: The folder that it was loaded from.
        config: The settings of the model.
        settings: Other settings of the run, by name.
        weights: The weights of the model, on the CPU.
        training: The state of the run, in tensors and in values from JSON; ``None`` if
            it was not saved, or not asked for.
    """

    folder: Path
    config: GPTConfig
    settings: dict[str, Any]
    weights: dict[str, Tensor] = field(repr=False)
    training: tuple[dict[str, Tensor], dict[str, Any]] | None = field(repr=False)

    def model(
        self,
        device: torch.device | str | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> GPT:
        """Return the saved model, by default on the CPU and in the type of its weights.

        Raises:
            CheckpointError: If the weights do not fit ``config``.
        """
        origin = str(self.folder)
        return model_with(self.config, self.weights, origin, device=device, dtype=dtype)

    def require(self, settings: Mapping[str, Any]) -> None:
        """Refuse the checkpoint if its settings differ from these.

        Args:
            settings: The required settings; those of the model are under ``config``.
                Settings not named here, at any depth, may have any value.

        Raises:
            CheckpointError: If a setting differs; the message lists all that do.
        """
        saved = {**self.settings, "config": describe_config(self.config)}
        differing = [*_differences("", saved, settings)]
        if differing:
            raise CheckpointError(
                f"{self.folder} was saved with {'; '.join(differing)}"
            )


def has_checkpoint(folder: str | Path) -> bool:
    """Return whether there is a checkpoint in a folder, intact or not."""
    return (Path(folder) / MANIFEST).exists()


def load_checkpoint(folder: str | Path, *, training: bool = True) -> Checkpoint:
    """Load a checkpoint, and verify every byte of it.

    Args:
        folder: Where it was saved. Another run may be saving there at the same time.
        training: Also load the state of the run, if it was saved.

    Raises:
        CheckpointError: If there is none, or one of its files is missing, cut short,
            altered, or of an unknown version.
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
            # Perhaps a newer checkpoint replaced it, and its files were removed.
            before, text = text, (folder / MANIFEST).read_bytes()
            if text == before:
                raise


def _read(folder: Path, text: bytes, training: bool) -> Checkpoint:
    manifest = Manifest.from_text(text, folder / MANIFEST)
    tensors = {
        kind: dict(TensorFiles(check_file(folder, record)))
        for kind, record in manifest.files.items()
        if training or kind == "model"
    }
    state = None
    if "training" in tensors and manifest.training is not None:
        check_sizes(manifest.config, tensors["model"], str(folder))
        like = GPT(manifest.config, device="meta").state_dict()
        names = _present_names(tensors["training"], like)
        moved = {name: tensors["training"][once] for name, once in names.items()}
        state = (moved, manifest.training)
    return Checkpoint(
        folder, manifest.config, manifest.settings, tensors["model"], state
    )


def check_file(folder: Path, record: FileRecord) -> Path:
    """Return the path of a file, after checking it against its record.

    Raises:
        CheckpointError: If it is missing, or differs in size or checksum.
        OSError: If it cannot be read.
    """
    path = folder / record.file
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    size = path.stat().st_size
    if size != record.bytes:
        wrong = "is cut short" if size < record.bytes else "is too long"
        raise CheckpointError(f"{path} {wrong}: {size} bytes, not {record.bytes}")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != record.sha256:
        raise CheckpointError(
            f"{path} was altered: its sha256 begins with {actual[:8]}, "
            f"not with {record.sha256[:8]}"
        )
    return path


def model_with(
    config: GPTConfig,
    weights: Mapping[str, Tensor],
    origin: str,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Return a model with copies of these weights.

    Args:
        config: The settings of the model.
        weights: All of its ``state_dict()``, and nothing else.
        origin: Where they come from, for error messages.
        device: The device of the model; that of the weights by default.
        dtype: The type of the model's weights; their own by default.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape.
    """
    shapes = on_meta(weights)
    check_sizes(config, shapes, origin)
    model = GPT(config, device="meta")
    like = model.state_dict()
    names = _present_names(weights, like)
    check_fit(like, {name: shapes[once] for name, once in names.items()}, origin)
    pairs = ((name, weights[once]) for name, once in names.items())
    return model.fill(pairs, device=device, dtype=dtype)


def fill_model(
    config: GPTConfig,
    pairs: Iterable[tuple[str, Tensor]],
    origin: str,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Return a model with copies of weights that come one after another.

    Each weight is copied before the next one is asked for, so that no more than the
    model and one of them are in memory. Whoever calls this has compared
    the ``config`` with the weights: see ``check_sizes``.

    Args:
        config: The settings of the model.
        pairs: The names and tensors of its ``state_dict()``, in any order.
        origin: Where they come from, for error messages.
        device: The device of the model; that of the weights by default.
        dtype: The type of the model's weights; their own by default.

    Raises:
        CheckpointError: If a weight is missing, unknown, comes twice or has another
            shape.
    """
    model = GPT(config, device="meta")
    like = model.state_dict()
    seen: dict[str, Tensor] = {}

    def checked() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in pairs:
            if name in seen:
                raise CheckpointError(f"{origin} has {name} twice")
            expected = {name: like[name]} if name in like else {}
            check_fit(expected, {name: tensor}, origin)
            seen[name] = like[name]
            yield name, tensor
        check_fit(like, seen, origin)

    return model.fill(checked(), device=device, dtype=dtype)


def check_sizes(config: GPTConfig, weights: Mapping[str, Tensor], origin: str) -> None:
    """Refuse settings that no model with such weights can have.

    Call it before a model is made, which takes as long as its settings say: an altered
    file may demand a billion layers.

    Args:
        config: The settings.
        weights: The weights, of which only the shapes count.
        origin: Where they come from, for the error message.

    Raises:
        CheckpointError: If there are more layers than weights, or another size is
            larger than every weight.
    """
    largest = max(
        (max(x.shape, default=1) for x in weights.values() if x.numel()), default=0
    )
    for name in ("num_layers", "vocab_size", "d_model", "d_ff", "num_experts"):
        size = getattr(config, name)
        if size is not None and size > (
            len(weights) if name == "num_layers" else largest
        ):
            raise CheckpointError(
                f"{origin} has settings that do not fit: {name}={size} is more than "
                f"its {len(weights)} weights can be for"
            )


def _present_names(names: Iterable[str], like: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names that the model has for its weights, and the given ones of each.

    Before layers had cores, sinks, gates and shares belonged to the layers themselves.

    Args:
        names: Names of weights, or of the training state, which contain them.
        like: The model's ``state_dict()``.
    """
    moved = {name.replace(".core.", "."): name for name in like if ".core." in name}
    return {
        "/".join(moved.get(part, part) for part in name.split("/")): name
        for name in names
    }


def _differences(name: str, saved: Any, required: Any) -> Iterator[str]:
    if isinstance(saved, Mapping) and isinstance(required, Mapping):
        for key, value in required.items():
            path = f"{name}.{key}" if name else key
            if key in saved:
                yield from _differences(path, saved[key], value)
            else:
                yield f"no {path}, not {reprlib.repr(value)}"
    elif saved != required:
        yield f"{name}={reprlib.repr(saved)}, not {reprlib.repr(required)}"
