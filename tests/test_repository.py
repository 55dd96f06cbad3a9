"""Rules that hold for the whole tree, so that the tree alone explains the project."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "tested_transformer"
BOOKBINDER = ROOT / "src" / "bookbinder"
# The modules in three circles, each behind those that it may import.
CORE = {
    "validation": set[str](),
    "masks": {"validation"},
    "positions": {"validation"},
    "cache": {"validation"},
    "attention": {"masks", "validation"},
    "flex": {"validation"},
    "multihead": {"attention", "masks", "positions", "cache", "validation"},
    "interchange": {"multihead", "validation"},
}
MODELS = {
    "layers": set[str](),
    "experts": {"layers"},
    "gpt": {"layers", "experts"},
    "encoder_decoder": {"layers"},
    "variants": {"layers", "experts", "gpt"},
}
USE = {
    "data": set[str](),
    "training": {"data"},
    "checkpoints": set[str](),
    "generation": set[str](),
    "interpret": set[str](),
    "checking": {"training"},
    "cli": {"data", "training", "checkpoints", "generation", "interpret", "checking"},
}
BOOK = {
    "book": {"book.microgpt"},  # a grader makes its numbers
    "book.plots": {"book._labels"},
    "book.microgpt": set[str](),
    "book.implementations": {"book.microgpt"},
    "book.museum": set[str](),
}
CIRCLES = (CORE, MODELS, USE, BOOK)
# What each module of the library may import of the library. Arrows run one way: the
# model knows neither its optimizer nor its sampler, and nothing knows the book.
ARROWS = {
    name: arrows.union(*CIRCLES[:outside])
    for outside, circle in enumerate(CIRCLES)
    for name, arrows in circle.items()
}
NAMES = sorted(ARROWS)
ARROWS["__init__"] = {*NAMES}
ARROWS["cli"].add("__version__")
ARROWS["__main__"] = {"cli"}
ARROWS["book._labels"] = set()

# Methods of a module that lead outward: they alone, and as they run, may import what
# is built on it.
DOORS = {
    "gpt": {
        "generate": "generation",
        "from_pretrained": "checkpoints",
        "form": "variants",
    }
}

# What each may import from outside, beside the standard library.
PACKAGES = {name: {"torch", "jaxtyping"} for name in ARROWS}
PACKAGES["book.plots"].add("matplotlib")
PACKAGES["book._labels"] = {"numpy", "matplotlib"}
PACKAGES["checkpoints"] |= {"safetensors", "huggingface_hub"}
PACKAGES["data"].add("tokenizers")
PACKAGES["cli"] |= {"rich"}
PACKAGES["book.implementations"] |= {"numpy", "jax", "flax"}
PACKAGES["book.microgpt"].clear()


def imports(source: str) -> Iterator[str]:
    """Return the full name of each module or name that is imported, anywhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            yield from (f"{home}.{alias.name}" for alias in node.names)


def module_of(name: str) -> str:
    """Return the module of the library that a dotted name is in, "" for none."""
    parts = name.split(".")
    return next((m for m in (".".join(parts[:2]), parts[0]) if m in ARROWS), "")


def imports_through_doors(module: str, source: str) -> list[str]:
    """Return what the methods of a module import that may lead outward."""
    return [
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        for name in imports(ast.unparse(node))
        if module_of(name.partition(".")[2]) == DOORS.get(module, {}).get(node.name)
    ]


def forbidden_imports(module: str, source: str) -> list[str]:
    """Return the imports that a module of the library may not have."""
    forbidden: list[str] = []
    through_doors = imports_through_doors(module, source)
    for name in imports(source):
        package, _, rest = name.partition(".")
        if package == "tested_transformer":
            # The package itself imports all modules, so a name taken from it could
            # come from any of them.
            wanted = module_of(rest) or rest
            allowed = wanted in ARROWS[module] | {module}
            if not allowed and name in through_doors:
                through_doors.remove(name)  # once: at the top it may not stand too
                continue
        else:
            allowed = package in PACKAGES[module] | sys.stdlib_module_names
        if not allowed:
            forbidden.append(name)
    return forbidden


@pytest.mark.parametrize("file", [*LIBRARY.rglob("*.py")], ids=str)
def test_imports_follow_the_arrows(file: Path) -> None:
    dotted = ".".join(file.relative_to(LIBRARY).with_suffix("").parts)
    name = module_of(dotted)
    assert name, f"{dotted} has no arrows yet: say what it may import"
    wrong = forbidden_imports(name, file.read_text("utf-8"))
    assert wrong == [], f"import less, or add {wrong} to what {name!r} may import"


GENERATE = "def generate():\n    from tested_transformer.generation import generate"


def test_a_door_leads_outward_from_its_method_alone() -> None:
    assert forbidden_imports("gpt", GENERATE) == []
    assert len(forbidden_imports("layers", GENERATE)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("masks", "from tested_transformer.attention import attention_scores"),
        ("gpt", "def f():\n    from tested_transformer.training import train"),
        ("gpt", "from tested_transformer.checkpoints import load_gpt2"),
        ("gpt", "from tested_transformer.variants import FORMS"),
        ("gpt", "def f():\n    from tested_transformer.generation import generate"),
        ("gpt", "def generate():\n    from tested_transformer.data import split"),
        ("gpt", f"{GENERATE}\n{GENERATE.partition(chr(10))[2].strip()}"),
        ("checking", "from tested_transformer.book.museum import kill_matrix"),
        ("attention", "from tested_transformer import causal_mask"),
        ("attention", "from .masks import causal_mask"),
        ("cli", "from bookbinder.page import load_page"),
        ("attention", "import numpy as np"),
        ("book.microgpt", "import torch"),
    ],
)
def test_an_arrow_that_points_back_is_seen(module: str, source: str) -> None:
    assert len(forbidden_imports(module, source)) == 1


def test_the_tools_can_be_read_from_the_page_on() -> None:
    """The scanner of pages knows no other tool, and none knows the pytest plugin."""
    tools = {
        file.relative_to(BOOKBINDER).as_posix(): {*imports(file.read_text("utf-8"))}
        for file in BOOKBINDER.rglob("*.py")
    }
    assert not [name for name in tools["page.py"] if name.startswith("bookbinder")]
    # It runs before anything is installed.
    packages = {name.partition(".")[0] for name in tools["environment.py"]}
    assert packages <= sys.stdlib_module_names
    plugin = "bookbinder.pytest_plugin"
    knowing = [file for file in tools if any(plugin in name for name in tools[file])]
    assert knowing == []


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "common", "helpers", "misc"}
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*")]
    assert [file for file in files if file.stem in drawers] == []


def test_public_names_are_listed() -> None:
    for file in LIBRARY.rglob("*.py"):
        text = file.read_text("utf-8")
        public = {*re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE)}
        names = re.search(r"^__all__ = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
        listed = {*ast.literal_eval(names[1])} if names else set[str]()
        assert public <= listed, f"{file}: add {public - listed} to __all__"


def test_each_module_has_its_tests_and_each_tests_their_module() -> None:
    """A module has a file of tests of its name, or a folder of them."""
    tests = ROOT / "tests" / "tested_transformer"
    files = [*tests.glob("**/test_*.py")]
    dotted = {
        ".".join(file.relative_to(tests).with_suffix("").parts).replace("test_", "")
        for file in files
    }
    assert {module_of(each) for each in dotted} == {*NAMES, ""}
    assert [each for each in dotted if not module_of(each)] == ["package"]


def test_each_module_has_its_page_in_the_reference() -> None:
    folder = ROOT / "docs" / "reference"
    index = (folder / "index.md").read_text("utf-8")
    for name in NAMES:
        short = name.removeprefix("book.")
        page = (folder / f"{short}.md").read_text("utf-8")
        assert f"\n::: tested_transformer.{name}\n" in page
        assert f"| [{name}]({short}.md) |" in index


def test_no_page_reads_files_of_the_repository() -> None:
    """What pages need ships with the library; see ``tested_transformer.book``."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    reaching = re.compile(r"__file__|parents\[|\b(docs|benchmarks)[/\"']\s*/")
    found = [page.name for page in pages if reaching.search(page.read_text("utf-8"))]
    assert found == []


def tracked_files() -> Iterator[Path]:
    """Give the files of the repository but for what .gitignore names: folders."""
    lines = (ROOT / ".gitignore").read_text().split("\n")
    ignored = {line.strip("/") for line in lines if line.endswith("/")} | {".git"}

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if {path.name, path.relative_to(ROOT).as_posix()} & ignored:
                continue
            yield from walk(path) if path.is_dir() else [path]

    return walk(ROOT)


def test_no_file_names_the_host_of_a_package_registry() -> None:
    hosts = re.compile(
        rb"py[p]i\.org|python[h]osted\.org|n[p]mjs\.(org|com)|yarn[p]kg\.com"
        rb"|download\.py[t]orch|ana[c]onda\.(org|com)|deb\.d[e]bian|js[d]elivr"
        rb"|un[p]kg\.com|cdn[j]s"
    )
    files = list(tracked_files())
    assert Path(__file__).resolve() in files
    assert [file for file in files if hosts.search(file.read_bytes())] == []


def test_no_picture_lies_about_that_a_block_has_left() -> None:
    pictures = [file for file in tracked_files() if file.suffix in (".svg", ".png")]
    assert [file for file in pictures if not file.is_relative_to(ROOT / "docs")] == []


def test_no_check_is_switched_off_by_a_comment() -> None:
    switch = re.compile(r"#\s*(noqa|ruff:\s*noqa|type:\s*ignore|pyrefly:\s*ignore)")
    code = [file for file in tracked_files() if file.suffix == ".py"]
    assert [file for file in code if switch.search(file.read_text("utf-8"))] == []


def test_the_tree_in_the_readme_is_the_one_that_is_there() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([\w/.]+[/.]\w*)`", row)}
    missing = [
        each for each in named if not any((r / each).exists() for r in (ROOT, LIBRARY))
    ]
    assert missing == []
    private = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    there = (
        {f.name + "/" * f.is_dir() for f in LIBRARY.iterdir()}
        - private
        - {"__pycache__/"}
    )
    assert there <= named, f"README.md lacks {there - named}"


def test_make_explains_every_command() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    explained = re.findall(r"^([\w-]+):.* ## \w", text, re.MULTILINE)
    assert {*" ".join(phony).split()} == {*explained}


def test_make_names_tests_that_are_there() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    named = re.findall(r"(?<![\w/])tests/[\w/*.]+", text)
    assert "tests/test_repository.py" in named
    assert [path for path in named if not any(ROOT.glob(path))] == []


def test_every_package_that_is_used_is_pinned_and_is_the_one_installed() -> None:
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line[:1] not in ("", "#"):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate():
                pins[canonicalize_name(pin.name)] = str(pin.specifier)
    file = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, groups = file["project"], file["dependency-groups"]
    first = [
        *project["dependencies"],
        *chain(*project["optional-dependencies"].values()),
    ]
    first += [*groups["book"], *groups["test"], *groups["lint"], *groups["release"]]
    queue = [(Requirement(line), "") for line in first]
    wrong: list[str] = []
    seen: set[tuple[str, str]] = set()
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        package = distribution(name)
        installed = f"=={Version(package.version).public}"
        # CUDA comes with some builds of PyTorch, which pin it themselves.
        if pins.get(name) != installed and not re.match(r"nvidia-|cuda-|triton$", name):
            wrong.append(f"{name}{installed}, pinned {pins.get(name)}")
        for each in {("", name), *((e, name) for e in requirement.extras)} - seen:
            seen.add(each)
            queue += [(Requirement(line), each[0]) for line in package.requires or []]
    assert wrong == []
    assert len(seen) > len(first)
