"""Where a model comes from: a run, a model with a card, GPT-2's layout, or the hub."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tested_transformer.checkpoints import (
    Checkpoint,
    CheckpointError,
    has_checkpoint,
    hub_file,
    load_checkpoint,
    load_gpt2,
    load_shipped,
)
from tested_transformer.checkpoints.shipping import CARD
from tested_transformer.data import BytePairTokenizer, Tokenizer, tokenizer_from_dict
from tested_transformer.gpt import GPT

__all__ = ["HUB_NAMES", "RUNS", "Source", "find_checkpoint", "load_source"]

RUNS = Path("runs")
HUB_NAMES = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2")
_HUB = "hub:"


@dataclass(frozen=True)
class Source:
    """A model that can read and write text.

    Args:
        name: What it is called.
        model: On the device that was asked for.
        tokenizer: Its own.
        checkpoint: All that a run left, if it is one of this library's.
        about: What is known of its text and its making; nothing of others' models.
    """

    name: str
    model: GPT
    tokenizer: Tokenizer
    checkpoint: Checkpoint | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


def find_checkpoint(name: str | None, *, training: bool = False) -> Checkpoint:
    """Read the checkpoint in a folder, or the latest of those in ``runs``.

    Args:
        name: The folder.
        training: Also read where its run stands.

    Raises:
        CheckpointError: If there is none, or it is damaged.
        OSError: If a file cannot be read.
    """
    if name is not None:
        return load_checkpoint(name, training=training)
    found = [file for file in RUNS.glob("*/checkpoint.json") if file.is_file()]
    if not found:
        raise CheckpointError(
            f"there is no run in {RUNS}: name a folder, or train a model first, "
            "with tested-transformer train"
        )
    latest = max(found, key=lambda file: file.stat().st_mtime)
    return load_checkpoint(latest.parent, training=training)


def load_source(name: str | None, device: torch.device) -> Source:
    """Load a model and its tokenizer.

    Args:
        name: A folder with a run or a card, one of ``HUB_NAMES``, or ``hub:`` and
            another name on the hub; the latest run by default.
        device: Where the model is to be.

    Raises:
        CheckpointError: If there is none, or it is damaged.
        ConnectionError: If it cannot be fetched.
        ImportError: If its tokenizer needs a package that is not installed.
        OSError: If a file cannot be read.
    """
    if name is not None and not has_checkpoint(name):
        folder = Path(name)
        if (folder / CARD).is_file():
            return _with_card(folder, device)
        if folder.is_dir() and (folder / "config.json").exists():
            return _gpt2(name, folder, device)
        if not folder.exists() and (name in HUB_NAMES or name.startswith(_HUB)):
            return _gpt2(name.removeprefix(_HUB), None, device)
    checkpoint = find_checkpoint(name)
    definition = checkpoint.settings.get("tokenizer")
    if definition is None:
        raise CheckpointError(f"{checkpoint.folder} does not say what its tokens are")
    tokenizer = tokenizer_from_dict(definition)
    model = checkpoint.model(device).eval()
    settings = checkpoint.settings
    return Source(str(checkpoint.folder), model, tokenizer, checkpoint, settings)


def _with_card(folder: Path, device: torch.device) -> Source:
    shipped = load_shipped(folder)
    if "tokenizer" not in shipped.card:
        raise CheckpointError(f"{folder / CARD} does not say what the tokens are")
    tokenizer = tokenizer_from_dict(shipped.card["tokenizer"])
    model = shipped.model.to(device).eval()
    return Source(str(folder), model, tokenizer, about=shipped.card)


def _gpt2(name: str, folder: Path | None, device: torch.device) -> Source:
    file = folder / "tokenizer.json" if folder else hub_file(name, "tokenizer.json")
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: it says what the tokens are")
    tokenizer = BytePairTokenizer.from_file(file)
    model = load_gpt2(folder or name).to(device).eval()
    return Source(name, model, tokenizer)
