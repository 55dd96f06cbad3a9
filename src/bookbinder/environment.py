"""Install what the book needs on this machine, and update only what has changed.

Python packages go into ``.venv``, front-end packages into ``node_modules``, and the
parts of those that the site serves into ``docs/assets/vendor``. ``make`` runs this file
before anything is installed, so it uses only the standard library. Without make, run
``python src/bookbinder/environment.py``.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The folder of an environment's programs, and their suffix.
BIN, SUFFIX = ("Scripts", ".exe") if sys.platform == "win32" else ("bin", "")
# Lies in the folder that it speaks of, and says what that was made from.
STAMP = ".made-from"
INSTALL = ("-m", "pip", "install", "--quiet", "-c", "constraints.txt")
# Every browser that KaTeX supports reads woff2.
OTHER_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)')


def set_up(root: Path) -> None:
    """Do the outstanding steps of the setup in a copy of the repository.

    Raises:
        subprocess.CalledProcessError: If a program fails, which has said why.
    """
    venv, modules = root / ".venv", root / "node_modules"
    python, npm = (venv / BIN / f"{name}{SUFFIX}" for name in ("python", "npm"))
    vendor = root / "docs/assets/vendor"
    packages = _stamp(root, "pyproject.toml", "constraints.txt")
    this_file = "src/bookbinder/environment.py"
    front_end = _stamp(root, "package.json", "package-lock.json", this_file)
    # An environment cannot be moved: its scripts contain the path of its folder.
    kept = python.exists() and _read(venv / STAMP).startswith(f"{root}\n")
    if not kept or _read(venv / STAMP) != packages:
        print("setup: Python packages into .venv: 2.3 GB, some minutes", flush=True)
        if not kept:
            _run(root, sys.executable, "-m", "venv", "--clear", ".venv")
        # If pip is interrupted, keep the environment and run pip again next time.
        (venv / STAMP).write_text(f"{root}\n", "utf-8")
        # The pip that comes with Python may be too old to know --group.
        _run(root, python, *INSTALL, "--upgrade", "pip")
        _run(root, python, *INSTALL, "-e", ".[plots,bpe,jax]", "--group", "dev")
        (venv / STAMP).write_text(packages, "utf-8")
    if _read(modules / STAMP) != front_end or not vendor.is_dir():
        print("setup: front-end packages into node_modules: 0.2 GB", flush=True)
        # npm removes the folder first, and the stamp with it.
        _run(root, npm, "ci", "--loglevel=error")
        _copy_assets(modules, vendor)
        (modules / STAMP).write_text(front_end, "utf-8")


def _stamp(root: Path, *names: str) -> str:
    digest = hashlib.sha256(b"".join((root / name).read_bytes() for name in names))
    return f"{root}\n{digest.hexdigest()}\n"


def _read(file: Path) -> str:
    return file.read_text("utf-8") if file.is_file() else ""


def _run(root: Path, *command: str | Path) -> None:
    subprocess.run(command, cwd=root, check=True)


def _copy_assets(modules: Path, vendor: Path) -> None:
    shutil.rmtree(vendor, ignore_errors=True)
    css = (modules / "katex/dist/katex.min.css").read_text("utf-8")
    (vendor / "katex/fonts").mkdir(parents=True)
    (vendor / "katex/katex.min.css").write_text(OTHER_FONTS.sub("", css), "utf-8")
    for font in (modules / "katex/dist/fonts").glob("*.woff2"):
        shutil.copy(font, vendor / "katex/fonts")
    # For diagrams that are not drawn yet, in previews; no published page uses it.
    (vendor / "mermaid").mkdir()
    shutil.copy(modules / "mermaid/dist/mermaid.min.js", vendor / "mermaid")


if __name__ == "__main__":
    try:
        set_up(ROOT)
    except (subprocess.CalledProcessError, OSError, KeyboardInterrupt) as error:
        sys.exit(
            f"setup: {str(error) or 'interrupted: the next make continues from here'}"
        )
