"""What the tools of make lint say of one page, told as the book's own checks are."""

import re
import subprocess
import sys
from pathlib import Path

from bookbinder.drawing.katex import node
from bookbinder.page import Problem

__all__ = ["markdown_problems", "spelling_problems"]

_MISSPELT = re.compile(r"^.*?:(?P<line>\d+): (?P<wrong>\S+) ==> (?P<right>.*)$", re.M)
_RULE = re.compile(
    r"^.*?:(?P<line>\d+)(?::\d+)? (?:error )?(?P<rule>MD\d+)/\S+ (?P<what>.*)$", re.M
)
_SCRIPT = Path("node_modules", "markdownlint-cli2", "markdownlint-cli2-bin.mjs")


def spelling_problems(path: str, root: Path) -> list[Problem]:
    """Ask codespell.

    Args:
        path: The page, from the root.
        root: The repository.

    Raises:
        RuntimeError: If it does not run; the message is its own.
    """
    codespell = Path(sys.executable).with_name("codespell")
    told = _told([str(codespell), path], root, found=65)
    return [
        Problem(
            path,
            int(each["line"]),
            f"{each['wrong']!r} is a common misspelling: write {each['right']}, or, "
            "if it is right, add it to ignore-words-list in pyproject.toml",
        )
        for each in _MISSPELT.finditer(told)
    ]


def markdown_problems(path: str, root: Path) -> list[Problem]:
    """Ask markdownlint.

    Args:
        path: The page, from the root.
        root: The repository.

    Raises:
        RuntimeError: If it does not run; the message is its own.
    """
    told = _told([str(node()), str(_SCRIPT), "--no-globs", path], root, found=1)
    return [
        Problem(path, int(each["line"]), f"{each['what']} (rule {each['rule']})")
        for each in _RULE.finditer(told)
    ]


def _told(command: list[str], root: Path, *, found: int) -> str:
    """Run a tool that leaves with ``found`` if it found anything; give what it says."""
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    told = done.stdout + done.stderr
    if done.returncode not in (0, found):
        raise RuntimeError(f"{Path(command[0]).name}: {told.strip() or 'no reason'}")
    return told
