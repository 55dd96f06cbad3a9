"""A process of its own, that starts others and kills them while they save.

It has one thread, so that it may fork, and each child has PyTorch at once. What it
found, it prints as JSON, for the tests that start it.

    python killing.py at_each_line FOLDER
    python killing.py after_some_bytes FOLDER
"""

import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from tested_transformer.checkpoints import (
    load_checkpoint,
    save_checkpoint,
    saving,
)
from tested_transformer.gpt import GPT, GPTConfig

# What changes files. The rest only computes what they hold.
WRITING = {saving.__file__}
CONFIG = GPTConfig(
    vocab_size=11, max_seq_len=8, d_model=12, num_heads=3, num_layers=2, dropout=0.1
)
WEIGHTS = GPT(CONFIG).state_dict().items()


def in_a_child(work: Callable[[], None]) -> int:
    """Start a copy of this process that does ``work`` and ends; give its number."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def end_of(child: int) -> str:
    """Wait for a child to end, and say how it did."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "done", -signal.SIGKILL: "killed"}.get(status, f"failed: {status}")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save_numbered(folder: Path, number: int) -> None:
    """Save tensors and values that all have the same number."""
    save_checkpoint(
        folder,
        config=CONFIG,
        weights={name: torch.full(x.shape, float(number)) for name, x in WEIGHTS},
        settings={"number": number},
        training=({"c": torch.full((5,), number)}, {"number": number}),
    )


def number_in(folder: Path) -> int:
    """Read that number, which must be the same everywhere."""
    found = load_checkpoint(folder)
    (number,) = {
        found.settings["number"],
        found.training[1]["number"],
        *found.training[0]["c"].tolist(),
        *torch.cat([x.flatten() for x in found.weights.values()]).unique().tolist(),
    }
    return number


def die_at_line(number: int) -> None:
    """Have this process killed before the given line of the library."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename not in WRITING:
            return None
        if event == "line":
            count += 1
            if count == number:
                die()
        return trace

    sys.settrace(trace)


def at_each_line(folder: Path) -> list[dict]:
    """Kill a process that saves number 2 over 1 before its first line, its second...

    Returns:
        What is there then, each thing once: how the process ended, which number is read
        and which files lie there; and, after number 3 was saved on top of that, the
        number and how many files.
    """
    save_numbered(folder / "before", 1)
    found: list[dict] = []
    read: dict[tuple[bytes, ...], int] = {}  # what was found in such files before
    ended, line = "killed", 0
    while ended == "killed":
        line += 1
        place = folder / str(line)
        shutil.copytree(folder / "before", place)

        def work(place=place, line=line):
            die_at_line(line)
            save_numbered(place, 2)

        ended = end_of(in_a_child(work))
        files = sorted(file.name for file in place.iterdir())
        content = (*map(str.encode, files), *((place / f).read_bytes() for f in files))
        if content not in read:
            read[content] = number_in(place)
        there = {"ended": ended, "number": read[content], "files": files}
        if not found or any(found[-1][name] != what for name, what in there.items()):
            save_numbered(place, 3)
            after = {"next": number_in(place), "files_next": len(os.listdir(place))}
            found.append({**there, **after})
    return found


class Fatal(io.FileIO):
    """A file that kills its process after some bytes, all files counted together."""

    left = 0

    def write(self, data: bytes) -> int:
        written = super().write(bytes(data)[: Fatal.left])
        Fatal.left -= written
        if not Fatal.left:
            die()
        return written


def after_some_bytes(folder: Path) -> list[dict]:
    """Kill processes that save number 2 over 1, in the middle of each of its files.

    Returns:
        For each, how it ended, which number is read then, and what it left unfinished.
    """
    save_numbered(folder, 1)
    found: list[dict] = []
    before = 0
    places: list[int] = []
    for kind in ("model", "training", "checkpoint.json"):
        [file] = folder.glob(f"{kind}*")
        size = file.stat().st_size
        places += [before + 1, before + size // 2]
        before += size
    for left in places:

        def work(left=left):
            Fatal.left = left
            saving.open = Fatal
            save_numbered(folder, 2)

        ended = end_of(in_a_child(work))
        unfinished = [file.name for file in folder.glob("*.unfinished")]
        found.append({"ended": ended, "number": number_in(folder), "left": unfinished})
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    what = {"at_each_line": at_each_line, "after_some_bytes": after_some_bytes}
    print(json.dumps(what[sys.argv[1]](Path(sys.argv[2]))))
