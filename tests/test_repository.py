"""Rules that hold for the whole tree, so that the tree alone explains the project."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tested_transformer import attentions

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "tested_transformer"
BOOKBINDER = ROOT / "src" / "bookbinder"
SOURCE = ROOT / "src"
CHECKER = SOURCE / "attention_check"
# What is built on what, by module or folder, from the ground up: each may import from
# the lines above its own. So the model knows neither its optimizer nor its sampler, and
# the library knows nothing of the book.
FLOORS = [
    ["inspection", "habits", "replay"],
    ["checks"],
    ["masks", "positions", "cache", "flex"],
    ["attention", "interfaces", "rotary_scaling"],
    ["kernels"],
    ["layers"],
    ["multihead"],
    ["attentions", "config", "experts"],
    ["gpt", "encoder_decoder"],
    ["caches", "data"],
    ["checkpoints", "decoding", "interpret"],
    ["training", "surgery"],
    ["checking"],
    ["cli"],
]
STANDARD = sys.stdlib_module_names
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}
# What each may import from outside, beside the standard library.
FROM_OUTSIDE = {
    "checkpoints": {"safetensors", "huggingface_hub"},
    "data": {"tokenizers"},
    "checking": {"attention_check"},
    "cli": {"attention_check", "rich"},
}


def imports(tree: ast.AST) -> Iterator[str]:
    """Return the full name of each module or name that is imported, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            yield from (f"{home}.{alias.name}" for alias in node.names)


def packages_of(file: Path) -> set[str]:
    """Return the packages that a file imports."""
    tree = ast.parse(file.read_text("utf-8"))
    return {name.partition(".")[0] for name in imports(tree)}


def forbidden_imports(module: str, source: str) -> list[str]:
    """Return the imports that a module of the library may not have."""
    tree = ast.parse(source)
    outside = {"torch", "jaxtyping"} | FROM_OUTSIDE.get(module, set())
    forbidden: list[str] = []
    for name in imports(tree):
        package, _, rest = name.partition(".")
        if package == "tested_transformer":
            # The package itself imports all modules, so a name taken from it could
            # come from any of them.
            target = rest.partition(".")[0]
            floor = FLOOR_OF.get(target, len(FLOORS))
            allowed = target == module or floor < FLOOR_OF[module]
            allowed |= (module, target) == ("cli", "__version__")
        else:
            allowed = package in outside | STANDARD
        if not allowed:
            forbidden.append(name)
    return forbidden


def test_imports_lead_down() -> None:
    wrong = {
        file.relative_to(LIBRARY).as_posix(): forbidden
        for name in FLOOR_OF
        for file in [*LIBRARY.glob(f"{name}.py"), *(LIBRARY / name).rglob("*.py")]
        if (forbidden := forbidden_imports(name, file.read_text("utf-8")))
    }
    assert wrong == {}, "import less, or move what is imported to a floor below"


def test_every_module_has_its_floor() -> None:
    modules = {file.stem for file in LIBRARY.glob("[!_]*") if file.stem != "py"}
    assert modules == {*FLOOR_OF}


def test_the_library_and_the_tools_know_nothing_of_each_other_and_the_book() -> None:
    for package, others in {
        "tested_transformer": {"transformer_book", "bookbinder", "benchmarks"},
        "transformer_book": {"bookbinder", "benchmarks"},
    }.items():
        for file in (SOURCE / package).rglob("*.py"):
            assert not packages_of(file) & others, file
    for file in CHECKER.rglob("*.py"):
        assert packages_of(file) <= {"attention_check", "torch"} | STANDARD, file
    microgpt = SOURCE / "transformer_book" / "microgpt.py"
    assert packages_of(microgpt) <= STANDARD


def knowing(files: dict[str, str]) -> dict[str, set[str]]:
    """Return the files of a package that each file imports, wherever it does.

    Args:
        files: The text of each file by its module's name, such as ``decoding.readers``;
            that of a folder's ``__init__.py`` by the folder's name.
    """

    def module_of(name: str) -> str:
        inner = name.partition(".")[2]  # without the package
        return inner if inner in files else inner.rpartition(".")[0]

    imported = {
        module: {
            module_of(name)
            for name in imports(ast.parse(text))
            if name.startswith("tested_transformer.")
        }
        for module, text in files.items()
    }
    return {module: names & {*files} - {module} for module, names in imported.items()}


def circles(files: dict[str, str]) -> list[str]:
    """Return the files that import themselves by way of others."""
    known = knowing(files)
    left = {*files}
    while free := {module for module in left if not known[module] & left}:
        left -= free
    # What is left and leads into a circle is no part of one.
    while above := {m for m in left if not any(m in known[user] for user in left)}:
        left -= above
    return sorted(left)


def test_no_file_knows_itself_by_way_of_others() -> None:
    """Imports inside functions count, too."""
    names = {
        file: ".".join(file.relative_to(LIBRARY).with_suffix("").parts)
        for file in LIBRARY.rglob("*.py")
        if file != LIBRARY / "__init__.py"
    }
    files = {
        name.removesuffix(".__init__"): file.read_text("utf-8")
        for file, name in names.items()
    }
    assert circles(files) == []


def test_a_circle_is_seen() -> None:
    inside = "def f():\n    from tested_transformer.a import x"
    assert circles({"a": "from tested_transformer.b.c import y", "b.c": inside}) == [
        "a",
        "b.c",
    ]
    assert circles({"a": "", "b.c": inside, "d": "import tested_transformer.b.c"}) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("masks", "from tested_transformer.attention import attention_scores"),
        ("gpt", "def f():\n    from tested_transformer.training import train"),
        ("config", "from tested_transformer.attentions import ATTENTIONS"),
        ("surgery", "from attention_check import Reference"),
        ("attention", "from tested_transformer import causal_mask"),
        ("attention", "from .masks import causal_mask"),
        ("cli", "from bookbinder.page import load_page"),
        ("attention", "import numpy as np"),
    ],
)
def test_an_import_that_leads_up_is_seen(module: str, source: str) -> None:
    assert len(forbidden_imports(module, source)) == 1


def test_the_tools_can_be_read_from_the_page_on() -> None:
    """The scanner of pages knows no other tool, and none knows the pytest plugin."""
    tools = {
        file.relative_to(BOOKBINDER).as_posix(): {
            *imports(ast.parse(file.read_text("utf-8")))
        }
        for file in BOOKBINDER.rglob("*.py")
    }
    assert not [name for name in tools["page.py"] if name.startswith("bookbinder")]
    # It runs before anything is installed.
    packages = {name.partition(".")[0] for name in tools["environment.py"]}
    assert packages <= STANDARD
    plugin = "bookbinder.pytest_plugin"
    knowing = [file for file in tools if any(plugin in name for name in tools[file])]
    assert knowing == []


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "common", "helpers", "misc"}
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*")]
    assert [file for file in files if file.stem in drawers] == []


def test_public_names_are_listed() -> None:
    for file in [*LIBRARY.rglob("*.py"), *CHECKER.glob("*.py")]:
        text = file.read_text("utf-8")
        public = {*re.findall(r"^(?:def|class) ([A-Za-z]\w*)", text, re.MULTILINE)}
        names = re.search(r"^__all__ = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
        listed = {*ast.literal_eval(names[1])} if names else set[str]()
        assert public <= listed, f"{file}: add {public - listed} to __all__"


def test_each_module_has_its_tests_and_each_tests_their_module() -> None:
    """A module has a file of tests of its name, or a folder of them."""
    tests = ROOT / "tests" / "tested_transformer"
    entries = {file.relative_to(tests).parts[0] for file in tests.rglob("test_*.py")}
    tested = {name.removesuffix(".py").removeprefix("test_") for name in entries}
    assert tested == {*FLOOR_OF, "package"}


def test_each_module_has_its_page_in_the_reference() -> None:
    folder = ROOT / "docs" / "reference"
    index = (folder / "index.md").read_text("utf-8")
    pages = {name: f"tested_transformer.{name}" for name in FLOOR_OF}
    del pages["checking"]  # it hands on what has its page there
    pages["attention_check"] = "attention_check"
    book = SOURCE / "transformer_book"
    for part in [*book.glob("[!_]*.py"), *book.glob("*/__init__.py")]:
        name = part.parent.name if part.stem == "__init__" else part.stem
        if name not in ("exercises", "labels"):
            pages[name] = f"transformer_book.{name}"
    for name, dotted in pages.items():
        page = (folder / f"{name}.md").read_text("utf-8")
        assert f"\n::: {dotted}\n" in page
        assert f"({name}.md) |" in index
    # Where a module has several pages, each of its names has one place.
    pages = [*folder.glob("attentions*.md")]
    text = "".join(page.read_text("utf-8") for page in pages)
    names = re.findall(r"^ {8}- (\w+)$", text, re.MULTILINE)
    assert len({*names}) == len(names)
    assert {*names} == {*attentions.__all__}, "in docs/reference/attentions*.md"


def test_no_page_reads_files_of_the_repository() -> None:
    """What pages need ships with the library; see ``transformer_book``."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    reaching = re.compile(r"__file__|parents\[|\b(docs|benchmarks)[/\"']\s*/")
    offenders = [
        page.name for page in pages if reaching.search(page.read_text("utf-8"))
    ]
    assert offenders == []


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
        path for path in named if not any((r / path).exists() for r in (ROOT, LIBRARY))
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
        for pair in {("", name), *((e, name) for e in requirement.extras)} - seen:
            seen.add(pair)
            queue += [(Requirement(line), pair[0]) for line in package.requires or []]
    assert wrong == []
    assert len(seen) > len(first)


def test_no_picture_acts_or_reaches_out_of_the_page() -> None:
    # They stand in the HTML of a page, where a script of theirs would run.
    harmless = "svg g defs clipPath use marker style title desc metadata text tspan"
    harmless += " path rect line circle ellipse polygon polyline"
    about = ("w3.org/1999/02/22-rdf-syntax", "purl.org/dc/", "creativecommons.org/ns")
    pictures = [*(ROOT / "docs").rglob("*.svg")]
    assert pictures
    for picture in pictures:
        for element in ElementTree.parse(picture).iter():
            space, _, tag = element.tag.rpartition("}")
            if any(namespace in space for namespace in about):
                continue  # matplotlib's words about the picture
            assert tag in harmless.split(), f"{picture.name}: <{tag}>"
            for attribute, value in element.attrib.items():
                name = attribute.rpartition("}")[2]
                away = name == "href" and not value.startswith("#")
                assert not name.startswith("on"), f"{picture.name}: {name}"
                assert not away, f"{picture.name}: {name}={value}"
