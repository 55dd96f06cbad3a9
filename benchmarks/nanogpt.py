"""Run nanoGPT's own training command in a copy of its files."""

import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

__all__ = ["documented_seconds", "nanogpt_run"]

EVALUATED_EVERY = 250
STEP = re.compile(r"^iter (\d+): loss [\d.]+, time ([\d.]+)ms", re.MULTILINE)


def documented_seconds(printed: str, *, steps: int) -> tuple[float, float]:
    """Return nanoGPT's own times: seconds of ``steps`` steps, and of the median step.

    Raises:
        ValueError: If steps are missing from its output.
    """
    times = {int(i): float(ms) / 1000 for i, ms in STEP.findall(printed)}
    missing = [i for i in range(steps) if i not in times]
    if missing:
        raise ValueError(f"nanoGPT printed no time for step {missing[0]} of {steps}")
    plain = [times[i] for i in range(1, steps) if i % EVALUATED_EVERY]
    median = statistics.median(plain)
    return sum(plain) + (steps - len(plain)) * median, median


def nanogpt_run(
    checkout: Path,
    text: str,
    command: str,
    *,
    steps: int,
    threads: int | None = None,
    limit: float | None = None,
) -> tuple[str, dict]:
    """Run a command of nanoGPT in a copy of its files.

    Args:
        checkout: The folder of its files.
        text: The text to learn.
        command: The arguments of ``python``.
        steps: How many steps to do; fewer than documented only to try the program out.
        threads: How many threads it may use; no limit by default.
        limit: Stop it after this many seconds.

    Returns:
        Its output, and the checkpoint after its last step, or nothing if it was
        stopped.

    Raises:
        ValueError: If it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("train.py", "model.py", "configurator.py"):
            shutil.copy(checkout / name, home)
        shutil.copytree(checkout / "config", home / "config")
        _prepare(home / "data" / "shakespeare_char", text)
        # Always save, whatever its estimate of the loss, and print every step's time;
        # everything else is as documented.
        extra = ["--always_save_checkpoint=True", "--log_interval=1"]
        if steps < EVALUATED_EVERY:
            extra += [f"--max_iters={steps}", f"--eval_interval={steps}"]
        env = os.environ | {"PYTHONUNBUFFERED": "1"}
        if threads:
            env["OMP_NUM_THREADS"] = str(threads)
        log, errors_log = home / "told.txt", home / "wrong.txt"
        with log.open("w") as output, errors_log.open("w") as errors:
            try:
                subprocess.run(
                    [sys.executable, *command.split(), *extra],
                    cwd=home,
                    stdout=output,
                    stderr=errors,
                    check=True,
                    env=env,
                    timeout=limit,
                )
            except subprocess.TimeoutExpired:
                return log.read_text("utf-8"), {}
            except subprocess.CalledProcessError:
                last = errors_log.read_text("utf-8").strip().splitlines()[-1:]
                raise ValueError(
                    f"nanoGPT's train.py failed: {' '.join(last)}"
                ) from None
        saved = home / "out-shakespeare-char" / "ckpt.pt"
        checkpoint = torch.load(saved, map_location="cpu", weights_only=True)
        return log.read_text("utf-8"), checkpoint


def _prepare(folder: Path, text: str) -> None:
    """Write the same files as nanoGPT's prepare.py, without its download."""
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    ids = torch.tensor([number[c] for c in text], dtype=torch.uint16).numpy()
    cut = int(0.9 * len(text))
    folder.mkdir(parents=True)
    ids[:cut].tofile(folder / "train.bin")
    ids[cut:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(characters), "stoi": number, "itos": characters}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
