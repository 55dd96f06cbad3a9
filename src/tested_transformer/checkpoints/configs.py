"""The settings of a model as JSON: names instead of objects, and back."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tested_transformer.attentions import attention_named, name_of
from tested_transformer.config import GPTConfig

__all__ = ["CheckpointError", "describe_config", "read_config", "read_json"]

_LARGEST = 100_000_000  # as many as safetensors allows a header
# Settings of attention that were fields of the config once.
_ONCE_FIELDS = ("latent_dim", "soft_cap", "block_size", "num_chosen")


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or another run is saving to its folder.

    The message names the file and says what is wrong with it.
    """


def read_json(path: Path, text: bytes | None = None) -> dict[str, Any]:
    """Return the content of a JSON file, or of the ``text`` already read from it.

    Raises:
        CheckpointError: If it is cut short, not JSON, not a JSON object, or so large
            that it cannot hold settings.
    """
    if text is None and path.stat().st_size > _LARGEST:
        raise CheckpointError(f"{path} has more than {_LARGEST:,} bytes")
    try:
        content = json.loads(path.read_bytes() if text is None else text)
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is cut short or not JSON") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no settings")
    return content


def describe_config(config: GPTConfig) -> dict[str, Any]:
    """Return a config as values for JSON, from which ``read_config`` makes the same.

    Raises:
        ValueError: If the config's attention has no name.
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    name, settings = name_of(config.attention)
    return {**values, "attention": name, "attention_settings": settings}


def read_config(values: Mapping[str, Any], path: Path) -> GPTConfig:
    """Return the config that a file describes, with defaults for missing fields.

    Args:
        values: What ``describe_config`` returned. Files from before a field was added
            lack it; files from before attention had settings of its own have them among
            the fields.
        path: The path of the file, for error messages.

    Raises:
        CheckpointError: If a field is unknown or its value does not fit.
    """
    if not isinstance(values, Mapping):
        raise CheckpointError(f"{path}: config={values!r} must have a model's settings")
    values = dict(values)
    name = values.pop("attention", "softmax")
    settings = values.pop("attention_settings", {})
    for once in _ONCE_FIELDS:
        if values.get(once) is not None:
            settings = {**settings, once: values[once]}
        values.pop(once, None)
    unknown = sorted(values.keys() - {field.name for field in fields(GPTConfig)})
    if unknown:
        raise CheckpointError(
            f"{path}: config has {', '.join(unknown)}, which this library does not know"
        )
    try:
        return GPTConfig(attention=attention_named(name, settings), **values)
    except (TypeError, ValueError, RuntimeError) as error:  # the last for huge sizes
        raise CheckpointError(f"{path}: config: {error}") from None
