"""The setup, in copies of the repository whose pip and npm only pretend.

``bootstrap`` is the way in, ``environment`` and ``installing`` do the work; what fails
comes out as one line. The fakes are in ``fake_setup``.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOME = ROOT / "src" / "bookbinder" / "installation"
FILES = ["__init__", "bootstrap", "environment", "installing", "reasons"]
EVERYTHING = ["venv", "pip", "packages", "node", "assets"]
# What the notes on them begin with.
WORDS = ["Python", "front-end", "fonts", "done"]
# How each of these is recognized in what the fake tools wrote down.
ASKED = {
    "venv": "venv",
    "pip": "--upgrade pip",
    "packages": "-c constraints.txt -e .[plots,bpe,jax] --group dev",
    "node": "npm ci",
    "assets": "bookbinder.installation.vendor",
}


class Copy:
    """A copy of the files that the setup reads, and the fakes beside it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a folder with spaces"
        self.fakes = folder / "fakes"
        shutil.copytree(Path(__file__).with_name("fake_setup"), self.fakes)
        (self.fakes / "faults").mkdir()
        for file in ["calls", "settings"]:
            (self.fakes / file).touch()
        package = self.root / "src" / "bookbinder" / "installation"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        for name in FILES:
            shutil.copy(HOME / f"{name}.py", package)
        for name in ["package.json", "package-lock.json", "constraints.txt"]:
            self.write(name, "{}")
        self.write("src/bookbinder/installation/vendor.py", "")
        self.write("pyproject.toml", "[project]\nname = 'a'\n")
        (self.root / "docs" / "assets").mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)

    def fault(self, task: str, output: str) -> Path:
        fault = self.fakes / "faults" / task
        fault.write_text(output)
        return fault

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        environment = {key: os.environ[key] for key in ["PATH", "HOME"]}
        environment |= {"PYTHONPATH": str(self.fakes), "FAKES": str(self.fakes)}
        script = self.root / HOME.relative_to(ROOT) / "bootstrap.py"
        return subprocess.Popen(
            [sys.executable, script, *arguments],
            cwd=self.fakes,
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *arguments: str, first: str, **variables: str
    ) -> tuple[int, str, str]:
        # Python runs sitecustomize before anything else.
        (self.fakes / "sitecustomize.py").write_text(dedent(first))
        (self.fakes / "calls").write_text("")
        process = self.start(*arguments, **variables)
        out, err = process.communicate()
        assert "Traceback" not in out + err
        return process.returncode, out, err

    def set_up(self, first: str = "", **variables: str) -> str:
        """Run a setup that is to succeed; its Python runs ``first`` before it."""
        status, out, err = self.run(first=first, **variables)
        assert (status, err) == (0, "")
        return out

    def refusal(self, *arguments: str, first: str = "", **variables: str) -> str:
        """Run a setup that is to fail, and return the one line that it says."""
        status, _, err = self.run(*arguments, first=first, **variables)
        assert status == 1
        (line,) = err.splitlines()
        assert line.startswith("setup: ")
        return line.removeprefix("setup: ")

    def asked(self) -> list[str]:
        """What the last setup asked its tools to do."""
        lines = (self.fakes / "calls").read_text().splitlines()
        return [task for line in lines for task, part in ASKED.items() if part in line]


@pytest.fixture
def fresh(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.fixture
def ready(fresh: Copy) -> Copy:
    fresh.set_up()
    return fresh


def test_a_fresh_copy_gets_everything_in_order(fresh: Copy) -> None:
    notes = fresh.set_up().splitlines()
    assert fresh.asked() == EVERYTHING
    assert [note.split()[1] for note in notes] == WORDS


def test_the_second_time_costs_nothing(ready: Copy) -> None:
    start = time.monotonic()
    assert ready.set_up() == ""
    assert time.monotonic() - start < 2.0
    assert ready.asked() == []


@pytest.mark.parametrize(
    ("file", "text", "again"),
    [
        ("constraints.txt", "torch==9", ["pip", "packages"]),
        ("pyproject.toml", "[project]\nname = 'b'\n", ["pip", "packages"]),
        ("pyproject.toml", "[project]\nname = 'a'\n[tool.ruff]\nline-length = 9", []),
        ("package-lock.json", "{ }", ["node", "assets"]),
        ("src/bookbinder/installation/vendor.py", "more", ["assets"]),
    ],
)
def test_a_change_renews_what_was_made_from_it(
    ready: Copy, file: str, text: str, again: list[str]
) -> None:
    ready.write(file, text)
    ready.set_up()
    assert ready.asked() == again
    ready.set_up()
    assert ready.asked() == []


@pytest.mark.parametrize(
    ("gone", "again"),
    [
        (".venv", EVERYTHING),
        (".venv/bin/python", EVERYTHING),
        ("node_modules", ["node"]),
        ("docs/assets/vendor", ["assets"]),
    ],
)
def test_what_is_gone_is_made_again(ready: Copy, gone: str, again: list[str]) -> None:
    path = ready.root / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    ready.set_up()
    assert ready.asked() == again


@pytest.mark.parametrize("task", ["probe", "pip"])
def test_a_broken_environment_is_made_again(ready: Copy, task: str) -> None:
    # A pip that is there and does not run shows only when it is needed.
    ready.write("constraints.txt", "changed")
    tool = ready.root / ".venv" / "bin" / "python"
    tool.write_text(tool.read_text().replace(f"attempt {task}", "exit 1"))
    ready.set_up()
    assert ready.asked() == EVERYTHING


def test_a_moved_environment_is_made_again(ready: Copy) -> None:
    ready.root = ready.root.rename(ready.root.with_name("moved"))
    ready.set_up()
    assert ready.asked() == EVERYTHING


def test_another_python_is_taken_only_when_it_is_named(ready: Copy) -> None:
    other = "import sys; sys.version_info = (3, 12, 1)"
    ready.set_up(first=other)
    assert ready.asked() == []
    ready.set_up(first=other, PYTHON="python3.12")
    assert ready.asked() == EVERYTHING


@pytest.mark.parametrize(
    ("task", "number"), [("upgrade", 1), ("install", 2), ("npm", 3), ("vendor", 4)]
)
def test_an_interrupted_setup_is_taken_up_again(
    fresh: Copy, task: str, number: int
) -> None:
    fault = fresh.fault(task, "ERROR: cut off")
    assert fresh.refusal() == "cut off (log: .cache/setup.log)"
    assert fresh.asked() == EVERYTHING[: number + 1]
    fault.unlink()
    fresh.set_up()
    # The environment is kept; pip and the packages are one step.
    assert fresh.asked() == EVERYTHING[1 if task == "install" else number :]
    fresh.set_up()
    assert fresh.asked() == []


def test_an_interrupted_renewal_is_taken_up_again(ready: Copy) -> None:
    # The old pins are back, but some packages may be what the new ones said.
    ready.write("constraints.txt", "new")
    fault = ready.fault("install", "ERROR: cut off")
    ready.refusal()
    fault.unlink()
    ready.write("constraints.txt", "{}")
    ready.set_up()
    assert ready.asked() == ["pip", "packages"]


@pytest.mark.parametrize("text", ["", "[1]", '"a"', "null"])
def test_marks_that_cannot_be_read_count_for_nothing(ready: Copy, text: str) -> None:
    ready.write(".venv/setup.json", text)
    ready.set_up()
    assert ready.asked() == EVERYTHING[1:]
    marks = json.loads((ready.root / ".venv" / "setup.json").read_text())
    assert set(marks) == {"root", "packages", "node", "assets"}


def test_two_setups_at_once_do_the_work_once(fresh: Copy) -> None:
    tool = fresh.fakes / "tool"
    tool.write_text(tool.read_text().replace("attempt npm", "sleep 1"))
    both = [fresh.start(), fresh.start()]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert fresh.asked() == EVERYTHING
    assert sum("waiting for it" in text for text in said) == 1


def test_the_log_holds_what_pip_said(fresh: Copy) -> None:
    fresh.fault("install", "first\nERROR: the reason\n")
    assert fresh.refusal() == "the reason (log: .cache/setup.log)"
    log = (fresh.root / ".cache" / "setup.log").read_text()
    assert "--group dev\nfirst\nERROR: the reason\n" in log


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ("", ["--retries", "--timeout"]),
        ("global.retries='7'", ["--timeout"]),
        (":env:.default-timeout='180'", ["--retries"]),
        ("user.retries='7'\nuser.timeout='9'", []),
    ],
)
def test_pip_keeps_the_patience_that_its_user_set(
    fresh: Copy, settings: str, options: list[str]
) -> None:
    (fresh.fakes / "settings").write_text(settings)
    fresh.set_up()
    calls = (fresh.fakes / "calls").read_text()
    given = [option for option in ["--retries", "--timeout"] if option in calls]
    assert given == options


def test_an_old_python_is_told_what_to_run(fresh: Copy) -> None:
    old = "import sys; sys.version_info = (3, 9, 2)"
    said = f"Python 3.11 or later is wanted, {Path(sys.executable).name} is 3.9.2: "
    newer = fresh.fakes / "python3.12"
    path = str(fresh.fakes)
    line = fresh.refusal("serve", first=old, PATH=path)
    assert line == said + "install one, then run make PYTHON=python3.11 serve"
    newer.write_text("#!/bin/sh\nexit 0\n")
    newer.chmod(0o755)
    line = fresh.refusal("serve", first=old, PATH=path)
    assert line == said + "run make PYTHON=python3.12 serve"
    newer.write_text("#!/bin/sh\nexit 1\n")
    line = fresh.refusal(first=old, PATH=path)
    assert line == said + "install one, then run make PYTHON=python3.11 setup"


def test_the_gate_keeps_to_syntax_that_old_pythons_read() -> None:
    source = (HOME / "bootstrap.py").read_text("ascii")
    new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.Starred)
    for node in ast.walk(ast.parse(source, feature_version=(3, 4))):
        assert not isinstance(node, new), ast.unparse(node)
        if isinstance(node, ast.FunctionDef):
            arguments = node.args.args
            assert not any([node.returns, *(each.annotation for each in arguments)])
            assert not node.args.kwonlyargs


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_without_venv_is_told_the_package(fresh: Copy, module: str) -> None:
    (fresh.fakes / "venv.py").unlink()
    line = fresh.refusal(first=f"import sys; sys.modules['{module}'] = None")
    package = "python{}.{}-venv".format(*sys.version_info)
    assert f"module {module} is wanted" in line
    assert f"apt install {package}" in line


def test_a_disk_too_full_is_told_before_anything_is_made(fresh: Copy) -> None:
    full = """
        import shutil, types
        shutil.disk_usage = lambda path: types.SimpleNamespace(free=1.24e9)
    """
    said = f"the disk is too full: 3.2 GB are wanted at {fresh.root}, 1.2 GB are free"
    assert fresh.refusal(first=full).startswith(said)
    assert fresh.asked() == []


@pytest.mark.parametrize(
    ("number", "said"),
    [("EROFS", "the folder is read-only"), ("ENOSPC", "the disk is full")],
)
def test_a_folder_that_takes_nothing_is_told(
    fresh: Copy, number: str, said: str
) -> None:
    refuse = f"""
        import errno, os
        def refuse(path, *rest):
            raise OSError(errno.{number}, os.strerror(errno.{number}), path)
        os.mkdir = refuse
    """
    line = fresh.refusal(first=refuse)
    assert line.startswith(said)
    assert "log" not in line


def test_a_file_in_the_place_of_a_folder_is_told(fresh: Copy) -> None:
    fresh.write(".cache", "")
    assert f"File exists: '{fresh.root / '.cache'}'" in fresh.refusal()


def test_a_missing_lock_is_told(fresh: Copy) -> None:
    (fresh.root / "package-lock.json").unlink()
    lock = fresh.root / "package-lock.json"
    assert f"No such file or directory: '{lock}'" in fresh.refusal()


def test_a_broken_project_file_is_told(fresh: Copy) -> None:
    fresh.write("pyproject.toml", "[project\n")
    assert fresh.refusal().startswith("pyproject.toml: Expected ']'")


def test_control_c_is_told(fresh: Copy) -> None:
    stop = """
        import subprocess
        def stop(*command, **options):
            raise KeyboardInterrupt
        subprocess.run = stop
    """
    assert fresh.refusal(first=stop).startswith("interrupted")
