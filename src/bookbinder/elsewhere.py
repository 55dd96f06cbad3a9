"""``python -m bookbinder.elsewhere``: run pages and tests as if on other machines.

Each setting makes this machine behave like one that a reader may have. A test that
passes here but fails there is too strict: it depends on the last digit of a sum, or on
the rounding of one processor. Name settings and paths to run only these; options are
pytest's.
"""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, dict[str, str]] = {
    # Instructions that PyTorch and oneDNN may not use.
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "scalar": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    # The first name is read by tests, the second by pages.
    "threads-1": {"OMP_NUM_THREADS": "1", "BOOK_THREADS": "1"},
    "threads-2": {"OMP_NUM_THREADS": "2", "BOOK_THREADS": "2"},
    "threads-4": {"OMP_NUM_THREADS": "4", "BOOK_THREADS": "4"},
    "bf16": {"BOOK_AUTO_PRECISION": "bf16"},
    "fp32": {"BOOK_AUTO_PRECISION": "fp32"},
    "seed": {"BOOK_SEED": "20171"},
}
FOLDERS = ("training", "cli", "checkpoints", "decoding", "data")
PATHS = ["docs/chapters", *(f"tests/tested_transformer/{name}" for name in FOLDERS)]


def pytest_configure() -> None:
    """Make ``precision="auto"`` choose BOOK_AUTO_PRECISION on a CPU.

    It makes steps in that precision appear faster, in the process of the tests alone:
    this module is their plugin, too.
    """
    if precision := os.environ.get("BOOK_AUTO_PRECISION"):
        from tested_transformer.training import devices

        patch.object(devices, "faster_precision", return_value=precision).start()


def main(words: list[str]) -> int:
    """Run pytest under each setting, and list what failed; return 1 if anything has."""
    names = [word for word in words if word in SETTINGS] or [*SETTINGS]
    rest = [word for word in words if word not in SETTINGS]
    if not any((ROOT / word.partition("::")[0]).exists() for word in rest):
        rest += PATHS
    command = [sys.executable, "-m", "pytest", "-p", "bookbinder.elsewhere", *rest]
    failed: list[str] = []
    for name in names:
        print(f"{name}: {SETTINGS[name]}", flush=True)
        if subprocess.run(
            command, cwd=ROOT, env=os.environ | SETTINGS[name]
        ).returncode:
            failed.append(name)
    print("failed:", *failed or ["none"])
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
