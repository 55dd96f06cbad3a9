"""The file that makes a checkpoint: it names its files of tensors, and says the rest.

Tensor files carry their hash in their name, so one never takes another's place. Which
of them count, this one file says; who replaces it replaces the checkpoint.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tested_transformer.checkpoints.errors import CheckpointError
from tested_transformer.checkpoints.tensors import FileRecord
from tested_transformer.gpt import GPTConfig

__all__ = [
    "FORMAT",
    "MANIFEST",
    "TENSOR_FILE",
    "VERSION",
    "Manifest",
    "read_config",
    "tensor_file",
]

MANIFEST = "checkpoint.json"
FORMAT = "tested-transformer checkpoint"
VERSION = 1
TENSOR_FILE = re.compile(r"(model|training)-[0-9a-f]{16}\.safetensors")


def tensor_file(kind: str, sha256: str) -> str:
    """Give the name of the file of tensors with that content."""
    return f"{kind}-{sha256[:16]}.safetensors"


# --8<-- [start:manifest]
@dataclass(frozen=True)
class Manifest:
    """What ``checkpoint.json`` says.

    Args:
        config: What the model is made of.
        settings: What else the run was made with, by name: tokenizer, recipe, text.
        training: What JSON can hold of where the run stands, if it is to go on.
        files: The file of the model's weights, ``model``, and, if the run is to go
            on, that of what its optimizer remembers, ``training``.
    """

    config: GPTConfig
    settings: dict[str, Any]
    training: dict[str, Any] | None
    files: dict[str, FileRecord]

    def to_text(self) -> str:
        """Give the JSON, with a hash of it as its last entry.

        Raises:
            ValueError: If ``settings`` or ``training`` would not come back the same.
        """
        for name in ("settings", "training"):
            _check_json(name, getattr(self, name))
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        content["sha256"] = _hash(content)
        return json.dumps(content, indent=1) + "\n"

    # --8<-- [end:manifest]

    # --8<-- [start:read]
    @classmethod
    def from_text(cls, text: bytes, path: Path) -> "Manifest":
        """Read what ``to_text`` gave.

        Args:
            text: The content of the file.
            path: Where it is from, for the message of an error.

        Raises:
            CheckpointError: If it is something else, of another version, or altered.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            raise CheckpointError(f"{path} is cut short or no JSON") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise CheckpointError(f"{path} is not a checkpoint of this library")
        if content.get("version") != VERSION:
            raise CheckpointError(
                f"{path} is of version {content.get('version')!r}; "
                f"this library reads version {VERSION}"
            )
        if content.pop("sha256", None) != _hash(content):
            raise CheckpointError(f"{path} was altered: its sha256 is another")
        try:
            records = content["files"].items()
            files = {kind: FileRecord(**record) for kind, record in records}
            names = [record.file for record in (files["model"], *files.values())]
            foreign = [name for name in names if not TENSOR_FILE.fullmatch(name)]
            values, settings = content["config"], content["settings"]
            training = content["training"]
        except (AttributeError, KeyError, TypeError):
            raise CheckpointError(f"{path} lacks what a checkpoint has") from None
        if foreign:
            raise CheckpointError(f"{path} names a file {foreign[0]!r}")
        return cls(read_config(values, path), settings, training, files)

    # --8<-- [end:read]


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_json(name: str, value: Any) -> None:
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} cannot be written as JSON: {error}") from None
    if not same:
        raise ValueError(
            f"{name} would not come back from JSON as it is: it holds tuples, or "
            "keys that are no strings"
        )


def read_config(values: dict[str, Any], path: Path) -> GPTConfig:
    """Make a configuration of what a file says.

    Args:
        values: Its fields, by name.
        path: Which file, for the message of an error.

    Raises:
        CheckpointError: If this library knows no such model.
    """
    unknown = sorted(values.keys() - {field.name for field in fields(GPTConfig)})
    if unknown:
        raise CheckpointError(
            f"{path}: config has {', '.join(unknown)}, which this library does not know"
        )
    try:
        kept = values.get("kept_heads")
        if kept is not None:  # JSON has lists alone.
            values = {**values, "kept_heads": tuple(tuple(heads) for heads in kept)}
        return GPTConfig(**values)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: config: {error}") from None
