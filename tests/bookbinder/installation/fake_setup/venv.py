"""Stands before the standard library's venv: makes an environment of fake tools."""

import shutil
import sys
from pathlib import Path

FAKES = Path(__file__).parent
CLEAR, FOLDER = sys.argv[1:]
assert CLEAR == "--clear"
with (FAKES / "calls").open("a") as calls:
    print("venv", file=calls)
shutil.rmtree(FOLDER, ignore_errors=True)
TOOLS = Path(FOLDER, "bin")
TOOLS.mkdir(parents=True)
for name in ["python", "npm"]:
    shutil.copy(FAKES / "tool", TOOLS / name)
