"""``make dist``: build the package, and try it in an empty environment.

pip installs the wheel there, first on its own and then with the extra for plots, and
``first_steps.py`` tries the examples of the README. With ``--pages``, the blocks of
those pages run there too.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bookbinder.page import load_page
from tested_transformer import __version__

__all__ = ["ROOT", "failing_blocks", "main", "take_first_steps"]

ROOT = Path(__file__).resolve().parents[3]


def take_first_steps(
    python: Sequence[str | Path], *hidden: str, env: Mapping[str, str] | None = None
) -> str:
    """Run ``first_steps.py`` with another Python, in an empty folder.

    Args:
        python: The other Python, with its options.
        hidden: Packages to hide from it.
        env: Its environment.

    Returns:
        The path and version of its library, and the missing extras.

    Raises:
        RuntimeError: If anything fails or warns.
    """
    steps = Path(__file__).with_name("first_steps.py")
    command = [*python, "-P", "-W", "error", steps, ROOT / "README.md", *hidden]
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            command, cwd=empty, env=env, capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError(f"the first steps fail:\n{done.stdout}{done.stderr}"[-3000:])
    return done.stdout.splitlines()[-1]


def failing_blocks(
    python: Sequence[str | Path], page: Path, *, env: Mapping[str, str] | None = None
) -> list[str]:
    """Run a page's blocks with another Python, each chain in an empty folder.

    Args:
        python: The other Python, with its options.
        page: The file of the page.
        env: Its environment.

    Returns:
        For each failing chain, its first line and the last line of the error.
    """
    failing: list[str] = []
    for chain in load_page(page.resolve(), ROOT).chains:
        with tempfile.TemporaryDirectory() as empty:
            file = Path(empty, "block.py")
            code = "".join(block.code for block in chain.blocks)
            file.write_text(code, "utf-8")
            command = [*python, "-P", file]
            done = subprocess.run(
                command, cwd=empty, env=env, capture_output=True, text=True
            )
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            failing.append(f"{page.name}:{chain.line}: {last}")
    return failing


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the wheel and the source archive, install the wheel, and try it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="a tag that has to name the version")
    parser.add_argument(
        "--pages", type=Path, nargs="*", default=[], help="pages to run there"
    )
    options = parser.parse_args(arguments)
    if options.tag and options.tag != f"v{__version__}":
        sys.exit(f"the tag is {options.tag}, the version {__version__}")
    out = ROOT / "dist"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = out.glob(f"*-{__version__}-*.whl")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder, "bin", "python")
        for extra, missing in (("", "plots jax bpe"), ("[plots]", "jax bpe")):
            install = [python, "-m", "pip", "install", "--quiet", f"{wheel}{extra}"]
            subprocess.run(install, check=True)
            told = take_first_steps([python, "-I"])
            if not told.endswith(f"{__version__} without {missing}"):
                sys.exit(f"{wheel}{extra} misses something else: {told}")
            print(told)
        command = python.with_name("tested-transformer")
        subprocess.run([command, "--version"], check=True)
        found = [failing_blocks([python, "-I"], page) for page in options.pages]
        if any(found):
            sys.exit("\n".join(line for lines in found for line in lines))


if __name__ == "__main__":
    main()
