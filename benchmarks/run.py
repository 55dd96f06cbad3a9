"""What a run of a measurement is given: its options, and the text that it reads."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["SETS", "Results", "Run"]

Results = dict[str, object] | str
SETS = ("learning", "held_out", "unseen", "fourth")  # of public modules


@dataclass(frozen=True)
class Run:
    """What the command line asks of a measurement, by the names of its options."""

    quick: bool = False
    threads: int = 2
    out: Path | None = None
    shakespeare: Path | None = None
    nanogpt: Path | None = None
    mingpt: Path | None = None
    llms_from_scratch: Path | None = None
    projects: Path | None = None
    parts: Path | None = None
    set: str = ""
    only: str = ""
    verbose: bool = False

    def text(self) -> str:
        """Return tiny Shakespeare.

        Raises:
            ValueError: If it is missing, unreadable, or not tiny Shakespeare.
        """
        path = self.shakespeare
        if path is None:
            raise ValueError("--shakespeare must be given: a path to tiny Shakespeare")
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--shakespeare={path} cannot be read: {error}") from None
        if (number := len(set(text))) != 65:
            raise ValueError(
                f"--shakespeare={path} has {number} different characters; "
                "tiny Shakespeare has 65"
            )
        return text

    def tokens(self) -> Tensor:
        """Return its characters as sorted ids.

        Raises:
            ValueError: As ``text`` does.
        """
        text = self.text()
        number = {character: index for index, character in enumerate(sorted(set(text)))}
        return torch.tensor([number[character] for character in text])
