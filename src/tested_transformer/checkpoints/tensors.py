"""Files of tensors: safetensors, which hold names and numbers, and nothing to execute.

Such a file is the length of its header in eight bytes, the header in JSON, and then
the numbers of all tensors, one after the other.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tested_transformer.checkpoints.errors import CheckpointError

__all__ = ["FileRecord", "check_file", "read_tensors", "write_tensors"]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class FileRecord:
    """What a file has to be: its name, how many bytes, and which."""

    file: str
    bytes: int
    sha256: str


# --8<-- [start:write]
def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileRecord:
    """Write tensors to a file, and wait until they have reached the disk.

    They are brought to the CPU one by one, so that this takes little memory.

    Raises:
        OSError: If the file cannot be written.
        TypeError: If the format has no name for the numbers of a tensor.
    """
    # The widest numbers first: so each one begins at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    header: dict[str, dict[str, Any]] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        header[name] = {
            "dtype": _dtype_name(name, tensors[name]),
            "shape": [*tensors[name].shape],
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for data in (len(text).to_bytes(8, "little"), text):
            file.write(data)
            digest.update(data)
        for name in names:
            data = _numbers(tensors[name])
            file.write(data)
            digest.update(data)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(path.name, 8 + len(text) + end, digest.hexdigest())


# --8<-- [end:write]


# --8<-- [start:check]
def check_file(folder: Path, record: FileRecord) -> Path:
    """Return the path of a file that is what its record says.

    Raises:
        CheckpointError: If it is missing, or is not.
        OSError: If it cannot be read.
    """
    path = folder / record.file
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    size = path.stat().st_size
    if size != record.bytes:
        wrong = "is cut short" if size < record.bytes else "is too long"
        raise CheckpointError(f"{path} {wrong}: {size} bytes, not {record.bytes}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != record.sha256:
        raise CheckpointError(
            f"{path} was altered: its sha256 begins with {found[:8]}, "
            f"not with {record.sha256[:8]}"
        )
    return path


# --8<-- [end:check]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors, whoever wrote it.

    Raises:
        CheckpointError: If it is missing, cut short, or no such file.
    """
    try:
        # Copied out of the file, which would keep its room on the disk when removed.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is cut short or no file of safetensors: {error}"
        ) from None


def _dtype_name(name: str, tensor: Tensor) -> str:
    if tensor.dtype not in _DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise TypeError(f"{name} is {tensor.dtype}, and must be one of {known}")
    return _DTYPES[tensor.dtype]


def _numbers(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
