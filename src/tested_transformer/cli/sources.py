"""Find models and texts: runs, models with a card, GPT-2, the hub."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tested_transformer import checkpoints, data
from tested_transformer.checkpoints.configs import read_json
from tested_transformer.cli.display import loading, reminder
from tested_transformer.gpt import GPT
from tested_transformer.surgery import stretched_by

__all__ = [
    "HELD_OUT",
    "Source",
    "describe_text",
    "find_checkpoint",
    "latest_runs",
    "load_source",
    "load_text",
]

RUNS = Path("runs")
HELD_OUT = 32768  # by default, tokens that train predicts in each evaluation
_USUAL_WINDOW = 1024
_HUB_NAMES = ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2")


@dataclass(frozen=True)
class Source:
    """A model with its tokenizer, and what is known about its training."""

    name: str
    model: GPT
    tokenizer: data.Tokenizer
    about: Mapping[str, Any] = field(default_factory=dict)
    end_tokens: Sequence[int] = ()

    def stretched(self, factor: float, scaling: str) -> "Source":
        """Return a source whose model reads texts ``factor`` times as long."""
        if factor == 1:
            return self
        return replace(self, model=stretched_by(self.model, factor, scaling=scaling))

    @property
    def opening(self) -> tuple[int, ...]:
        """The tokens before each text that the model reads, such as BOS."""
        return getattr(self.tokenizer, "opening", ())

    def make_room(self, length: int) -> None:
        """Limit a model to texts of a length, for each cache has room for the longest.

        Only if no position depends on the limit, so that the model stays the same.
        """
        model = self.model
        free = model.config.positions in ("rotary", "none")
        if free and 0 < length < model.config.max_seq_len:
            model.config = replace(model.config, max_seq_len=length)
            model.reset_buffers()

    def window_length(self, seq_len: int | None) -> int:
        """Return how many tokens of a text to read at a time, 1024 at most if not said.

        The opening comes before them.
        """
        longest = self.model.config.max_seq_len - len(self.opening)
        if seq_len is not None and not 2 <= seq_len <= longest:
            raise ValueError(
                f"seq_len={seq_len} must lie between 2 and the model's "
                f"max_seq_len={longest}"
                + f", less {len(self.opening)} for the opening"
                * bool(self.opening)
            )
        return seq_len or min(longest, _USUAL_WINDOW)


def find_checkpoint(name: str | None, *, training: bool) -> checkpoints.Checkpoint:
    """Load the checkpoint in a folder, or the latest one in ``runs``."""
    name = _latest_run() if name is None else name
    _check_folder(name)
    return checkpoints.load_checkpoint(name, training=training)


def _check_folder(name: str, hint: str = "") -> None:
    """Refuse what is not there, and say what may be meant."""
    if not name or not Path(os.path.expanduser(name)).exists():
        if name and checkpoints.has_checkpoint(RUNS / name):
            hint = f"; type {RUNS / name}"
        raise checkpoints.CheckpointError(f"there is no folder {name!r}{hint}")


def latest_runs() -> list[Path]:
    """Return the folders of runs in ``runs``, the latest first."""
    files = [file for file in RUNS.glob("*/checkpoint.json") if file.is_file()]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.parent for file in files]


def _latest_run() -> str:
    runs = latest_runs()
    if not runs:
        raise checkpoints.CheckpointError(
            f"there is no run in {RUNS}: name a folder, or train a model first, "
            "with tested-transformer train"
        )
    return str(runs[0])


def load_source(name: str | None, device: torch.device) -> Source:
    """Load a model and its tokenizer.

    Args:
        name: Whatever ``load_pretrained`` loads from a folder; the name of a GPT-2,
            or ``hub:`` and another name on the hub; the latest run by default.
        device: Where to load the model.
    """
    if name is None:
        name = _latest_run()
    if name not in _HUB_NAMES and not name.startswith(checkpoints.HUB):
        _check_folder(name, f"; a model on the hub is {checkpoints.HUB}OWNER/NAME")
    pretrained = checkpoints.find_pretrained(name)
    tokenizer = _tokenizer(pretrained)
    with loading() as tell:
        model = pretrained.model(device=device, tell=tell)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise checkpoints.CheckpointError(
            f"{pretrained.origin} has a tokenizer of {tokenizer.vocab_size} tokens, "
            f"but its model knows {model.config.vocab_size}: they are not of one model"
        )
    ends = _end_tokens(pretrained)
    return Source(pretrained.origin, model.eval(), tokenizer, pretrained.about, ends)


def _end_tokens(pretrained: checkpoints.Pretrained) -> list[int]:
    """Return the tokens at which a model stops, as saved or as its files say."""
    if "tokenizer" in pretrained.about:
        return [*pretrained.about.get("end_tokens", ())]
    for name in ("generation_config.json", "config.json"):
        with suppress(ConnectionError):  # not in the cache, and nobody needs the first
            file = pretrained.file(name)
            ends = None if file is None else read_json(file).get("eos_token_id")
            if ends is not None:
                return [*ends] if isinstance(ends, list) else [ends]
    return []


def _tokenizer(pretrained: checkpoints.Pretrained) -> data.Tokenizer:
    """Return the tokenizer that was saved with a model, or that of its folder."""
    if "tokenizer" in pretrained.about:
        return data.tokenizer_from_dict(pretrained.about["tokenizer"])
    file = pretrained.file("tokenizer.json")
    if file is None:
        raise checkpoints.CheckpointError(
            f"{pretrained.origin} does not say what its tokens are: put the "
            "tokenizer.json that it was trained with into it"
        )
    try:
        return data.BytePairTokenizer.from_file(file)
    except ValueError as error:
        raise checkpoints.CheckpointError(f"{file}: {error}") from None


def describe_text(corpus: data.TokenizedCorpus, limit: int | None) -> dict[str, Any]:
    """Return a description of a run's text, with which ``load_text`` finds it again."""
    name = corpus.name
    path = Path(os.path.expanduser(name))
    # A path must work from any folder, but what can be read once has none.
    if name not in data.CORPORA and path.is_file():
        name = str(path.resolve())
    about = {"characters": corpus.num_characters, "sha256": corpus.sha256}
    return {"name": name, "limit": limit, **about}


def load_text(
    about: Mapping[str, Any], owner: object, path: str | None = None
) -> data.TokenizedCorpus:
    """Load the text that a model was trained on, and check that it is the same.

    Pass ``path`` if the text has moved.
    """
    try:
        text = about["text"]
        name, characters = text["name"], text["characters"]
    except (KeyError, TypeError):
        raise ValueError(f"{owner} has no text of its own: pass a text") from None
    try:
        if not path and name not in data.CORPORA and not Path(name).is_file():
            raise FileNotFoundError(f"there is no file {name!r}")
        return data.load_tokens(
            path or name,
            tokenizer=data.tokenizer_from_dict(about["tokenizer"]),
            sha256=text["sha256"],
            num_characters=text["limit"],
            tell=reminder(),
        )
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(
            f"{error}; {owner} was trained on {name}, "
            f"{characters} characters: pass the path of this text"
        ) from None
