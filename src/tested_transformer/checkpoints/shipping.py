"""Models that are given away: weights in half precision, and a card beside them.

A folder holds ``model.safetensors`` and ``card.json``. The card says what the weights
belong to and where they are from, and has their hash: who has the folder needs nothing
else, and runs nothing that came with it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.loading import check_file, model_with, read_tensors
from tested_transformer.checkpoints.saving import (
    CheckpointError,
    FileRecord,
    read_config,
    read_json,
    write_tensors,
)
from tested_transformer.gpt import GPT

__all__ = ["CARD", "ShippedModel", "load_shipped", "ship_model"]

CARD = "card.json"
_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class ShippedModel:
    """What was in a folder.

    Args:
        model: In single precision, with the numbers of half precision; evaluating.
        card: All that the card says.
    """

    model: GPT
    card: dict[str, Any]


def ship_model(
    folder: str | Path, model: GPT, about: Mapping[str, Any] | None = None
) -> None:
    """Write a model's weights in half precision, and a card that names them.

    Args:
        folder: Where to; it is made if it is not there.
        model: Any GPT. It is not changed.
        about: What else the card is to say, as JSON can hold it: tokenizer, text,
            recipe, losses.

    Raises:
        OSError: If the folder or the files cannot be written.
        ValueError: If a weight is too large for half precision, or ``about`` is
            nothing for JSON.
    """
    folder = Path(folder)
    weights = {name: _halved(name, each) for name, each in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    record = write_tensors(folder / _WEIGHTS, weights)
    card = {
        **(about or {}),
        "config": asdict(model.config),
        "weights": {**asdict(record), "dtype": "float16"},
    }
    text = json.dumps(card, indent=1, allow_nan=False, ensure_ascii=False)
    (folder / CARD).write_text(text + "\n", "utf-8")


def load_shipped(folder: str | Path) -> ShippedModel:
    """Read a model that ``ship_model`` wrote, and compare it with its card.

    Raises:
        CheckpointError: If card or weights are missing, altered, or do not fit.
        OSError: If a file cannot be read.
    """
    path = Path(folder) / CARD
    try:
        card = read_json(path)
        settings, about = card["config"], card["weights"]
        record = FileRecord(*(about[name] for name in ("file", "bytes", "sha256")))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (KeyError, TypeError):
        raise CheckpointError(f"{path} is not the card of a model") from None
    config = read_config(settings, path)
    halves = read_tensors(check_file(path.parent, record))
    weights = {name: each.float() for name, each in halves.items()}
    return ShippedModel(model_with(config, weights, str(folder)).eval(), card)


def _halved(name: str, weight: Tensor) -> Tensor:
    half = weight.detach().to(torch.float16)
    if not half.isfinite().all():
        raise ValueError(f"{name} has numbers that are too large for half precision")
    return half
