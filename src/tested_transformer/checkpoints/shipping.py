"""Ship models to others: weights in half precision, with a card.

A folder holds ``model.safetensors`` and ``card.json``. The card contains the model's
config, where the weights come from, and their hash. You need nothing but the folder to
load the model, and nothing in it is executed.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.configs import (
    CheckpointError,
    describe_config,
    read_config,
    read_json,
)
from tested_transformer.checkpoints.loading import check_file, model_with
from tested_transformer.checkpoints.saving import FileRecord, write_tensors
from tested_transformer.checkpoints.tensor_files import TensorFiles
from tested_transformer.gpt import GPT

__all__ = ["CARD", "ShippedModel", "load_shipped", "ship_model"]

CARD = "card.json"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ShippedModel:
    """A model loaded from a folder, with its card.

    Args:
        model: The model in evaluation mode; its float32 weights have float16 values.
        card: The content of the card.
    """

    model: GPT
    card: dict[str, Any]


def ship_model(
    folder: str | Path, model: GPT, about: Mapping[str, Any] | None = None
) -> None:
    """Write a model's weights in half precision, and a card that describes them.

    If that fails, a model that was shipped to the folder before is still intact.

    Args:
        folder: Where to write; it is created if necessary.
        model: Any GPT. It is not changed.
        about: Other content of the card, such as tokenizer, text, recipe and losses, in
            types that JSON can represent.

    Raises:
        OSError: If the folder or the files cannot be written.
        ValueError: If a weight is too large for half precision, or ``about`` cannot be
            represented in JSON.
    """
    folder = Path(folder)
    weights = {name: _halved(name, x) for name, x in model.state_dict().items()}
    described = dict(about or {})
    _to_json(described)  # refuse it before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".unfinished-", dir=folder) as unfinished:
        record = write_tensors(Path(unfinished) / _WEIGHTS, weights)
        card = {
            **described,
            "config": describe_config(model.config),
            "weights": {**asdict(record), "dtype": "float16"},
        }
        (Path(unfinished) / CARD).write_bytes(_to_json(card))
        for name in (_WEIGHTS, CARD):
            os.replace(Path(unfinished) / name, folder / name)


def load_shipped(folder: str | Path) -> ShippedModel:
    """Load a model that ``ship_model`` wrote, and check it against its card.

    Raises:
        CheckpointError: If card or weights are missing, altered, or do not fit.
        OSError: If a file cannot be read.
    """
    path = Path(folder) / CARD
    try:
        card = read_json(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    try:
        settings, about = card["config"], card["weights"]
        record = FileRecord(_WEIGHTS, int(about["bytes"]), str(about["sha256"]))
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{path} is not the card of a model") from None
    config = read_config(settings, path)
    halves = TensorFiles(check_file(path.parent, record))
    model = model_with(config, halves, str(folder), dtype=torch.float32)
    return ShippedModel(model.eval(), card)


def _halved(name: str, weight: Tensor) -> Tensor:
    half = weight.detach().to(torch.float16)
    if not half.isfinite().all():
        raise ValueError(f"{name} has numbers that are too large for half precision")
    return half


def _to_json(card: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(card, indent=1, allow_nan=False, ensure_ascii=False)
        return (text + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"about cannot be written as JSON: {error}") from None
