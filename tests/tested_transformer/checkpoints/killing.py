"""A process of its own, that starts others and kills them while they save.

It has one thread, so that it may fork, and each child has PyTorch at once. What it
found, it prints as JSON, for the tests that start it.

    python killing.py at_each_line FOLDER
    python killing.py at_random_moments FOLDER
"""

import io
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from tested_transformer.checkpoints import (
    CheckpointWriter,
    has_checkpoint,
    load_checkpoint,
    save_checkpoint,
    saving,
)
from tested_transformer.checkpoints.configs import describe_config
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, TrainingState, train

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


# At each line that is executed in the library while it saves.


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

    def trace(frame: FrameType, event: str, _: object) -> Callable | None:
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

        def work(place: Path = place, line: int = line) -> None:
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


# At random moments of a run that trains.

TOKENS = torch.arange(500) ** 2 % CONFIG.vocab_size
RECIPE = Recipe(
    steps=160,
    batch_size=4,
    warmup=5,
    evaluate_every=40,
    optimizer="muon",
    precision="fp32",
)


def run(folder: Path, on_step: Callable[[object], None] | None = None) -> None:
    """Train from where the run stands, or from the start, to the end."""
    torch.manual_seed(0)
    model, state = GPT(CONFIG), None
    if has_checkpoint(folder):
        found = load_checkpoint(folder)
        found.require({"config": describe_config(CONFIG), "recipe": RECIPE.to_dict()})
        model, state = found.model(), TrainingState.from_state(*found.training)
    with CheckpointWriter(folder) as writer:

        def save(state: TrainingState) -> None:
            writer.save(
                config=CONFIG,
                weights=state.weights,
                settings={"recipe": RECIPE.to_dict()},
                training=(state.state_tensors(), state.state_json()),
            )

        train(
            model,
            TOKENS,
            RECIPE,
            validation=TOKENS[:100],
            state=state,
            on_step=on_step,
            save=save,
            save_every=2,
        )


class Fatal(io.FileIO):
    """A file that kills its process after so many bytes, all files counted together."""

    left = 0

    def write(self, data: bytes) -> int:
        written = super().write(bytes(data)[: Fatal.left])
        Fatal.left -= written
        if not Fatal.left:
            die()
        return written


def kill_while_it_writes(folder: Path, draw: random.Random) -> str:
    """Have a run killed after it has written a number of bytes."""

    def work() -> None:
        Fatal.left = draw.randrange(1, 200_000)
        saving.open = Fatal
        run(folder)

    return end_of(in_a_child(work))


def kill_by_the_clock(folder: Path, draw: random.Random) -> str:
    """Kill a run some milliseconds after some step, whatever it is doing then."""
    readable, writable = os.pipe()

    def work() -> None:
        os.close(readable)
        run(folder, on_step=lambda _: os.write(writable, b"."))

    child = in_a_child(work)
    os.close(writable)
    for _ in range(draw.randrange(0, 6)):
        os.read(readable, 1)
    time.sleep(draw.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.close(readable)
    return end_of(child)


def at_random_moments(folder: Path) -> dict:
    """Kill a run twenty times, let it end, and compare it with one that was not."""
    unbroken, broken = folder / "unbroken", folder / "broken"
    torch.optim.AdamW([torch.zeros(1)])  # imports much, once here for all children
    ended = [end_of(in_a_child(lambda: run(unbroken)))]
    draw = random.Random(5)
    kills: list[dict] = []
    for kill in [kill_by_the_clock, kill_while_it_writes] * 10:
        how = kill(broken, draw)
        stands = 0
        if has_checkpoint(broken):
            stands = load_checkpoint(broken).training[1]["step"]
        left = [file.name for file in broken.glob("*.unfinished")]
        kills.append({"how": how, "step": stands, "left": left})
    ended.append(end_of(in_a_child(lambda: run(broken))))
    one, other = load_checkpoint(unbroken), load_checkpoint(broken)
    differing = [
        *_differing(one.weights, other.weights),
        *_differing(one.training[0], other.training[0]),
    ]
    values = [{**each.training[1], "seconds": 0} for each in (one, other)]
    return {
        "ended": ended,
        "kills": kills,
        "steps": one.training[1]["step"],
        "compared": len(one.weights) + len(one.training[0]),
        "differing": differing + ([] if values[0] == values[1] else ["values"]),
        "files": sorted(file.suffix for file in broken.iterdir()),
    }


def _differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    return [
        name
        for name in one.keys() | other.keys()
        if name not in one
        or name not in other
        or not torch.equal(one[name], other[name])
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    what = {"at_each_line": at_each_line, "at_random_moments": at_random_moments}
    print(json.dumps(what[sys.argv[1]](Path(sys.argv[2]))))
