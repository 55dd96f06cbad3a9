"""Models by name or folder: ours, GPT-2's and nanoGPT's layouts, and those on the hub.

The hub is read by its own client, ``huggingface_hub``, which is an extra:
``pip install "tested-transformer[hub]"``. Where it keeps files, and which hub it asks,
is set in its way: by ``HF_HOME`` and ``HF_ENDPOINT``.
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
# Without a slash, and not beginning with a dot, no name leads out of its folder.
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")


def load_pretrained(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Load a model, whoever made it; what ``GPT.from_pretrained`` calls.

    Args:
        name_or_folder: A folder with a checkpoint of this library, a model that was
            shipped, or a model in the layout of GPT-2 or nanoGPT (what to take out of
            nanoGPT's pickle, ``from_nanogpt`` says); or the name of a model on the
            hub, such as ``gpt2`` or ``openai-community/gpt2-medium``.
        revision: Which state of the model on the hub: a branch, a tag or a commit.
        device: Where to bring it; the CPU by default.
        dtype: The numbers of its weights; those that were saved by default.

    Returns:
        The model, evaluating.

    Raises:
        CheckpointError: If there is no such model, or it is damaged, or none that
            ``GPT`` can be.
        ConnectionError: If it cannot be fetched.
        ImportError: If it is to be fetched, and ``huggingface_hub`` is not installed.
        OSError: If a file cannot be read.
    """
    folder = Path(name_or_folder).expanduser()
    if has_checkpoint(folder):
        model = load_checkpoint(folder, training=False).model()
    elif (folder / CARD).is_file():
        model = load_shipped(folder).model
    elif not folder.is_dir():
        model = load_gpt2(name_or_folder, revision=revision)
    elif not (folder / _SETTINGS).is_file():
        raise CheckpointError(
            f"{folder} holds no model: it has none of {MANIFEST}, {CARD} and "
            f"{_SETTINGS}"
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

    Args:
        folder_or_name: A folder that holds them, as ``save_pretrained`` of
            ``transformers`` writes it, or the name of a model on the hub, such as
            ``gpt2``, which is fetched once and kept.
        dropout: The new model's.
        revision: Which state of the model on the hub: a branch, a tag or a commit.

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
    """Return the path of one file of a model on the hub, its tokenizer's for example.

    The file is fetched once and kept. Arguments and errors are those of ``load_gpt2``.
    """
    path = _fetch(name, file, revision)
    if path is None:
        raise CheckpointError(f"{name} has no {file}")
    return path


def _fetch(name: str, file: str, revision: str | None) -> Path | None:
    """Return a file of the hub that was fetched, now or before, or None without it."""
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise ImportError(
            f"there is no folder {name!r}, and fetching a model from the hub needs the "
            'package huggingface_hub: pip install "tested-transformer[hub]", or give '
            f"the folder with its {_SETTINGS} and {_WEIGHTS}"
        ) from None
    try:
        kept = huggingface_hub.try_to_load_from_cache(name, file, revision=revision)
        if kept is not None:  # a path, or known not to be there
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
    except Exception as error:  # Its client for HTTP has errors of its own.
        missing = isinstance(error, errors.EntryNotFoundError)
        # One that was found neither here nor there, because the hub did not answer.
        if missing and not isinstance(error, errors.LocalEntryNotFoundError):
            return None
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ConnectionError(
            f"{file} of {name} cannot be fetched ({reason}): get the model elsewhere "
            f"and give the folder with its {_SETTINGS} and {_WEIGHTS}"
        ) from None


def _read_weights(origin: str, get: Callable[[str], Path | None]) -> dict[str, Tensor]:
    """Read one file of weights, or the several that large models are cut into."""
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
            raise CheckpointError(f"{index} names a file {file!r}")
        path = get(file)
        if path is None:
            raise CheckpointError(f"{origin} has no {file}, which {_INDEX} names")
        weights |= read_tensors(path)
    return weights
