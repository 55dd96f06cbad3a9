"""Files written whole or not at all."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

__all__ = ["write_whole"]


# --8<-- [start:whole]
def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file so that whoever opens it finds the old content or all of the new.

    The bytes go to a file beside it, reach the disk, and only then take its name.
    If anything fails on the way, nothing is left behind.

    Raises:
        OSError: If the folder cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


# --8<-- [end:whole]
