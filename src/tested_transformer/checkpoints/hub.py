"""GPT-2 from a folder, or fetched from the hub where its weights are published."""

import json
import os
import re
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from torch import Tensor

from tested_transformer.checkpoints.errors import CheckpointError
from tested_transformer.checkpoints.layouts import from_gpt2, from_nanogpt
from tested_transformer.checkpoints.tensors import read_tensors
from tested_transformer.gpt import GPT

__all__ = ["HUB", "hub_file", "load_gpt2", "load_nanogpt"]

HUB = "https://huggingface.co"
_SETTINGS = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# Without a slash, and not beginning with a dot, no name leads out of its folder.
_PLAIN = r"[A-Za-z0-9][\w.-]*"
_CHUNK = 1 << 20

_Get = Callable[[str], Path | None]


# --8<-- [start:load]
def load_gpt2(
    folder_or_name: str | Path,
    *,
    dropout: float = 0.0,
    revision: str = "main",
    cache_folder: str | Path | None = None,
    hub: str = HUB,
) -> GPT:
    """Load a model in the layout of GPT-2: its config.json and its safetensors.

    Args:
        folder_or_name: A folder that holds them, or the name of a model on the hub,
            such as ``gpt2``, which is fetched once and kept.
        dropout: The new model's.
        revision: Which state of the model on the hub: a branch, a tag or a commit.
        cache_folder: Where fetched models are kept; ``tested-transformer`` in
            ``$XDG_CACHE_HOME`` or in ``~/.cache`` by default.
        hub: The address of the hub.

    Raises:
        CheckpointError: If a file is missing or damaged, or the model is none that
            ``GPT`` can be.
        ConnectionError: If a file cannot be fetched.
        OSError: If a file cannot be read or kept.
    """
    folder = Path(folder_or_name)
    get = _Folder(folder).get
    if not folder.is_dir():
        on_hub = _on_hub(str(folder_or_name), revision, cache_folder, hub)
        folder, get = on_hub.folder, on_hub.get
    settings = get(_SETTINGS)
    if settings is None:
        raise CheckpointError(f"{folder_or_name} has no {_SETTINGS}")
    weights = _read_weights(str(folder_or_name), folder, get)
    return from_gpt2(
        weights, _read_json(settings), dropout=dropout, origin=str(folder_or_name)
    )


# --8<-- [end:load]


def hub_file(
    name: str,
    file: str,
    *,
    revision: str = "main",
    cache_folder: str | Path | None = None,
    hub: str = HUB,
) -> Path:
    """Give the path of one file of a model on the hub, its tokenizer's for example.

    Args:
        name: The model's.
        file: The file's; it is fetched once and kept where ``load_gpt2`` keeps its own.
        revision: As for ``load_gpt2``.
        cache_folder: As for ``load_gpt2``.
        hub: As for ``load_gpt2``.

    Raises:
        CheckpointError: If the model has no such file.
        ConnectionError: If it cannot be fetched.
        OSError: If it cannot be kept.
    """
    path = None
    if re.fullmatch(_PLAIN, file):
        path = _on_hub(name, revision, cache_folder, hub).get(file)
    if path is None:
        raise CheckpointError(f"{name} has no {file}")
    return path


def _on_hub(
    name: str, revision: str, cache_folder: str | Path | None, hub: str
) -> "_Hub":
    for value in (name, revision):
        if not re.fullmatch(rf"{_PLAIN}(/{_PLAIN})?", value):
            raise CheckpointError(
                f"{value!r} is no folder and nothing that a hub has: "
                "wanted is a name such as gpt2 or openai-community/gpt2"
            )
    folder = _cache(cache_folder) / "hub" / name / revision
    return _Hub(f"{hub}/{name}/resolve/{revision}", folder)


# --8<-- [start:weights]
def _read_weights(origin: str, folder: Path, get: _Get) -> dict[str, Tensor]:
    """Read one file of weights, or the several that large models are cut into."""
    # An index that was fetched says that there is no single file to ask for.
    whole = None if (folder / _INDEX).exists() else get(_WEIGHTS)
    if whole is not None:
        return read_tensors(whole)
    index = get(_INDEX)
    if index is None:
        raise CheckpointError(
            f"{origin} has no {_WEIGHTS} and no {_INDEX}; "
            "pickles, such as pytorch_model.bin, are not read"
        )
    files = _read_json(index).get("weight_map")
    if not isinstance(files, dict):
        raise CheckpointError(f"{index} has no weight_map")
    weights: dict[str, Tensor] = {}
    for file in sorted({str(file) for file in files.values()}):
        if not re.fullmatch(_PLAIN, file):
            raise CheckpointError(f"{index} names a file {file!r}")
        path = get(file)
        if path is None:
            raise CheckpointError(f"{origin} has no {file}, which {_INDEX} names")
        weights |= read_tensors(path)
    return weights


# --8<-- [end:weights]


# --8<-- [start:hub]
class _Hub:
    """Files that are fetched from an address to a folder, each once."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.folder = folder

    def get(self, file: str) -> Path | None:
        path = self.folder / file
        if path.exists():
            return path
        answer = self._open(file)
        if answer is None:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{file}.", dir=self.folder)
        try:
            with answer, os.fdopen(handle, "wb") as out:
                for chunk in self._read(answer, file):
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
        return path

    def _open(self, file: str) -> HTTPResponse | None:
        try:
            return urllib.request.urlopen(f"{self.address}/{file}", timeout=30)
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise self._failed(file, f"{error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            raise self._failed(file, getattr(error, "reason", error)) from None

    def _read(self, answer: HTTPResponse, file: str) -> Iterator[bytes]:
        wanted, got = answer.headers["Content-Length"], 0
        while True:
            try:
                chunk = answer.read(_CHUNK)
            except (OSError, HTTPException) as error:
                raise self._failed(file, error) from None
            if not chunk:
                break
            got += len(chunk)
            yield chunk
        if wanted is not None and got != int(wanted):
            raise self._failed(file, f"it ended after {got} of {wanted} bytes")

    def _failed(self, file: str, reason: object) -> ConnectionError:
        return ConnectionError(
            f"{self.address}/{file} cannot be fetched ({reason}): get the model "
            f"elsewhere and give the folder with its {_SETTINGS} and {_WEIGHTS}"
        )


# --8<-- [end:hub]


class _Folder:
    """Files that are in a folder, or are not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, file: str) -> Path | None:
        path = self.folder / file
        return path if path.is_file() else None


def load_nanogpt(folder: str | Path) -> GPT:
    """Load what was taken out of nanoGPT's checkpoint as ``from_nanogpt`` says.

    Args:
        folder: Where model.safetensors and config.json are.

    Raises:
        CheckpointError: If a file is missing or damaged, or they do not fit.
        OSError: If a file cannot be read.
    """
    folder = Path(folder)
    if not (folder / _SETTINGS).is_file():
        raise CheckpointError(f"{folder} has no {_SETTINGS}")
    weights = read_tensors(folder / _WEIGHTS)
    return from_nanogpt(weights, _read_json(folder / _SETTINGS), origin=str(folder))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is cut short or no JSON") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no settings")
    return content


def _cache(folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tested-transformer"
