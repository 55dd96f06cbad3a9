"""Run pip and npm so that whatever goes wrong comes back as one line."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from bookbinder.installation.reasons import reason

__all__ = ["Installer", "SetupError"]

# GB of free disk, measured with PyTorch's build for CPUs and rounded up.
_SPACE_FOR_PACKAGES = 3.2
_SPACE_FOR_DOWNLOADS = 0.5
_SPACE_FOR_NODE_MODULES = 0.5


class SetupError(Exception):
    """One line on what went wrong and what is wanted."""


@dataclass(frozen=True)
class Installer:
    """What installs, in one copy of the repository.

    Args:
        root: The folder of the repository.
        log: Takes all that pip and npm say; open for appending and reading.
    """

    root: Path
    log: TextIO

    @property
    def python(self) -> Path:
        """The Python of the environment."""
        return self.root / ".venv" / "bin" / "python"

    def make_environment(self) -> None:
        """Make ``.venv`` anew, empty but for pip.

        Raises:
            SetupError: If this Python cannot make it, or the disk is too full.
        """
        for module in ["venv", "ensurepip"]:
            # Debian takes them out of its Python, and puts them into a package.
            if importlib.util.find_spec(module) is None:
                package = "python{}.{}-venv".format(*sys.version_info)
                raise SetupError(
                    f"Python's own module {module} is wanted, and is not installed:"
                    f" on Debian and Ubuntu, apt install {package}"
                )
        self._require_space(self.root / ".venv", _SPACE_FOR_PACKAGES)
        self.run(sys.executable, "-m", "venv", "--clear", ".venv")

    def install_packages(self) -> None:
        """Install what ``pyproject.toml`` names, as ``constraints.txt`` pins it.

        Raises:
            SetupError: If pip fails.
        """
        self._require_space(Path(tempfile.gettempdir()), _SPACE_FOR_DOWNLOADS)
        install = [self.python, "-m", "pip", "install", "--progress-bar", "off"]
        install += [*self._patience(), "-c", "constraints.txt"]
        # The pip that comes with Python may be too old to know dependency groups.
        self.run(*install, "--upgrade", "pip")
        self.run(*install, "-e", ".[plots,bpe,jax]", "--group", "dev")

    def install_node_modules(self) -> None:
        """Install what ``package-lock.json`` pins, with the environment's own node.

        Raises:
            SetupError: If npm fails.
        """
        # Asked before, because npm 11 fills a disk, leaves files out and exits with 0.
        self._require_space(self.root, _SPACE_FOR_NODE_MODULES)
        npm = self.python.with_name("npm")
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        patience = ["--fetch-retries=1", "--fetch-retry-mintimeout=2000"]
        self.run(npm, "ci", "--no-update-notifier", *quiet, *patience)

    def copy_assets(self) -> None:
        """Copy what the site serves out of ``node_modules``.

        Raises:
            SetupError: If a file is not there.
        """
        self.run(self.python, "-m", "bookbinder.installation.vendor")

    def pip_runs(self) -> bool:
        """Return whether the environment has a pip that is whole."""
        try:
            self.run(self.python, "-m", "pip", "--version")
        except (SetupError, OSError):
            return False
        return True

    def run(self, *command: str | Path) -> str:
        """Run a command in the repository and return what it printed.

        Raises:
            SetupError: If the command fails.
        """
        print("$", *command, file=self.log, flush=True)
        start = self.log.tell()
        status = subprocess.run(
            command,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        ).returncode
        self.log.seek(start)
        output = self.log.read()
        if status:
            raise SetupError(reason(output))
        return output

    def _patience(self) -> list[str]:
        """Let pip give up soon, but for what the user's own settings say."""
        settings = self.run(self.python, "-m", "pip", "config", "list").splitlines()
        names = {line.partition("=")[0].rpartition(".")[2] for line in settings}
        retries = [] if "retries" in names else ["--retries", "2"]
        timeout = [] if {"timeout", "default-timeout"} & names else ["--timeout", "20"]
        return retries + timeout

    def _require_space(self, place: Path, wanted: float) -> None:
        place = place.resolve()
        while not place.exists():
            place = place.parent
        free = shutil.disk_usage(place).free / 1e9
        if free < wanted:
            raise SetupError(
                f"the disk is too full: {wanted} GB are wanted at {place},"
                f" {free:.1f} GB are free"
            )
