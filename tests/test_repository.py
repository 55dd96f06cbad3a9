"""Rules that hold for the whole tree, so that the tree alone explains the project."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "tested_transformer"
MODULES = sorted(
    {path.relative_to(LIBRARY).parts[0] for path in LIBRARY.rglob("*.py")}
    - {"__init__.py"}
)
NAMES = [module.removesuffix(".py") for module in MODULES]

# What each module of the library may import of the library. Arrows run one way: the
# model knows neither its optimizer nor its sampler, and what uses a model stands alone.
ARROWS = {
    "masks": set[str](),
    "positions": set[str](),
    "cache": set[str](),
    "text": set[str](),
    "plots": set[str](),
    "microgpt": set[str](),
    "attention": {"masks"},
    "multihead": {"attention", "masks", "positions", "cache"},
    "interchange": {"multihead"},
    "blocks": {"multihead", "cache"},
    "gpt": {"blocks", "positions", "masks", "cache"},
    "encoder_decoder": {"blocks", "positions", "masks", "cache"},
    "generation": {"gpt", "blocks", "multihead", "cache"},
    "training": {"gpt", "text"},
    "checkpoints": {"gpt"},
    "heads": {"gpt", "multihead"},
    "implementations": {"masks", "multihead", "interchange", "microgpt"},
    "museum": {"attention", "masks", "cache", "gpt", "training"},
}
ARROWS["cli"] = ARROWS["__init__"] = {*ARROWS, "__version__"}

# What each may import from outside, beside the standard library.
PACKAGES = {name: {"torch", "jaxtyping"} for name in ARROWS}
PACKAGES["plots"].add("matplotlib")
PACKAGES["checkpoints"].add("safetensors")
PACKAGES["text"].add("tokenizers")
PACKAGES["cli"] |= {"rich"}
PACKAGES["implementations"] |= {"numpy", "jax", "flax"}
PACKAGES["microgpt"].clear()


def imports(source: str) -> Iterator[str]:
    """Give the full name of each module or name that is imported, anywhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            yield from (f"{home}.{alias.name}" for alias in node.names)


def forbidden_imports(module: str, source: str) -> list[str]:
    """Return the imports that a module of the library may not have."""
    forbidden: list[str] = []
    for name in imports(source):
        package, *rest = name.split(".")
        if package == "tested_transformer":
            # The package itself imports all modules, so a name taken from it could
            # come from any of them.
            allowed = bool(rest) and rest[0] in ARROWS[module] | {module}
        else:
            allowed = package in PACKAGES[module] | sys.stdlib_module_names
        if not allowed:
            forbidden.append(name)
    return forbidden


# What each folder of the book's own tools may import of the others; what lies beside
# the folders uses them all, and mutation and contributing that, too.
TOOLS = {
    "installation": set[str](),
    "reading": set[str](),
    "browser": set[str](),
    "flows": {"reading"},
    "formulas": {"reading"},
    "numbers": {"reading"},
    "running": {"reading"},
    "copying": {"reading"},
    "names": {"reading", "flows", "formulas", "numbers"},
    "drawing": {"browser"},
    "wayfinding": {"reading", "names"},
    "hosting": {"reading", "running"},
    "publishing": {"reading", "running", "drawing", "copying", "browser"},
}
BOOKBINDER = ROOT / "src" / "bookbinder"


def forbidden_tools(folder: str, source: str) -> list[str]:
    """Return the imports that a module in a folder of bookbinder may not have."""
    allowed = TOOLS[folder] | {folder}
    named = [name.split(".") for name in imports(source)]
    return [
        ".".join(name)
        for name in named
        if name[0] == "bookbinder" and name[1:2] != [] and name[1] not in allowed
    ]


def test_the_tools_follow_their_arrows() -> None:
    folders = {file.parent.name for file in BOOKBINDER.glob("*/__init__.py")}
    assert folders - {"mutation", "contributing"} == TOOLS.keys()
    for folder in TOOLS:
        for file in (BOOKBINDER / folder).rglob("*.py"):
            assert forbidden_tools(folder, file.read_text("utf-8")) == [], file
    assert forbidden_tools("reading", "from bookbinder.numbers import works")
    assert forbidden_tools("names", "def f():\n    import bookbinder.audit")


@pytest.mark.parametrize("name", [*NAMES, "__init__"])
def test_imports_follow_the_arrows(name: str) -> None:
    assert name in ARROWS, f"{name} has no arrows yet: say what it may import"
    folder = LIBRARY / name
    files = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    for file in files:
        wrong = forbidden_imports(name, file.read_text("utf-8"))
        assert wrong == [], f"{file}: import less, or add {wrong} to ARROWS[{name!r}]"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("masks", "from tested_transformer.attention import attention_scores"),
        ("gpt", "from tested_transformer.training import train"),
        ("gpt", "import tested_transformer.generation"),
        (
            "training",
            "def save():\n    from tested_transformer.checkpoints import save",
        ),
        ("attention", "from tested_transformer import causal_mask"),
        ("attention", "import tested_transformer"),
        ("attention", "from .masks import causal_mask"),
        ("multihead", "from . import masks"),
        ("attention", "import bookbinder"),
        ("cli", "from bookbinder.reading.pages import load_page"),
        ("attention", "import matplotlib.pyplot as plt"),
        ("attention", "import numpy as np"),
        ("microgpt", "import torch"),
    ],
)
def test_an_arrow_that_points_back_is_seen(module: str, source: str) -> None:
    assert len(forbidden_imports(module, source)) == 1


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "common", "helpers", "misc", "shared", "tools", "core"}
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*")]
    assert [file for file in files if file.stem in drawers] == []


FILES = sorted(path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.py"))
FILES.remove("cli/__main__.py")  # only starts the command


@pytest.mark.parametrize("module", FILES)
def test_public_names_are_listed_and_explained(module: str) -> None:
    tree = ast.parse((LIBRARY / module).read_text("utf-8"))
    assert ast.get_docstring(tree)
    defined: dict[str, ast.stmt] = {}
    listed: list[str] = []
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                defined[node.name] = node
            case ast.ImportFrom(module=str(home)) if home.startswith("tested_"):
                defined |= {alias.name: node for alias in node.names}
            case ast.Assign(targets=[ast.Name("__all__")]):
                listed = ast.literal_eval(node.value)
            case (
                ast.Assign(targets=[ast.Name(name)])
                | ast.AnnAssign(target=ast.Name(name))
            ):
                defined[name] = node
            case _:
                pass
    assert listed, f"{module} has no __all__"
    assert [name for name in listed if name not in defined] == []
    for name, node in defined.items():
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and name[0] != "_":
            assert name in listed, f"{module}: {name} is public and not in __all__"
            assert ast.get_docstring(node), f"{module}: {name} has no docstring"


def test_each_module_has_its_tests_and_each_tests_their_module() -> None:
    """A module has a file of tests; a folder of modules has a folder of tests."""
    tests = ROOT / "tests" / "tested_transformer"
    names = [file.stem.removeprefix("test_") for file in tests.glob("test_*.py")]
    folders = {file.parent.name for file in tests.glob("*/test_*.py")}
    assert sorted([*names, *folders]) == NAMES
    assert [name for name in folders if not (LIBRARY / name).is_dir()] == []


# What a page teaches it quotes; the pictures it only draws, the command it only calls.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"plots", "cli"}))
def test_each_module_is_quoted_by_a_page(name: str) -> None:
    pages = [*(ROOT / "docs").glob("chapters/*.md"), *(ROOT / "docs").glob("ref*/*.md")]
    module = "src/tested_transformer/" + name
    quote = re.compile(
        rf'^--8<-- "{re.escape(module)}(\.py|/[\w/]+\.py):', re.MULTILINE
    )
    quoting = [page.name for page in pages if quote.search(page.read_text("utf-8"))]
    assert quoting, f"no chapter lists a section of {module}"


def test_each_module_has_its_page_in_the_reference() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "reference").glob("*.md")}
    assert pages - {"index"} == {*NAMES}
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    index = (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")
    for name in NAMES:
        page = (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8")
        assert f"\n::: tested_transformer.{name}\n" in page
        assert f" {name}: reference/{name}.md\n" in nav
        assert f"| [{name}]({name}.md) |" in index


def test_each_kind_of_picture_is_drawn_by_a_page() -> None:
    text = (LIBRARY / "plots.py").read_text("utf-8")
    kinds = ast.literal_eval(text.partition("__all__ = ")[2].partition("\n")[0])
    chapters = (ROOT / "docs" / "chapters").glob("*.md")
    imported = {
        name
        for page in chapters
        for names in re.findall(
            r"^from tested_transformer\.plots import (.*)$",
            page.read_text("utf-8"),
            re.MULTILINE,
        )
        for name in names.split(", ")
    }
    assert imported == set(kinds)


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
    assert Path(__file__) in files
    assert [file for file in files if hosts.search(file.read_bytes())] == []


def test_no_picture_lies_about_that_a_block_has_left() -> None:
    pictures = [file for file in tracked_files() if file.suffix in (".svg", ".png")]
    assert pictures
    assert [file for file in pictures if not file.is_relative_to(ROOT / "docs")] == []


def test_no_check_is_switched_off_by_a_comment() -> None:
    switch = re.compile(r"#\s*(noqa|ruff:\s*noqa|type:\s*ignore|pyrefly:\s*ignore)")
    code = [file for file in tracked_files() if file.suffix == ".py"]
    assert [file for file in code if switch.search(file.read_text("utf-8"))] == []


def test_no_module_is_too_long_to_read_at_one_sitting() -> None:
    code = (ROOT / "src").rglob("*.py")
    sizes = {file: len(file.read_text("utf-8").splitlines()) for file in code}
    assert {file: size for file, size in sizes.items() if size > 600} == {}


def test_make_explains_every_command() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    explained = re.findall(r"^([\w-]+):.* ## \w", text, re.MULTILINE)
    assert " ".join(phony).split() == explained


def wanted_requirements() -> list[Requirement]:
    """Return what the setup asks pip for: the project, its pictures and its tests."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = file["dependency-groups"]

    def members(group: str) -> Iterator[str]:
        for entry in groups[group]:
            if isinstance(entry, str):
                yield entry
            else:
                yield from members(entry["include-group"])

    project = file["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *chain(*extras), *members("dev")]
    return [Requirement(line) for line in lines]


def test_every_package_that_is_used_is_pinned_and_is_the_one_installed() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins: dict[str, str] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line)
        (exact,) = pin.specifier
        assert exact.operator == "=="
        if pin.marker is None or pin.marker.evaluate():
            assert canonicalize_name(pin.name) not in pins
            pins[canonicalize_name(pin.name)] = exact.version
    assert pins["torch"] == "2.13.0"

    wrong: list[str] = []
    seen: set[tuple[str, str]] = set()
    queue = [(requirement, "") for requirement in wanted_requirements()]
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is wanted and not installed")
            continue
        # CUDA comes with some builds of PyTorch, which pin it themselves.
        cuda = re.match(r"nvidia-|cuda-|triton$", name)
        if not cuda and pins.get(name) != Version(package.version).public:
            wrong.append(f"{name}: {package.version}, pinned {pins.get(name)}")
        for each in {"", *requirement.extras} - {e for n, e in seen if n == name}:
            seen.add((name, each))
            queue += [(Requirement(line), each) for line in package.requires or []]
    assert wrong == []
    assert len(seen) > len(wanted_requirements())
