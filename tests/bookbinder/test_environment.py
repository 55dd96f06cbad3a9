"""The setup with programs that only pretend; a fresh clone tries the real ones."""

import shutil
from pathlib import Path

import pytest

from bookbinder import environment
from bookbinder.environment import set_up
from bookbinder.writing import write_whole

CSS = 'src:url(A.woff2) format("woff2"),url(A.woff) format("woff")'
ALL = ["venv", "pip", "packages", "npm"]
FILES = "pyproject.toml constraints.txt package.json package-lock.json"


class Setup:
    """The setup of a copy of the repository, and the programs that it runs."""

    def __init__(self, root: Path) -> None:
        self.root, self.broken = root, ""
        for name in [*FILES.split(), "src/bookbinder/environment.py"]:
            write_whole(root / name, "")

    def pretend(self, root: Path, *command: str | Path) -> None:
        words = " ".join(map(str, command))
        signs = {"-m venv": "venv", "--upgrade pip": "pip", "-e .": "packages"}
        name = next((name for sign, name in signs.items() if sign in words), "npm")
        self.steps.append(name)
        if name != "venv":  # the environment's own programs
            assert Path(command[0]).parent == root / ".venv" / environment.BIN
        if name == self.broken:
            raise OSError("cut off")
        if name == "venv":
            python = f"{environment.BIN}/python{environment.SUFFIX}"
            write_whole(root / ".venv" / python, "")
        if name == "npm":
            modules = root / "node_modules"
            shutil.rmtree(modules, ignore_errors=True)
            write_whole(modules / "katex/dist/katex.min.css", CSS)
            write_whole(modules / "katex/dist/fonts/A.woff2", "")
            write_whole(modules / "mermaid/dist/mermaid.min.js", "")

    def __call__(self) -> list[str]:
        self.steps: list[str] = []
        set_up(self.root)
        return self.steps


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    setup = Setup(tmp_path / "a folder with spaces")
    monkeypatch.setattr(environment, "_run", setup.pretend)
    return setup


@pytest.mark.parametrize(("folder", "suffix"), [("bin", ""), ("Scripts", ".exe")])
def test_only_what_has_changed_is_made_again(
    folder: str, suffix: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "BIN", folder)
    monkeypatch.setattr(environment, "SUFFIX", suffix)
    assert setup() == ALL
    vendor = setup.root / "docs/assets/vendor"
    css = (vendor / "katex/katex.min.css").read_text()
    assert css == 'src:url(A.woff2) format("woff2")'
    assert setup() == []
    (setup.root / "constraints.txt").write_text("torch==9")
    assert setup() == ["pip", "packages"]
    (setup.root / "package-lock.json").write_text("{}")
    assert setup() == ["npm"]
    shutil.rmtree(vendor)
    assert setup() == ["npm"]
    (setup.root / f".venv/{folder}/python{suffix}").unlink()
    assert setup() == ["venv", "pip", "packages"]
    setup.root = setup.root.rename(setup.root.with_name("moved"))
    assert setup() == ALL


def test_what_was_interrupted_is_taken_up_again(setup: Setup) -> None:
    for program, first in (("venv", 0), ("pip", 1), ("packages", 1), ("npm", 3)):
        shutil.rmtree(setup.root / ".venv", ignore_errors=True)
        shutil.rmtree(setup.root / "node_modules", ignore_errors=True)
        setup.broken = program
        with pytest.raises(OSError, match="cut off"):
            setup()
        setup.broken = ""
        assert setup() == ALL[first:]
        assert setup() == []
