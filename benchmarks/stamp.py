"""Records: results, with the machine, the date and the code that was measured.

A record is a file in ``src/transformer_book/records``. Pages read it with
``load_record``, so it ships with the library. Its stamp contains a hash of every module
of this repository that took part. ``python -m benchmarks outdated`` compares these
hashes with the present code.
"""

import ast
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

__all__ = [
    "changed_modules",
    "commit",
    "dirty",
    "fingerprint",
    "modules_used",
    "shown_command",
    "stamp",
    "write_record",
]

ROOT = Path(__file__).resolve().parents[1]

# These only parse, stamp and print; results do not depend on them.
_FRAME = {
    *("benchmarks/__main__.py", "benchmarks/registry.py"),
    *("benchmarks/stamp.py", "benchmarks/printing.py"),
    "src/transformer_book/__init__.py",
}


def stamp(
    arguments: Sequence[str], *, threads: int, peers: dict[str, str]
) -> dict[str, Any]:
    """Describe a run after it has ended, when all modules it needs are loaded.

    Args:
        arguments: The arguments of the command line.
        threads: How many threads PyTorch could use, unless a result says otherwise.
        peers: The version of each peer that was measured.
    """
    on_gpu = torch.cuda.is_available()
    return {
        "command": shown_command(arguments),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": torch.multiprocessing.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peers": peers,
        "modules": modules_used(),
    }


def modules_used() -> dict[str, str]:
    """Return a hash of each module of this repository that has been imported."""
    files = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    paths = {Path(file).resolve() for file in files if file}
    used = sorted(
        path.relative_to(ROOT).as_posix()
        for path in paths
        if path.is_relative_to(ROOT / "src" / "tested_transformer")
        or path.is_relative_to(ROOT / "src" / "attention_check")
        or path.is_relative_to(ROOT / "benchmarks")
    )
    return {name: fingerprint(ROOT / name) for name in used if name not in _FRAME}


def changed_modules(record: dict[str, Any]) -> list[str]:
    """Return the modules that have changed since a record was made, or are gone.

    Comments and docstrings don't count, provided that git has the record's commit.
    """
    made_at = record["stamp"].get("commit", "")
    return [
        name
        for name, hashed in record["stamp"]["modules"].items()
        if not (ROOT / name).is_file()
        or (
            fingerprint(ROOT / name) != hashed
            and not _same_program(name, made_at, hashed)
        )
    ]


def _same_program(name: str, made_at: str, hashed: str) -> bool:
    """Tell whether a file does what it did when a record was made with it."""
    before = _git("show", f"{made_at}:{name}")
    if not before or _hash(before.encode()) != hashed:
        return False  # no such commit here, or more than that commit was measured
    return _program(before) == _program((ROOT / name).read_text("utf-8"))


def _program(source: str) -> str:
    """Return a program without its comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def write_record(file: Path, record: dict[str, Any]) -> None:
    """Write a record."""
    file.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def commit() -> str:
    """Return the commit that is checked out."""
    return _git("rev-parse", "HEAD").strip() or "unknown"


def dirty() -> bool:
    """Return whether ``src`` or ``benchmarks`` has uncommitted changes."""
    return bool(_git("status", "--porcelain", "--", "src", "benchmarks"))


def shown_command(arguments: Sequence[str]) -> str:
    """Return the command as typed, but with PATH in place of each path."""
    shown: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_path = "/" in value or "/" in argument or "\\" in argument
        shown.append((f"{name}=PATH" if equals else "PATH") if is_path else argument)
    return " ".join(["python -m benchmarks", *shown])


def fingerprint(*files: Path) -> str:
    """Return a hash of the content of ``files``."""
    return _hash(b"".join(file.read_bytes() for file in files))


def _hash(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()[:16]}"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
