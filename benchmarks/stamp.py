"""Where, when and with what a measurement was taken."""

import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import torch

__all__ = ["commit", "dirty", "fingerprint", "shown_command", "stamp"]

ROOT = Path(__file__).resolve().parents[1]


def stamp(arguments: Sequence[str], *, threads: int, peers: dict[str, str]) -> dict:
    """Describe this run.

    Args:
        arguments: What stood on the command line.
        threads: How many threads PyTorch was allowed, where nothing else is said.
        peers: Which version of each peer was measured.
    """
    on_gpu = torch.cuda.is_available()
    return {
        "command": shown_command(arguments),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "dirty": dirty(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "cpu": _cpu_model(),
        "cores": torch.multiprocessing.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peers": peers,
    }


def commit() -> str:
    """Name the commit that is checked out."""
    return _git("rev-parse", "HEAD") or "unknown"


def dirty() -> bool:
    """Say whether that commit is not what runs; pages may be at work."""
    return bool(_git("status", "--porcelain", "--", "src", "benchmarks"))


def shown_command(arguments: Sequence[str]) -> str:
    """Write the command as anyone could give it: with PATH for each path."""
    shown: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_path = "/" in value or "/" in argument or "\\" in argument
        shown.append((f"{name}=PATH" if equals else "PATH") if is_path else argument)
    return " ".join(["python -m benchmarks", *shown])


def fingerprint(*files: Path) -> str:
    """Name what is in ``files``, so that another can see if theirs is the same."""
    digest = sha256()
    for file in files:
        digest.update(file.read_bytes())
    return f"sha256:{digest.hexdigest()[:16]}"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
