"""Token ids in a file that is mapped into memory, so that more fit than the memory.

The file is a line of JSON, filled up with spaces to 256 bytes, and then the ids one
after the other, in as few bytes each as the largest of them needs.
"""

import hashlib
import json
import sys
from ctypes import c_char
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Integer
from torch import Tensor

from tested_transformer.data.files import write_whole

__all__ = ["open_tokens", "save_tokens"]

_HEADER_SIZE = 256
_FORMAT = "tested-transformer tokens 1"
_DTYPES = {
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "int32": torch.int32,
    "int64": torch.int64,
}


# --8<-- [start:save]
def save_tokens(path: str | Path, tokens: Integer[Tensor, "N"]) -> None:
    """Write token ids to a file for ``open_tokens``, whole or not at all.

    Raises:
        ValueError: If there are none, or one is negative.
        OSError: If the file cannot be written.
    """
    if not len(tokens):
        raise ValueError("there are no tokens to save")
    # Not every whole-number type of PyTorch can be compared.
    wide = tokens.detach().cpu().long()
    least, most = int(wide.min()), int(wide.max())
    if least < 0:
        raise ValueError(f"token ids must not be negative; the least is {least}")
    name = next(n for n, dtype in _DTYPES.items() if most <= torch.iinfo(dtype).max)
    narrow = wide.to(_DTYPES[name])
    # A tensor would need NumPy to give its bytes, and this library does not need it.
    data = memoryview((c_char * narrow.nbytes).from_address(narrow.data_ptr()))
    header = {
        "format": _FORMAT,
        "dtype": name,
        "byteorder": sys.byteorder,
        "length": len(tokens),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    line = json.dumps(header).ljust(_HEADER_SIZE - 1) + "\n"
    write_whole(Path(path), [line.encode("ascii"), data])


# --8<-- [end:save]


# --8<-- [start:open]
def open_tokens(path: str | Path, *, verify: bool = True) -> Integer[Tensor, "N"]:
    """Map the token ids of a file into memory; they are read when they are needed.

    Args:
        path: A file that ``save_tokens`` wrote.
        verify: Compare the checksum, which reads all of the file once.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not such a file, was cut short or altered, or is from a
            machine with another order of bytes.
    """
    path = Path(path)
    with path.open("rb") as file:
        header = _read_header(file.read(_HEADER_SIZE), path)
        digest = hashlib.file_digest(file, "sha256") if verify else None
    if header["byteorder"] != sys.byteorder:
        raise ValueError(
            f"{path} is {header['byteorder']}-endian, and this machine is "
            f"{sys.byteorder}-endian"
        )
    dtype = _DTYPES[header["dtype"]]
    wanted = _HEADER_SIZE + header["length"] * dtype.itemsize
    size = path.stat().st_size
    if size != wanted:
        raise ValueError(f"{path} has {size} bytes, and {wanted} were written")
    if digest and digest.hexdigest() != header["sha256"]:
        raise ValueError(f"{path} was altered: its sha256 is not that of its tokens")
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return whole[_HEADER_SIZE:].view(dtype)


# --8<-- [end:open]


def _read_header(line: bytes, path: Path) -> dict[str, Any]:
    header: dict[str, Any] = {}
    try:
        header = json.loads(line)
        right = (
            header["format"] == _FORMAT
            and header["dtype"] in _DTYPES
            and isinstance(header["length"], int)
            and header["length"] > 0
            and {"byteorder", "sha256"} <= set(header)
        )
    except (ValueError, KeyError, TypeError):
        right = False
    if not right:
        raise ValueError(f"{path} is not a file of tokens, as save_tokens writes it")
    return header
