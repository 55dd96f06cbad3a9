"""The setup with programs that only pretend; a fresh clone tries the real ones."""

import shutil
import sys
from pathlib import Path

import pytest

from bookbinder import environment
from bookbinder.environment import set_up
from bookbinder.writing import write_whole

CSS = 'src:url(A.woff2) format("woff2"),url(A.woff) format("woff")'
ALL = ["venv", "pip", "packages", "npm"]


class Copy:
    """A copy of the repository, and what its setup ran."""

    def __init__(self, root: Path) -> None:
        self.root, self.ran, self.broken = root, list[str](), ""
        self.programs = set[Path]()
        names = "pyproject.toml constraints.txt package.json package-lock.json"
        for name in [*names.split(), "src/bookbinder/environment.py"]:
            write_whole(root / name, "")

    def pretend(self, root: Path, *command: str | Path) -> None:
        words = " ".join(map(str, command))
        signs = {"-m venv": "venv", "--upgrade pip": "pip", "-e .": "packages"}
        name = next((name for sign, name in signs.items() if sign in words), "npm")
        self.ran.append(name)
        self.programs.add(Path(command[0]))
        if name == self.broken:
            raise OSError("cut off")
        if name == "venv":
            programs = root / ".venv" / environment.BIN
            write_whole(programs / f"python{environment.SUFFIX}", "")
            write_whole(root / ".venv/pyvenv.cfg", "version = 3.1.0\n")
        if name == "npm":
            modules = root / "node_modules"
            shutil.rmtree(modules, ignore_errors=True)
            write_whole(modules / "katex/dist/katex.min.css", CSS)
            write_whole(modules / "katex/dist/fonts/A.woff2", "")
            write_whole(modules / "mermaid/dist/mermaid.min.js", "")

    def set_up(self, *, named: bool = False) -> list[str]:
        self.ran = []
        set_up(self.root, named=named)
        return self.ran


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    copy = Copy(tmp_path / "a folder with spaces")
    monkeypatch.setattr(environment, "_run", copy.pretend)
    return copy


def test_only_what_has_changed_is_made_again(copy: Copy) -> None:
    assert copy.set_up() == ALL
    vendor = copy.root / "docs/assets/vendor"
    css = (vendor / "katex/katex.min.css").read_text()
    assert css == 'src:url(A.woff2) format("woff2")'
    assert copy.set_up() == []
    (copy.root / "constraints.txt").write_text("torch==9")
    assert copy.set_up() == ["pip", "packages"]
    (copy.root / "package-lock.json").write_text("{}")
    assert copy.set_up() == ["npm"]
    shutil.rmtree(vendor)
    assert copy.set_up() == ["npm"]
    (copy.root / ".venv/bin/python").unlink()
    assert copy.set_up() == ["venv", "pip", "packages"]
    assert copy.set_up(named=True) == ["venv", "pip", "packages"]
    copy.root = copy.root.rename(copy.root.with_name("moved"))
    assert copy.set_up() == ALL


def test_on_windows_the_programs_lie_elsewhere(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "BIN", "Scripts")
    monkeypatch.setattr(environment, "SUFFIX", ".exe")
    assert copy.set_up() == ALL
    assert copy.set_up() == []
    scripts = copy.root / ".venv" / "Scripts"
    started = {Path(sys.executable), scripts / "python.exe", scripts / "npm.exe"}
    assert copy.programs == started


@pytest.mark.parametrize("program", ALL)
def test_what_was_interrupted_is_taken_up_again(copy: Copy, program: str) -> None:
    copy.broken = program
    with pytest.raises(OSError, match="cut off"):
        copy.set_up()
    copy.broken = ""
    place = ALL.index(program)
    assert copy.set_up() == ALL[place if program != "packages" else 1 :]
    assert copy.set_up() == []
