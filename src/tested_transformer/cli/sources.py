"""Find models and texts: runs, models with a card, GPT-2, the hub."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tested_transformer import checkpoints, data
from tested_transformer.gpt import GPT
from tested_transformer.variants import stretched_by

__all__ = [
    "HELD_OUT",
    "Source",
    "describe_text",
    "find_checkpoint",
    "load_source",
    "load_text",
]

RUNS = Path("runs")
HELD_OUT = 32768  # by default, tokens that train predicts in each evaluation
_HUB = "hub:"
_HUB_NAMES = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2")


@dataclass(frozen=True)
class Source:
    """A model with its tokenizer, and what is known about its training."""

    name: str
    model: GPT
    tokenizer: data.Tokenizer
    about: Mapping[str, Any] = field(default_factory=dict)

    def stretched(self, factor: float, scaling: str) -> "Source":
        """Return a source whose model reads texts ``factor`` times as long."""
        if factor == 1:
            return self
        return replace(self, model=stretched_by(self.model, factor, scaling=scaling))

    def window_length(self, seq_len: int | None) -> int:
        """Return how many tokens to read at a time, by default the model's limit."""
        longest = self.model.config.max_seq_len
        if seq_len is not None and not 2 <= seq_len <= longest:
            raise ValueError(
                f"seq_len={seq_len} must lie between 2 and the model's "
                f"max_seq_len={longest}"
            )
        return seq_len or longest


def find_checkpoint(name: str | None, *, training: bool) -> checkpoints.Checkpoint:
    """Load the checkpoint in a folder, or the latest one in ``runs``."""
    if name is None:
        found = [file for file in RUNS.glob("*/checkpoint.json") if file.is_file()]
        if not found:
            raise checkpoints.CheckpointError(
                f"there is no run in {RUNS}: name a folder, or train a model first, "
                "with tested-transformer train"
            )
        name = str(max(found, key=lambda file: file.stat().st_mtime).parent)
    return checkpoints.load_checkpoint(name, training=training)


def load_source(name: str | None, device: torch.device) -> Source:
    """Load a model and its tokenizer.

    Args:
        name: A folder with a run, a card or GPT-2's files, the name of a GPT-2, or
            ``hub:`` and another name on the hub; the latest run by default.
        device: Where to load the model.
    """
    if name is None or checkpoints.has_checkpoint(name):
        checkpoint = find_checkpoint(name, training=False)
        name, about = str(checkpoint.folder), checkpoint.settings
        model = checkpoint.model()
    elif (Path(name) / "card.json").is_file():
        shipped = checkpoints.load_shipped(name)
        model, about = shipped.model, shipped.card
    elif (file := _gpt2_tokenizer(name)) is not None:
        name = name.removeprefix(_HUB)
        model = checkpoints.load_gpt2(name).to(device).eval()
        return Source(name, model, data.BytePairTokenizer.from_file(file))
    else:
        raise checkpoints.CheckpointError(
            f"{name} holds neither a checkpoint nor a model in GPT-2's layout"
        )
    if "tokenizer" not in about:
        raise checkpoints.CheckpointError(f"{name} does not say what its tokens are")
    tokenizer = data.tokenizer_from_dict(about["tokenizer"])
    return Source(name, model.to(device).eval(), tokenizer, about)


def _gpt2_tokenizer(name: str) -> Path | None:
    """Find the tokenizer of a model in GPT-2's layout, in a folder or on the hub."""
    file = Path(name) / "tokenizer.json"
    if file.with_name("config.json").is_file():
        if not file.is_file():
            raise checkpoints.CheckpointError(
                f"{file} is missing: it says what the tokens are"
            )
        return file
    if not Path(name).exists() and (name in _HUB_NAMES or name.startswith(_HUB)):
        return checkpoints.hub_file(name.removeprefix(_HUB), file.name)
    return None


def describe_text(corpus: data.TokenizedCorpus, limit: int | None) -> dict[str, Any]:
    """Return a description of a run's text, with which ``load_text`` finds it again."""
    name = corpus.name
    if name not in data.CORPORA:  # a path must work from any folder
        name = str(Path(name).expanduser().resolve())
    about = {"characters": corpus.num_characters, "sha256": corpus.sha256}
    return {"name": name, "limit": limit, **about}


def load_text(
    about: Mapping[str, Any], owner: object, path: str | None = None
) -> data.TokenizedCorpus:
    """Load the text that a model was trained on, and check that it is the same.

    Pass ``path`` if the text has moved.
    """
    text = about.get("text")
    if text is None:
        raise ValueError(f"{owner} has no text of its own: pass a text")
    try:
        return data.load_tokens(
            path or text["name"],
            tokenizer=data.tokenizer_from_dict(about["tokenizer"]),
            sha256=text["sha256"],
            num_characters=text["limit"],
        )
    except ValueError as error:
        raise ValueError(
            f"{error}; {owner} was trained on {text['name']}, "
            f"{text['characters']} characters"
        ) from None
