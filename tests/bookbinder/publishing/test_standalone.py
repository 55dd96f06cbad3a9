import io
import re
import subprocess
import sys
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from bookbinder.listings import find_section
from bookbinder.outputs import agrees
from bookbinder.places import PACKAGES
from bookbinder.publishing.book import load_book
from bookbinder.publishing.standalone import (
    Library,
    file_of,
    file_of_run,
    standalone,
    standalone_files,
    standalone_run,
)
from bookbinder.running.state import fresh_state
from bookbinder.writing import write_whole

ROOT = Path(__file__).parents[3]
BOOK = load_book(ROOT, {})
LICENSE, _, HOLDER, *_ = (ROOT / "LICENSE").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return standalone_files(ROOT, BOOK)


class Absent:
    """Stands before all finders: this project and its helpers are not installed."""

    NAMES = (*PACKAGES, "jaxtyping", "beartype", "bookbinder")

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] in self.NAMES:
            raise ImportError(f"{name} is not installed")
        return None


def run(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a file as where there is torch, and nothing of ours."""
    for name in list(sys.modules):
        if name.partition(".")[0] in (*PACKAGES, "jaxtyping"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    module = ModuleType("copied")
    # A dataclass asks for the module that it is defined in.
    monkeypatch.setitem(sys.modules, "copied", module)
    exec(compile(text, "copied.py", "exec"), vars(module))


def test_every_listing_runs_without_this_package(
    files: dict[str, str], tmp_path: Path
) -> None:
    paths = {
        file_of(listing): listing.path
        for entry in BOOK.entries
        for listing in entry.page.listings
        if listing.language == "py"
    }
    wrong: list[str] = []
    for number, (name, path) in enumerate(paths.items()):
        text = files[name]
        assert text.startswith(f"# {path}\n# {HOLDER}. {LICENSE}: ")
        assert "--8<--" not in text
        assert "tested_transformer" not in text.partition("\n")[2]
        (tmp_path / f"{number}.py").write_text(text, "utf-8")
        try:
            with pytest.MonkeyPatch.context() as patch:
                run(text, patch)
        except Exception as error:
            wrong.append(f"{name}: {error!r}")
    assert wrong == []
    # No name is missing that only a call would ask for, but for a type in quotes.
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    done = subprocess.run([*ruff, tmp_path], capture_output=True, text=True)
    undefined = {*re.findall("Undefined name `(.*)`", done.stdout)}
    assert undefined <= {"Reference"}


def test_a_run_with_what_it_imports_prints_what_its_page_shows(
    files: dict[str, str],
) -> None:
    blocks = {
        file_of_run(entry, number): block
        for entry in BOOK.entries
        for number, block in enumerate(entry.page.blocks, start=1)
    }
    assert "runs/no-peeking-2.py" in files
    wrong: list[str] = []
    runs = {name: text for name, text in files.items() if name in blocks}
    for name, text in runs.items():
        printed = io.StringIO()
        # The folder is empty.
        with (
            pytest.MonkeyPatch.context() as patch,
            fresh_state(),
            redirect_stdout(printed),
        ):
            run(text, patch)
        # A copy goes on from the blocks before, which have printed, too.
        output = blocks[name].output
        lines = printed.getvalue().splitlines(keepends=True)
        if output:
            last = "".join(lines[-output.text.count("\n") :])
            if not agrees(output.text, last, output.tolerance):
                wrong.append(f"{name}: {last}")
    assert wrong == []


def test_a_run_stays_as_it_is_where_a_copy_would_be_wrong_or_long(
    tmp_path: Path,
) -> None:
    home = tmp_path / "src" / "tested_transformer"
    write_whole(
        home / "__init__.py",
        "if TYPE_CHECKING:\n    from tested_transformer.a import f, g, long\n"
        "from tested_transformer import a\n",
    )
    write_whole(
        home / "a.py",
        "import torch\nimport numpy\n\ndef f(x):\n    return torch.relu(x)\n\n"
        "def g():\n    return numpy.e\n\ndef long():\n" + "    torch\n" * 160,
    )
    start = "from tested_transformer import"
    text = standalone_run(
        f"import math\n\nimport torch\n\n{start} f\n\n# One.\nprint(f(math.pi))\n",
        "page.md, block 1",
        library := Library(tmp_path / "src"),
    )
    assert text.partition("stays.\n")[2] == (
        "\nimport math\n\nimport torch\n\n\n"
        "def f(x):\n    return torch.relu(x)\n\n\n# One.\nprint(f(math.pi))\n"
    )
    for code in (
        "import torch\n",
        f"{start} f\nfrom transformer_book import load\n",
        f"{start} f\nimport tested_transformer\n",
        f"{start} f as ours\n",
        f"{start} a\n",
        f"{start} g\n",
        f"{start} long\n",
        f"{start} f\nf = f(1)\n",
        f"{start} f\nimport numpy\nnumpy.e\n",
        f"{start} f\nimport math as torch\n",
        f"{start} f\ndef later():\n    {start} long\n",
    ):
        assert standalone_run(code, "", library) == "", code


def copied(folder: Path, here: str, **modules: str) -> str:
    """Copy the section ``here`` that ends ``a``, a module of a small library."""
    above = modules.pop("a")
    modules["a"] = f"{above}# --8<-- [start:here]\n{here}\n# --8<-- [end:here]\n"
    for name, source in {"__init__": "", **modules}.items():
        write_whole(folder / "src/tested_transformer" / f"{name}.py", source)
    section = find_section(folder, "src/tested_transformer/a.py", "here")
    return standalone(section, Library(folder / "src")).partition("stays.\n")[2]


def test_what_is_needed_comes_along_and_nothing_else(tmp_path: Path) -> None:
    text = copied(
        tmp_path,
        'class Here(Base):\n    def f(self, x: Float[Tensor, "B T"]) -> float:\n'
        "        return half(_check(x)) * _SCALE * math.pi",
        a="import math\nimport torch\nfrom jaxtyping import Float\n"
        "from torch import Tensor\nfrom tested_transformer.b import half, Base\n"
        "_LIMIT = 3\n# Why it is so.\n_ZERO, _SCALE = 0, 2.0\n\n\n"
        "def unused(): ...\n\n\n"
        "def _check(x):\n    return x\n\n\n",
        b="from tested_transformer.c import two\n\n\ndef _check(x):\n    return x\n\n\n"
        "def half(x):\n    return _check(x)._check / two()\n\n\nclass Base: ...\n",
        c="def two():\n    return 2\n",
    )
    assert text == (
        "\nimport math\n\nfrom torch import Tensor\n\n\n"
        "def two():\n    return 2\n\n\n"
        "def _check_of_b(x):\n    return x\n\n\n"
        "def half(x):\n    return _check_of_b(x)._check / two()\n\n\n"
        "class Base: ...\n\n\n"
        "# Why it is so.\n_ZERO, _SCALE = 0, 2.0\n\n\n"
        "def _check(x):\n    return x\n\n\n"
        "class Here(Base):\n    def f(self, x: Tensor) -> float:\n"
        "        return half(_check(x)) * _SCALE * math.pi\n"
    )


def test_what_would_come_out_wrong_is_refused(tmp_path: Path) -> None:
    for number, (here, a, b, message) in enumerate(
        (
            (
                "def h():\n    return g()",
                "from tested_transformer.b import f as g\n",
                "def f(): ...\n",
                "tested_transformer.a imports g by another name",
            ),
            (
                "def h():\n    return f() + e",
                "from math import e\nfrom tested_transformer.b import f\n",
                "from cmath import e\ndef f():\n    return e\n",
                "e is imported from two places",
            ),
            ("import cmath", "", "", "a.py defines nothing in this section"),
        )
    ):
        with pytest.raises(ValueError, match=message):
            copied(tmp_path / str(number), here, a=a, b=b)
