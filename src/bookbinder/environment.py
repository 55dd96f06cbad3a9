"""Install what the book needs on this machine, and update only what has changed.

Python packages go into ``.venv``, front-end packages into ``node_modules``, and the
parts of those that the site serves into ``docs/assets/vendor``. ``make`` runs this file
before anything is installed, so it uses only the standard library. Without make, run
``python src/bookbinder/environment.py``.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

if sys.platform == "win32":  # no flock: two terminals do not wait for each other
    flock = None
else:
    from fcntl import LOCK_EX, flock

__all__ = ["SetupError", "main", "set_up"]

ROOT = Path(__file__).resolve().parents[2]
LOG = ".cache/setup.log"
# The folder of an environment's programs, and their suffix.
BIN, SUFFIX = ("Scripts", ".exe") if sys.platform == "win32" else ("bin", "")
# Lies in the folder that it speaks of, and says what that was made from.
STAMP = ".made-from"
INSTALL = ("-m", "pip", "install", "--progress-bar=off", "-c", "constraints.txt")
# Every browser that KaTeX supports reads woff2.
OTHER_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)')
# Explanations that the last lines of pip, npm and venv lack.
REASONS = {
    r"ensurepip is not|No module named '?(?:venv|ensurepip)": (
        "Python's venv module is missing: on Debian or Ubuntu, apt install "
        "python{}.{}-venv".format(*sys.version_info)
    ),
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError"
    r"|ENOTFOUND|EAI_AGAIN|ECONN|ETIMEDOUT|Network is unreachable": (
        "no network: the package index does not answer (a proxy? set HTTPS_PROXY)"
    ),
}


class SetupError(Exception):
    """The setup failed; the message says why, and what to do about it."""


def set_up(root: Path, *, named: bool = False) -> None:
    """Do the outstanding steps of the setup in a copy of the repository.

    Args:
        root: The folder of the repository.
        named: Whether the user named this Python, so that the ``.venv`` of another
            Python is replaced.

    Raises:
        SetupError: If a program fails.
    """
    venv, modules = root / ".venv", root / "node_modules"
    python, npm = (venv / BIN / f"{name}{SUFFIX}" for name in ("python", "npm"))
    vendor = root / "docs/assets/vendor"
    packages = _stamp(root, "pyproject.toml", "constraints.txt")
    ours = "src/bookbinder/environment.py"
    front_end = _stamp(root, "package.json", "package-lock.json", ours)
    # An environment cannot be moved: its scripts contain the path of its folder.
    kept = python.exists() and _read(venv / STAMP).startswith(f"{root}\n")
    version = "version = {}.{}.".format(*sys.version_info)
    kept = kept and not (named and version not in _read(venv / "pyvenv.cfg"))
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
    done = subprocess.run(command, cwd=root, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    said = done.stdout.decode(errors="replace")
    (root / LOG).write_text(said, "utf-8")
    if done.returncode:
        known = [line for sign, line in REASONS.items() if re.search(sign, said)]
        last = [line.strip() for line in said.splitlines() if line.strip()][-3:]
        raise SetupError(f"{(known or [' / '.join(last)])[0]} (all of it: {LOG})")


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


def main() -> None:
    """Set up the repository that this file is in."""
    try:
        (ROOT / LOG).parent.mkdir(exist_ok=True)
        with (ROOT / LOG).open("a") as lock:
            # If two terminals run the setup at once, the second waits for the first.
            if flock is not None:
                flock(lock, LOCK_EX)
            # make passes PYTHON on only if the user has set it.
            set_up(ROOT, named="PYTHON" in os.environ)
    except (SetupError, OSError, KeyboardInterrupt) as error:
        line = str(error) or "interrupted: the next make continues from here"
        sys.exit(f"setup: {line}")


if __name__ == "__main__":
    main()
