"""A mistake in the library turns a page red, and so does a mistake on a page.

Each mistake is made in a copy of the book; what the test run then says must name the
page and a line.
"""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from bookbinder.page import load_page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COPIED = ["docs", "src", "theme", "mkdocs.yml", "package.json", "pyproject.toml"]

BY_HAND = "docs/chapters/03-attention-by-hand.md"
MANY_HEADS = "docs/chapters/04-many-heads.md"
NO_PEEKING = "docs/chapters/06-no-peeking.md"
CROSS = "docs/chapters/08-cross-attention.md"
MASKS, ATTENTION, MULTIHEAD = (
    f"src/tested_transformer/{name}.py" for name in ("masks", "attention", "multihead")
)


@dataclass
class Mistake:
    """One replacement in one file, and the page that must notice."""

    file: str
    right: str
    wrong: str
    page: str


IN_THE_LIBRARY = {
    "a flipped mask": Mistake(
        MASKS, "key_positions <= query", "key_positions >= query", NO_PEEKING
    ),
    "a missing scale": Mistake(ATTENTION, "q.shape[-1] ** -0.5", "1.0", BY_HAND),
    "a softmax over the wrong axis": Mistake(
        ATTENTION, "return scores.softmax(dim=-1)", "return scores.softmax(-2)", BY_HAND
    ),
    "a swapped axis": Mistake(
        MULTIHEAD,
        "x.unflatten(-1, (num_heads, -1)).transpose(1, 2)",
        "x.reshape(x.shape[0], num_heads, x.shape[1], -1)",
        MANY_HEADS,
    ),
    "a renamed argument": Mistake(MULTIHEAD, "context", "memory", CROSS),
}

ON_A_PAGE = {
    "a digit of an output": Mistake(
        BY_HAND, "output     3.0119", "output     3.0118", BY_HAND
    ),
    "an output without its marker": Mistake(
        BY_HAND, "<!--pytest-codeblocks:expected-output-->\n", "", BY_HAND
    ),
    "a fence with an attribute": Mistake(
        BY_HAND, "```python\n", '```python title="x"\n', BY_HAND
    ),
    "a section that is gone": Mistake(
        BY_HAND, 'attention.py:scores"', 'attention.py:score"', BY_HAND
    ),
    "a title of another file": Mistake(
        BY_HAND, 'title="src/tested_transformer/attention.py"', 'title="x.py"', BY_HAND
    ),
}


class Ended(NamedTuple):
    """How a run of tests ended: its exit status, and what it said."""

    status: int
    said: str


def copy_of_the_book(folder: Path) -> Path:
    """Copy what the pages need; installed packages are shared."""
    for name in COPIED:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    return folder


def make(mistake: Mistake, book: Path, *, everywhere: bool) -> None:
    file = book / mistake.file
    text = file.read_text(encoding="utf-8")
    assert mistake.right in text, f"{mistake.file} no longer has {mistake.right!r}"
    count = -1 if everywhere else 1
    file.write_text(text.replace(mistake.right, mistake.wrong, count), encoding="utf-8")


class Mistaken(NamedTuple):
    """A copy in which each mistake of a page is made in chapters of its own."""

    tests: list[str]
    places: dict[str, tuple[str, int]]


def mistaken_chapters(book: Path) -> Mistaken:
    places: dict[str, tuple[str, int]] = {}
    tests: list[str] = []
    for number, (name, mistake) in enumerate(ON_A_PAGE.items()):
        page = mistake.page.replace("chapters", f"chapters-{number}")
        shutil.copytree(book / "docs/chapters", (book / page).parent)
        text = (book / page).read_text(encoding="utf-8")
        line = text[: text.index(mistake.right)].count("\n") + 1
        make(replace(mistake, file=page), book, everywhere=False)
        test = "audit"
        if name == "a digit of an output":  # only the run can tell
            chains = load_page(book / page, book).chains
            test = f"line {max(each.line for each in chains if each.line < line)}"
        tests.append(f"{page}::{test}")
        places[name] = (page, line)
    return Mistaken(tests, places)


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mistaken]:
    book = copy_of_the_book(tmp_path_factory.mktemp("pages"))
    return book, mistaken_chapters(book)


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory, mistaken: tuple[Path, Mistaken]
) -> dict[str, Ended]:
    """Run what has to notice each mistake, and a copy without any.

    One process imports PyTorch, once for all of them.
    """
    book, chapters = mistaken
    runs = {"pages": (book, chapters.tests)}
    # The same tests of the page as it is.
    right = [re.sub(r"chapters-\d+", "chapters", test) for test in chapters.tests]
    runs["right"] = (book, sorted({*right}))
    for number, (name, mistake) in enumerate(IN_THE_LIBRARY.items()):
        book = copy_of_the_book(tmp_path_factory.mktemp(f"library-{number}"))
        make(mistake, book, everywhere=True)
        # The audit runs nothing of the library: what is asked is whether a block
        # notices.
        runs[name] = (book, [mistake.page, "-x", "-k", "not audit"])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("breaking.py"))],
        input=json.dumps([(str(book), tests) for book, tests in runs.values()]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(runs, (Ended(*e) for e in json.loads(done.stdout)), strict=True))


def test_the_copy_itself_is_right(ended: dict[str, Ended]):
    assert ended["right"].status == 0, ended["right"].said


@pytest.mark.parametrize("name", IN_THE_LIBRARY)
def test_a_mistake_in_the_library_turns_a_page_red(name: str, ended: dict[str, Ended]):
    status, said = ended[name]
    assert status == 1, said
    page = re.escape(IN_THE_LIBRARY[name].page)
    assert re.search(rf"^{page}:\d+: ", said, re.MULTILINE), said


@pytest.mark.parametrize("name", ON_A_PAGE)
def test_a_mistake_on_a_page_turns_it_red_at_its_line(
    name: str, ended: dict[str, Ended], mistaken: tuple[Path, Mistaken]
):
    _, said = ended["pages"]
    assert f"{len(ON_A_PAGE)} failed" in said, said
    page, line = mistaken[1].places[name]
    told = "\n".join(re.findall(rf"^{page}:\d+: .*$", said, re.MULTILINE))
    # A problem of a fence is named at its first line or at what it holds.
    assert re.search(rf"\.md:({line - 1}|{line}|{line + 1}): ", told), told
