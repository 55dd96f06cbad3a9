"""A page is checked when it is saved, and the watch begins anew when code changes."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bookbinder.contributing.checking import Checker
from bookbinder.contributing.watching import watch
from bookbinder.page import Problem


class Saving(Checker):
    """Stands for who checks; each time that it is asked, the next file is saved."""

    def __init__(self, root: Path, saves: list[Callable[[], None]]) -> None:
        super().__init__(root)
        self.saves, self.asked = saves, 0

    def check(self, file: Path) -> list[Problem]:
        self.asked += 1
        if not self.saves:
            raise KeyboardInterrupt
        self.saves.pop(0)()
        return [Problem("docs/page.md", self.asked, "wrong")] * (self.asked % 2)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    for name in ("docs/page.md", "docs/other.md", "src/library/code.py", "mkdocs.yml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
        os.utime(file, (0, 0))
    return tmp_path


def saved(book: Path, name: str) -> Callable[[], None]:
    return lambda: (book / name).write_text("after") and None


def watched(book: Path, *names: str) -> tuple[Saving, str, list[str]]:
    checker = Saving(book, [saved(book, name) for name in names])
    told, again = io.StringIO(), list[str]()
    page = book / "docs/page.md"
    try:
        watch(page, checker, told, again=lambda: again.append("again"), pause=0)
    except KeyboardInterrupt:
        again.append("interrupted")
    return checker, told.getvalue(), again


def test_each_save_of_a_page_is_a_check(book: Path) -> None:
    checker, told, ended = watched(book, "docs/page.md", "docs/other.md")
    assert (checker.asked, ended) == (3, ["interrupted"])
    lines = told.splitlines()
    assert lines[0] == "docs/page.md:1: wrong"
    assert lines[1].split()[1:] == ["page.md:", "1", "to", "mend", "(0.0", "s)"]
    assert lines[2].split()[1:] == ["page.md:", "nothing", "is", "wrong", "(0.0", "s)"]


def test_a_page_that_is_not_saved_is_not_checked_again(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter([None, None, None])

    def pause(seconds: float) -> None:
        if next(pauses, seconds):
            raise KeyboardInterrupt

    monkeypatch.setattr("bookbinder.contributing.watching.time.sleep", pause)
    checker = Saving(book, [lambda: None] * 9)
    with pytest.raises(KeyboardInterrupt):
        watch(book / "docs/page.md", checker, io.StringIO(), again=list, pause=1)
    assert checker.asked == 1


@pytest.mark.parametrize("name", ["src/library/code.py", "src/new.py", "mkdocs.yml"])
def test_code_that_changes_begins_the_watch_anew(name: str, book: Path) -> None:
    checker, _, ended = watched(book, "docs/page.md", name)
    assert (checker.asked, ended) == (2, ["again"])
