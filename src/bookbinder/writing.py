"""Write a file completely or not at all."""

import os
import tempfile
from pathlib import Path


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file, and create its folder if necessary."""
    data = content.encode() if isinstance(content, str) else content
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "wb", dir=file.parent, suffix=".part", delete=False
    ) as part:
        part.write(data)
    os.chmod(part.name, 0o644)
    os.replace(part.name, file)
