"""What there is to save, and a process that kills others while they save it.

It has one thread, so that it may fork, and each child has PyTorch at once.

    python -m tests.tested_transformer.checkpoints.killing FOLDER
"""

import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint, saving
from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=11, max_seq_len=5, d_model=6, num_heads=3, num_layers=2)


def weights_of(number: int) -> dict[str, Tensor]:
    shapes = GPT(CONFIG, device="meta").state_dict()
    return {name: torch.full(x.shape, float(number)) for name, x in shapes.items()}


def contents(number: int) -> dict[str, Any]:
    """Give what there is to save, all of it with one number."""
    return {
        "config": CONFIG,
        "weights": weights_of(number),
        "settings": {"number": number},
        "training": ({"c": torch.full((5, 700), number)}, {"number": number}),
    }


def save(folder: Path, number: int) -> None:
    save_checkpoint(folder, **contents(number))


def number_in(folder: Path) -> int:
    """Read that number, which must be the same everywhere."""
    loaded = load_checkpoint(folder)
    assert loaded.training is not None
    everywhere = {
        loaded.settings["number"],
        loaded.training[1]["number"],
        *loaded.training[0]["c"].unique().tolist(),
        *torch.cat([x.flatten() for x in loaded.weights.values()]).unique().tolist(),
    }
    assert len(everywhere) == 1
    return everywhere.pop()


class Fatal(io.FileIO):
    """A file that kills its process after some bytes, all files counted together."""

    left = 0

    def write(self, data: bytes) -> int:
        written = super().write(bytes(data)[: Fatal.left])
        Fatal.left -= written
        if not Fatal.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return written


def main(folder: Path) -> None:
    """Save number 1, and kill what saves number 2 over it in the middle of each file.

    Raises:
        AssertionError: If number 1 is not what is read then.
    """
    save(folder, 1)
    before = 0
    for kind in ("model", "training", "checkpoint.json"):
        [file] = folder.glob(f"{kind}*")
        size = file.stat().st_size
        child = os.fork()
        if child == 0:
            Fatal.left, saving.open = before + size // 2, Fatal
            try:
                save(folder, 2)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert number_in(folder) == 1
        [unfinished] = folder.glob("*.unfinished")
        assert unfinished.name == f"{kind}.unfinished"
        before += size


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
