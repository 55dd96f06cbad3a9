"""Load models by name or folder: ours, GPT-2's, nanoGPT's, and models on the hub.

Downloads need the hub's client, the optional package ``huggingface_hub``:
``pip install "tested-transformer[hub]"``. As usual, ``HF_HOME`` says where it keeps
files, and ``HF_ENDPOINT`` which hub it uses.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tested_transformer.checkpoints.configs import CheckpointError, read_json
from tested_transformer.checkpoints.layouts import from_family, from_gpt2, from_nanogpt
from tested_transformer.checkpoints.loading import has_checkpoint, load_checkpoint
from tested_transformer.checkpoints.saving import MANIFEST
from tested_transformer.checkpoints.shipping import CARD, load_shipped
from tested_transformer.checkpoints.tensor_files import WEIGHTS, Tell, find_tensors
from tested_transformer.gpt import GPT

__all__ = ["HUB", "Pretrained", "find_pretrained", "load_gpt2", "load_pretrained"]

HUB = "hub:"
"""What may stand before a name on the hub, where a folder may be meant."""

_SETTINGS = "config.json"


def load_pretrained(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    tell: Tell | None = None,
) -> GPT:
    """Load a model in any supported format, without unpickling.

    Weights are read one after another, converted and put in their place, so that the
    model is in memory only once.

    Args:
        name_or_folder: A folder with a checkpoint of this library, a shipped model, or
            a model in the layout of GPT-2, one of ``FAMILIES``, such as Llama, or
            nanoGPT (for nanoGPT's pickle, see ``from_nanogpt``); or the name of a model
            on the hub, such as ``gpt2`` or ``HuggingFaceTB/SmolLM2-135M``.
        revision: The version on the hub: a branch, a tag or a commit.
        device: Where to load it; the CPU by default.
        dtype: The type of its weights. By default a checkpoint of this library keeps
            the type that it was saved in, and so does one of ``FAMILIES``; GPT-2 and
            nanoGPT are loaded in float32.
        tell: Is called after each tensor that is read from a model in the layout of
            another library, with the bytes read so far and those of all tensors.

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: If there is no such model, it is damaged, or ``GPT`` does not
            support its architecture.
        ConnectionError: If it cannot be downloaded.
        ImportError: If a download is needed and ``huggingface_hub`` is not installed.
        OSError: If a file cannot be read.
    """
    pretrained = find_pretrained(name_or_folder, revision=revision)
    return pretrained.model(device=device, dtype=dtype, tell=tell).eval()


_Load = Callable[[torch.device | str | None, torch.dtype | None, Tell | None], GPT]


@dataclass(frozen=True)
class Pretrained:
    """A model that was found, and is loaded when ``model`` is called.

    Args:
        origin: The folder, or the name on the hub.
        load: Loads the model, with the arguments of ``model``.
        file: Returns the path of another of its files, or ``None`` if it has none.
        about: What is saved with the model, such as tokenizer and text.
    """

    origin: str
    load: _Load
    file: Callable[[str], Path | None]
    about: Mapping[str, Any] = field(default_factory=dict)

    def model(
        self,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tell: Tell | None = None,
    ) -> GPT:
        """Load the model; arguments and errors are those of ``load_pretrained``."""
        return self.load(device, dtype, tell)


def find_pretrained(
    name_or_folder: str | Path, *, revision: str | None = None
) -> Pretrained:
    """Find a model in any supported format; see ``load_pretrained``."""
    folder = Path(os.path.expanduser(name_or_folder))
    name, get = _files(name_or_folder, revision)
    if has_checkpoint(folder):
        saved = load_checkpoint(folder, training=False)
        return Pretrained(
            name,
            lambda device, dtype, _: saved.model(device, dtype=dtype),
            get,
            saved.settings,
        )
    if (folder / CARD).is_file():
        shipped = load_shipped(folder)
        return Pretrained(
            name,
            lambda device, dtype, _: shipped.model.to(device=device, dtype=dtype),
            get,
            shipped.card,
        )
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: name the folder of a model")
    if folder.is_dir() and get(_SETTINGS) is None:
        raise CheckpointError(f"{folder} holds no model: {_what_it_has(folder)}")

    def read(
        device: torch.device | str | None, dtype: torch.dtype | None, tell: Tell | None
    ) -> GPT:
        settings = _read_settings(name, get)
        weights = find_tensors(name, get, tell)
        convert: Callable[..., GPT] = from_family
        if "block_size" in settings:
            convert = from_nanogpt
        elif settings.get("model_type", "gpt2") == "gpt2":
            convert = from_gpt2
        return convert(weights, settings, origin=name, device=device, dtype=dtype)

    return Pretrained(name, read, get)


def _files(
    name_or_folder: str | Path, revision: str | None
) -> tuple[str, Callable[[str], Path | None]]:
    """Return the name of a model, and what finds its files, in a folder or the hub."""
    folder = Path(os.path.expanduser(name_or_folder))

    def find(file: str) -> Path | None:
        path = folder / file
        if not path.is_file():
            return None
        # A link may lead to another file of the folder, and in the hub's cache to the
        # blobs beside its snapshots; a foreign folder must not read what it pleases.
        home, target = folder.resolve(), path.resolve()
        blobs = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
        if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
            raise CheckpointError(f"{path} is a link that leads out of {folder}")
        return path

    if folder.exists():
        return str(folder), find
    name = str(name_or_folder).removeprefix(HUB)
    return name, partial(_fetch, name, revision=revision)


def _what_it_has(folder: Path) -> str:
    """Say what a model has, and what the folder has that may be meant."""
    models = sorted(file.parent for file in folder.glob(f"*/{MANIFEST}"))
    if models:
        return f"name one of those in it, such as {models[0]}"
    pickles = sorted(file.name for file in folder.glob("*.pt"))
    if pickles:
        return (
            f"{pickles[0]} is a pickle, which can run any code when opened; "
            "from_nanogpt says how to convert nanoGPT's"
        )
    return f"it must have {MANIFEST}, {CARD} or {_SETTINGS}"


def load_gpt2(
    folder_or_name: str | Path, *, dropout: float = 0.0, revision: str | None = None
) -> GPT:
    """Load a model in the layout of GPT-2: its config.json and its safetensors.

    The model is in float32, whatever the type that it was saved in.

    Args:
        folder_or_name: A folder written by ``save_pretrained`` of ``transformers``, or
            the name of a model on the hub, such as ``gpt2``, which is downloaded once
            and cached.
        dropout: The dropout of the new model.
        revision: The version on the hub: a branch, a tag or a commit.

    Errors are those of ``load_pretrained``.
    """
    origin, get = _files(folder_or_name, revision)
    settings = _read_settings(origin, get)
    weights = find_tensors(origin, get)
    return from_gpt2(weights, settings, dropout=dropout, origin=origin)


def _fetch(name: str, file: str, *, revision: str | None) -> Path | None:
    """Return a cached or downloaded file of the hub; None if it does not exist."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise ImportError(
            f"there is no folder {name!r}, and downloading a model from the hub needs "
            'the package huggingface_hub: pip install "tested-transformer[hub]", or '
            f"pass a folder with {_SETTINGS} and {WEIGHTS}"
        ) from None
    try:
        kept = huggingface_hub.try_to_load_from_cache(name, file, revision=revision)
        if kept is not None:  # a path, or a marker for a file known not to exist
            return Path(kept) if isinstance(kept, str) else None
        return Path(huggingface_hub.hf_hub_download(name, file, revision=revision))
    except errors.HFValidationError:
        raise CheckpointError(
            f"{name!r} is neither a folder nor a name on the hub: "
            "use a name such as gpt2 or openai-community/gpt2"
        ) from None
    except errors.RepositoryNotFoundError:
        raise CheckpointError(
            f"there is no folder {name!r}, and the hub has no such model, or shows it "
            "only to those who are logged in"
        ) from None
    except errors.RevisionNotFoundError:
        raise CheckpointError(f"{name} has no revision {revision!r}") from None
    except Exception as error:  # its HTTP client raises errors of its own
        missing = isinstance(error, errors.EntryNotFoundError)
        # LocalEntryNotFoundError means: not in the cache, and the hub did not answer.
        if missing and not isinstance(error, errors.LocalEntryNotFoundError):
            return None
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ConnectionError(
            f"{file} of {name} cannot be downloaded ({reason}): get the model "
            f"elsewhere and pass a folder with {_SETTINGS} and {WEIGHTS}"
        ) from None


def _read_settings(origin: str, get: Callable[[str], Path | None]) -> dict[str, Any]:
    file = get(_SETTINGS)
    if file is None:
        raise CheckpointError(f"{origin} has no {_SETTINGS}")
    return read_json(file)
