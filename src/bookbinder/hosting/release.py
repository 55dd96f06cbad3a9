"""Build the package, and try it as a stranger would: installed alone, somewhere else.

The wheel holds the library and nothing of the book. It is installed into an empty
environment, and the first block of the README is run there, away from the repository,
with its output compared.
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from bookbinder.page import load_page
from bookbinder.running.blocks import SEPARATOR, expected, program

__all__ = ["ReleaseError", "build", "check_contents", "check_tag", "main", "try_out"]

_LIBRARY = "tested_transformer"


class ReleaseError(Exception):
    """What is wrong with the package, in one line."""


def check_tag(tag: str, version: str) -> None:
    """Hold the tag to the version in ``pyproject.toml``.

    Raises:
        ReleaseError: If they differ.
    """
    if tag and tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, the version in pyproject.toml {version}")


def build(root: Path, out: Path) -> Path:
    """Build the wheel and the archive of the sources.

    Args:
        root: The repository.
        out: The folder that they are written to.

    Returns:
        The wheel.

    Raises:
        ReleaseError: If they cannot be built.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*command, str(root)], capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"the build failed: {(done.stdout + done.stderr)[-500:]}")
    (wheel,) = out.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Ask that a wheel holds the library alone, with its types.

    Raises:
        ReleaseError: If it holds anything else, or lacks ``py.typed``.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.partition("/")[0] for name in names}
    strange = sorted(f for f in folders - {_LIBRARY} if not f.endswith(".dist-info"))
    if strange:
        raise ReleaseError(f"{wheel.name} holds {', '.join(strange)} too")
    if f"{_LIBRARY}/py.typed" not in names:
        raise ReleaseError(f"{wheel.name} lacks {_LIBRARY}/py.typed")


def try_out(python: Path, readme: Path) -> None:
    """Run the first chain of a page with another Python, away from the repository.

    Raises:
        ReleaseError: If it fails, or prints anything but what the page shows.
    """
    chain = load_page(readme, readme.parent).chains[0]
    with tempfile.TemporaryDirectory() as elsewhere:
        file = Path(elsewhere, "example.py")
        file.write_text(program(chain), "utf-8")
        done = subprocess.run(
            [python, "-I", "-W", "error", file.name],
            cwd=elsewhere,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise ReleaseError(f"{readme.name} fails when installed: {done.stderr[-500:]}")
    if done.stdout != expected(chain):
        printed = done.stdout.replace(SEPARATOR, "")
        raise ReleaseError(f"{readme.name} prints something else: {printed!r}")


def main(arguments: list[str] | None = None) -> int:
    """Build, look inside, install into an empty environment, run the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="", help="a tag that the version has to match")
    parser.add_argument("--out", type=Path, default=Path("dist"))
    options = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    try:
        check_tag(options.tag, project["version"])
        wheel = build(root, options.out)
        check_contents(wheel)
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run([sys.executable, "-m", "venv", empty], check=True)
            python = Path(empty, "bin", "python")
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", wheel], check=True
            )
            try_out(python, root / "README.md")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"{wheel.name}: installed alone, the README runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
