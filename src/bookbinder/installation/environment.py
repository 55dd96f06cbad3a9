"""Make what the book needs on this machine, once, and again only where it changed.

Three steps: Python packages into ``.venv``, front-end packages into ``node_modules``,
and what the site serves of them into ``docs/assets/vendor``. A step leaves its mark, a
digest of all that it was made from, after it is done; the mark is taken away before it
begins, so that an interrupted setup is taken up again. Standard library only, as in all
that it imports: nothing is installed yet when this runs.
"""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bookbinder.installation.installing import Installer, SetupError
from bookbinder.installation.reasons import reason

__all__ = ["Environment", "main"]

_LOG = Path(".cache", "setup.log")
# What pip reads of pyproject.toml: a new setting of ruff's is no reason to install.
_TABLES_OF_PIP = ["build-system", "project", "dependency-groups"]
# Does the environment's Python start, which one is it, and has it pip?
_PROBE = """
import importlib.util, sys
print(*sys.version_info[:3], sep=".")
sys.exit(importlib.util.find_spec("pip") is None)
"""


@dataclass(frozen=True)
class Step:
    """One part of the setup."""

    name: str
    note: str
    # What the step makes, and the digest of all that it makes it from.
    made: Path
    digest: Callable[[], str]
    work: Callable[[Installer], None]


class Environment:
    """What the setup makes in one copy of the repository.

    Args:
        root: The folder of the repository.
        version: The Python that is asked for, like ``3.12``; None keeps the one that
            the environment has.
    """

    def __init__(self, root: Path, version: str | None = None) -> None:
        self.root, self.version = root, version
        self.python = root / ".venv" / "bin" / "python"
        self.marks_file = root / ".venv" / "setup.json"
        self.steps = [
            Step(
                "packages",
                "Python packages into .venv: 2.3 GB, several more where PyTorch comes"
                " with CUDA; minutes",
                self.python,
                self._digest_of_packages,
                self._make_packages,
            ),
            Step(
                "node",
                "front-end packages into node_modules: 0.2 GB; half a minute",
                root / "node_modules",
                lambda: self._digest("package.json", "package-lock.json"),
                Installer.install_node_modules,
            ),
            Step(
                "assets",
                "fonts and scripts into docs/assets/vendor",
                root / "docs" / "assets" / "vendor",
                lambda: self._digest(
                    "package-lock.json", "src/bookbinder/installation/vendor.py"
                ),
                Installer.copy_assets,
            ),
        ]

    def is_ready(self) -> bool:
        """Return whether nothing is left to do."""
        return all(self._is_done(step) for step in self.steps)

    def make_ready(self) -> None:
        """Do what is left to do, and say what it is.

        Raises:
            SetupError: If a step fails.
            OSError: If a folder or a file cannot be made.
        """
        log_file = self.root / _LOG
        log_file.parent.mkdir(exist_ok=True)
        with log_file.open("a+", encoding="utf-8", errors="replace") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _say("another setup is at work here: waiting for it")
                fcntl.flock(log, fcntl.LOCK_EX)
            log.truncate(0)
            start = time.monotonic()
            for step in self.steps:
                if self._is_done(step):
                    continue
                _say(step.note)
                self._mark(step.name, "")
                step.work(Installer(self.root, log))
                self._mark(step.name, step.digest())
            _say(f"done in {time.monotonic() - start:.0f} s")

    def _is_done(self, step: Step) -> bool:
        return step.made.exists() and self._marks().get(step.name) == step.digest()

    def _make_packages(self, installer: Installer) -> None:
        # An environment cannot be moved: its scripts name the folder it was made in.
        moved = self._marks().get("root", str(self.root)) != str(self.root)
        if moved or not self._version_there() or not installer.pip_runs():
            installer.make_environment()
        self._mark("root", str(self.root))
        installer.install_packages()

    def _digest_of_packages(self) -> str:
        try:
            project = tomllib.loads((self.root / "pyproject.toml").read_text("utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise SetupError(f"pyproject.toml: {error}") from None
        tables = {name: project.get(name) for name in _TABLES_OF_PIP}
        also = json.dumps([self._version_there(), str(self.root), tables])
        return self._digest("constraints.txt", also=also)

    def _digest(self, *paths: str, also: str = "") -> str:
        digest = hashlib.sha256(also.encode())
        for path in paths:
            content = (self.root / path).read_bytes()
            digest.update(f"{path} {len(content)} ".encode() + content)
        return digest.hexdigest()

    def _version_there(self) -> str:
        """Return the version of the environment's Python, "" if it will not do."""
        command = [self.python, "-c", _PROBE]
        try:
            probe = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        version = probe.stdout.strip()
        short = version.rpartition(".")[0]
        return version if self.version in (None, short) else ""

    def _marks(self) -> dict[str, str]:
        try:
            return dict(json.loads(self.marks_file.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def _mark(self, name: str, mark: str) -> None:
        if self.marks_file.parent.is_dir():
            marks = json.dumps({**self._marks(), name: mark})
            self.marks_file.write_text(marks, encoding="utf-8")


def _say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def main() -> int:
    """Set up the repository that this file is in; return the exit status."""
    # make hands PYTHON on only when the user has named one.
    asked = "{}.{}".format(*sys.version_info) if "PYTHON" in os.environ else None
    environment = Environment(Path(__file__).resolve().parents[3], asked)
    try:
        if not environment.is_ready():
            environment.make_ready()
    except SetupError as error:
        line = str(error)
    except OSError as error:
        line = reason(str(error))
    except KeyboardInterrupt:
        line = "interrupted; the next run takes it up again"
    else:
        return 0
    log = environment.root / _LOG
    story = f" (log: {_LOG})" if log.is_file() and log.stat().st_size else ""
    print(f"setup: {line}{story}", file=sys.stderr)
    return 1
