"""Load models by name or folder: ours, GPT-2's, nanoGPT's, and models on the hub.

Downloads need the hub's client, the optional package ``huggingface_hub``:
``pip install "tested-transformer[hub]"``. As usual, ``HF_HOME`` says where it keeps
files, and ``HF_ENDPOINT`` which hub it uses.
"""

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tested_transformer.checkpoints.layouts import from_gpt2, from_nanogpt
from tested_transformer.checkpoints.loading import (
    has_checkpoint,
    load_checkpoint,
    read_tensors,
)
from tested_transformer.checkpoints.saving import MANIFEST, CheckpointError, read_json
from tested_transformer.checkpoints.shipping import CARD, load_shipped
from tested_transformer.gpt import GPT

__all__ = ["hub_file", "load_gpt2", "load_pretrained"]

_SETTINGS = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# A name without a slash that does not start with a dot stays in its folder.
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")


def load_pretrained(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Load a model in any supported format; ``GPT.from_pretrained`` calls this.

    Args:
        name_or_folder: A folder with a checkpoint of this library, a shipped model, or
            a model in the layout of GPT-2 or nanoGPT (for nanoGPT's pickle, see
            ``from_nanogpt``); or the name of a model on the hub, such as ``gpt2`` or
            ``openai-community/gpt2-medium``.
        revision: The version on the hub: a branch, a tag or a commit.
        device: Where to load it; the CPU by default.
        dtype: The type of its weights. By default a checkpoint of this library keeps
            the type that it was saved in; any other model is loaded in float32.

    Returns:
        The model, in evaluation mode.

    Raises:
        CheckpointError: If there is no such model, it is damaged, or ``GPT`` does not
            support its architecture.
        ConnectionError: If it cannot be downloaded.
        ImportError: If a download is needed and ``huggingface_hub`` is not installed.
        OSError: If a file cannot be read.
    """
    folder = Path(name_or_folder).expanduser()
    if has_checkpoint(folder):
        model = load_checkpoint(folder, training=False).model()
    elif (folder / CARD).is_file():
        model = load_shipped(folder).model
    elif folder.is_file():
        raise CheckpointError(f"{folder} is a file: name the folder of a model")
    elif not folder.is_dir():
        model = load_gpt2(name_or_folder, revision=revision)
    elif not (folder / _SETTINGS).is_file():
        raise CheckpointError(
            f"{folder} holds no model: it must have {MANIFEST}, {CARD} or {_SETTINGS}"
        )
    elif "block_size" in (settings := read_json(folder / _SETTINGS)):
        weights = read_tensors(folder / _WEIGHTS)
        model = from_nanogpt(weights, settings, origin=str(folder))
    else:
        model = load_gpt2(folder)
    return model.to(device=device, dtype=dtype).eval()


def load_gpt2(
    folder_or_name: str | Path,
    *,
    dropout: float = 0.0,
    revision: str | None = None,
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
    folder, origin = Path(folder_or_name), str(folder_or_name)

    def get(file: str) -> Path | None:
        if folder.is_dir():
            return folder / file if (folder / file).is_file() else None
        return _fetch(origin, file, revision)

    settings = get(_SETTINGS)
    if settings is None:
        raise CheckpointError(f"{origin} has no {_SETTINGS}")
    weights = _read_weights(origin, get)
    return from_gpt2(weights, read_json(settings), dropout=dropout, origin=origin)


def hub_file(name: str, file: str, *, revision: str | None = None) -> Path:
    """Return the path of one file of a model on the hub, such as its tokenizer.

    The file is downloaded once and cached. Errors are those of ``load_gpt2``.
    """
    path = _fetch(name, file, revision)
    if path is None:
        raise CheckpointError(f"{name} has no {file}")
    return path


def _fetch(name: str, file: str, revision: str | None) -> Path | None:
    """Return a cached or downloaded file of the hub; None if it does not exist."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise ImportError(
            f"there is no folder {name!r}, and downloading a model from the hub needs "
            'the package huggingface_hub: pip install "tested-transformer[hub]", or '
            f"pass a folder with {_SETTINGS} and {_WEIGHTS}"
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
            f"elsewhere and pass a folder with {_SETTINGS} and {_WEIGHTS}"
        ) from None


def _read_weights(origin: str, get: Callable[[str], Path | None]) -> dict[str, Tensor]:
    """Read the weights from one file, or from the several files of a large model."""
    whole = get(_WEIGHTS)
    if whole is not None:
        return read_tensors(whole)
    index = get(_INDEX)
    if index is None:
        raise CheckpointError(
            f"{origin} has no {_WEIGHTS} and no {_INDEX}; pickles, such as "
            "pytorch_model.bin, are not read: they can run any code when opened"
        )
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        raise CheckpointError(f"{index} has no weight_map")
    weights: dict[str, Tensor] = {}
    for file in sorted({str(file) for file in files.values()}):
        if not _PLAIN.fullmatch(file):
            raise CheckpointError(f"{index} names an unexpected file, {file!r}")
        path = get(file)
        if path is None:
            raise CheckpointError(f"{origin} has no {file}, which {_INDEX} names")
        weights |= read_tensors(path)
    return weights
