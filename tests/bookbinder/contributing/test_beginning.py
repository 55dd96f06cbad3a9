"""A chapter that is begun passes every test at once; what cannot be one is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bookbinder.contributing.beginning import TEMPLATE, begin
from bookbinder.contributing.inserting import ChapterError
from bookbinder.names.links import link_problems
from bookbinder.page import load_page

ROOT = Path(__file__).parents[3]
TAKEN = ("index.md", "chapters/06-no-peeking.md", "chapters/a-chapter-to-copy.md")
QUESTION = "Why do models attend to the first token so much?"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Give what a new chapter changes, and one chapter that is there."""
    for name in (
        "mkdocs.yml",
        "tests/test_repository.py",
        *(f"docs/{n}" for n in TAKEN),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs/reference", tmp_path / "docs/reference")
    (tmp_path / "src/tested_transformer/gpt").mkdir(parents=True)
    (tmp_path / "src/tested_transformer/masks.py").touch()
    return tmp_path


def state(book: Path) -> dict[str, str]:
    files = (file for file in book.rglob("*") if file.is_file())
    return {file.relative_to(book).as_posix(): file.read_text() for file in files}


def added(before: str, after: str) -> list[str]:
    """Give the lines that are new; everything else stands as it stood."""
    new = after.splitlines()
    old = iter(before.splitlines())
    wanted = next(old, None)
    found: list[str] = []
    for line in new:
        if line == wanted:
            wanted = next(old, None)
        else:
            found.append(line)
    assert wanted is None, f"{wanted!r} is gone"
    return found


def test_a_chapter_is_a_file_an_entry_and_a_row(book: Path) -> None:
    before = state(book)
    told = begin(book, "Attention  sinks", question=QUESTION)
    after = state(book)
    path = "docs/chapters/07-attention-sinks.md"
    assert told[:3] == [f"made {path}", "changed mkdocs.yml", "changed docs/index.md"]
    assert after.keys() - before.keys() == {path}
    template = before[TEMPLATE].splitlines()
    assert after[path].splitlines() == [
        "# Attention sinks",
        "",
        QUESTION,
        *template[3:],
    ]
    assert added(before["mkdocs.yml"], after["mkdocs.yml"]) == [
        "      - Attention sinks: chapters/07-attention-sinks.md"
    ]
    assert added(before["docs/index.md"], after["docs/index.md"]) == [
        f"| [Attention sinks](chapters/07-attention-sinks.md) | {QUESTION} |"
    ]
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"mkdocs.yml", "docs/index.md"}


def test_a_module_comes_with_its_tests_its_arrows_and_its_reference(book: Path) -> None:
    before = state(book)
    begin(book, "Attention sinks", module="sinks")
    after = state(book)
    assert after.keys() - before.keys() == {
        "docs/chapters/07-attention-sinks.md",
        "docs/reference/sinks.md",
        "src/tested_transformer/sinks.py",
        "tests/tested_transformer/test_sinks.py",
    }
    lines = {
        "docs/reference/index.md": ["| [sinks](sinks.md) | Attention sinks. |"],
        "mkdocs.yml": [
            "      - Attention sinks: chapters/07-attention-sinks.md",
            "      - sinks: reference/sinks.md",
        ],
        "tests/test_repository.py": ['    "sinks": set[str](),'],
    }
    for name, wanted in lines.items():
        assert added(before[name], after[name]) == wanted


def test_a_name_that_yaml_would_read_otherwise_is_quoted(book: Path) -> None:
    begin(book, "Nothing: a study")
    text = (book / "mkdocs.yml").read_text()
    assert '      - "Nothing: a study": chapters/07-nothing-a-study.md\n' in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", 'wanted a title: make chapter NAME="Attention sinks"'),
        ("  ", "wanted a title"),
        ("attention sinks", "wanted 3 to 60 characters that begin with a capital"),
        ("Attention " * 7, "wanted 3 to 60 characters"),
        ("No Peeking", "docs/chapters/06-no-peeking.md has this title, take another"),
        ("No peeking?", "docs/chapters/06-no-peeking.md has this title, take another"),
        ("Six heads", "nothing has run yet: say it without 'Six', and add it later"),
        ("The 12 heads", "say it without '12'"),
        ("The value of $x$", "wanted words alone, without $"),
        ("Sinks | drains", "wanted words alone, without |"),
        ("Which of those", "wanted a word that says what the chapter is about"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, reason: str, book: Path) -> None:
    before = state(book)
    with pytest.raises(ChapterError) as caught:
        begin(book, name)
    assert reason in str(caught.value)
    assert state(book) == before


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Sinks", "QUESTION='Sinks': wanted a question mark at its end"),
        ("Why `this`?", "wanted words alone, without `"),
        ("Why 12?", "say it without '12'"),
    ],
)
def test_a_question_that_is_none_is_refused(
    question: str, reason: str, book: Path
) -> None:
    with pytest.raises(ChapterError) as caught:
        begin(book, "Attention sinks", question=question)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("masks", "src/tested_transformer/masks.py is there, take another name"),
        ("gpt", "src/tested_transformer/gpt is there, take another name"),
        ("Sinks", "wanted the name of a Python module, in small letters"),
        ("my-sinks", "wanted the name of a Python module"),
        ("class", "wanted the name of a Python module"),
        ("utils", "a module is called by its one idea, none of common, core, helpers"),
    ],
)
def test_a_module_that_is_none_is_refused(module: str, reason: str, book: Path) -> None:
    before = state(book)
    with pytest.raises(ChapterError) as caught:
        begin(book, "Attention sinks", module=module)
    assert f"MODULE={module!r}: " in str(caught.value)
    assert reason in str(caught.value)
    assert state(book) == before


def run_in(copy: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_is_begun_passes_the_tests_at_once(tmp_path: Path) -> None:
    """In a copy of the tree: the page, its exercises, the module, rules and style."""
    copy = tmp_path / "copy"
    kept = shutil.ignore_patterns("models", "vendor", "__pycache__", "results")
    copy.mkdir()
    for name in ("docs", "src", "tests", "theme"):
        shutil.copytree(ROOT / name, copy / name, ignore=kept)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    (copy / "node_modules").symlink_to(ROOT / "node_modules")
    (copy / "docs/assets/models").symlink_to(ROOT / "docs/assets/models")
    python = sys.executable
    arguments = ("Attention sinks", "--question", QUESTION, "--module", "sinks")
    run_in(copy, python, "-m", "bookbinder", "chapter", *arguments)
    (page,) = copy.glob("docs/chapters/*-attention-sinks.md")
    path = page.relative_to(copy).as_posix()
    said = run_in(copy, python, "-m", "bookbinder", "page", path)
    assert said == f"{page.name}: nothing is wrong\n"
    index = load_page(copy / "docs/index.md", copy)
    assert link_problems(index, copy) == []
    tests = ["tests/tested_transformer/test_sinks.py", "tests/test_repository.py"]
    tests += ["tests/pages/test_exercises.py", "-p", "no:cacheprovider"]
    mine = "sinks or each_tests_their_module"
    run_in(copy, python, "-m", "pytest", *tests, "-k", mine)
    code = ("src/tested_transformer/sinks.py", "tests/tested_transformer/test_sinks.py")
    for tool in (("check",), ("format", "--check")):
        run_in(copy, python, "-m", "ruff", *tool, *code, "tests/test_repository.py")
