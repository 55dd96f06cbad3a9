"""Export models to the folders that ``transformers`` opens, with their tokenizers.

Everything is first written to a folder beside, which is then renamed. So the folder
appears with all of its files or not at all.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.layouts import FAMILIES, to_family, to_gpt2
from tested_transformer.checkpoints.saving import write_tensors
from tested_transformer.data import Tokenizer, tokenizer_file
from tested_transformer.gpt import GPT

__all__ = ["EXPORTED", "export_model"]

EXPORTED = ("gpt2", *FAMILIES)
"""The families that ``export_model`` writes."""

# These are tried first, and what they lack is named if nothing fits.
_FIRST = ("llama", "qwen3", "gpt2")
_WEIGHTS = "model.safetensors"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


def export_model(
    folder: str | Path,
    model: GPT,
    tokenizer: Tokenizer,
    *,
    family: str | None = None,
    end_tokens: Sequence[int] = (),
    overwrite: bool = False,
) -> str:
    """Write a model as one of a family, which ``transformers`` opens; return the name.

    ``AutoModelForCausalLM`` and ``AutoTokenizer`` then open the folder, and so does
    ``load_pretrained``.

    Args:
        folder: Where to write. It must be empty or not there.
        model: The model.
        tokenizer: Its tokenizer.
        family: One of ``EXPORTED``; by default the first one that fits, of ``llama``,
            ``qwen3``, ``gpt2`` and the others.
        end_tokens: Tokens that end a text.
        overwrite: Replace what was exported to the folder before.

    Raises:
        CheckpointError: If the folder holds something else than an exported model, or
            such a model and ``overwrite`` is not set.
        OSError: If the files cannot be written.
        TypeError: If the tokenizer cannot be written as a ``tokenizer.json``.
        ValueError: If the family, or every one, lacks a setting of the model.
    """
    folder = Path(os.path.abspath(os.path.expanduser(folder)))
    _check_room(folder, overwrite)
    name, weights, settings = _laid_out(model, family)
    ends = [*end_tokens]
    settings |= dict.fromkeys(("bos_token_id", "pad_token_id"))
    settings["eos_token_id"] = ends[0] if len(ends) == 1 else ends or None
    contents = (settings, tokenizer_file(tokenizer), _tokenizer_settings(model))
    texts = [_to_json(content) for content in contents]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as unfinished:
        new = Path(unfinished) / "new"
        new.mkdir()
        write_tensors(new / _WEIGHTS, weights)
        for file, text in zip(_FILES, texts, strict=True):
            with open(new / file, "wb") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
        if folder.exists():
            os.rename(folder, Path(unfinished) / "old")
        os.rename(new, folder)
    return name


def _check_room(folder: Path, overwrite: bool) -> None:
    """Refuse a folder with anything that would be lost."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file: name a folder")
    there = sorted(file.name for file in folder.iterdir())
    foreign = [name for name in there if name not in (_WEIGHTS, *_FILES)]
    if foreign:
        raise CheckpointError(
            f"{folder} holds {foreign[0]}, which is not of an exported model: name a "
            "new folder"
        )
    if there and not overwrite:
        raise CheckpointError(
            f"{folder} already holds a model: name a new folder, or pass overwrite to "
            "replace it"
        )


def _laid_out(
    model: GPT, family: str | None
) -> tuple[str, dict[str, Tensor], dict[str, Any]]:
    """Return the name of a family, and a model's weights and settings in its layout."""
    if family is not None and family not in EXPORTED:
        raise ValueError(f"family={family!r} must be one of {', '.join(EXPORTED)}")
    tried = dict.fromkeys((*_FIRST, *EXPORTED)) if family is None else [family]
    lacking: dict[str, str] = {}
    for name in tried:
        try:
            exported = to_gpt2(model) if name == "gpt2" else to_family(model, name)
        except ValueError as error:
            lacking[name] = str(error)
        else:
            return name, *exported
    if family is not None:
        raise ValueError(lacking[family])
    reasons = "; ".join(lacking[name] for name in _FIRST)
    raise ValueError(
        f"the model fits no family: {reasons}. Train one with "
        "tested-transformer train --like llama, or --recipe plain for a GPT-2"
    )


def _tokenizer_settings(model: GPT) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.max_seq_len,
    }


def _to_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
