"""Every broken page is refused with its line and reason, and no right one is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REPORT = re.compile(r"^(?P<page>[\w-]+)\.md:(?P<line>\d+): (?P<reason>.*)$")
FAILURE = re.compile(r"^(?:FAILED|ERROR) \S*?(?P<page>[\w-]+)\.md")


def read_corpus(name: str) -> dict[str, str]:
    """Give the pages of a corpus by what they are about."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return dict(
        part.split("\n", maxsplit=1)
        for part in re.split("^==== ", text, flags=re.M)[1:]
    )


BROKEN = {
    title: text.split("\n", maxsplit=1)
    for title, text in read_corpus("broken_pages.txt").items()
}
RIGHT = read_corpus("right_pages.txt")


def stem(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower()).strip("-")


@pytest.fixture(scope="module")
def reports(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, list[tuple[int, str]]]:
    """Check all pages as a contributor does, and read what is reported for each."""
    folder = tmp_path_factory.mktemp("corpus")
    pages = {title: text for title, (_, text) in BROKEN.items()} | RIGHT
    for title, text in pages.items():
        (folder / f"{stem(title)}.md").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir=."]
    command += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    command += ["--tb=short", str(folder)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stdout + run.stderr
    reports: dict[str, list[tuple[int, str]]] = {stem(title): [] for title in pages}
    for line in run.stdout.splitlines():
        if found := REPORT.match(line):
            reports[found["page"]].append((int(found["line"]), found["reason"]))
        elif found := FAILURE.search(line):
            reports[found["page"]].append((0, line))
    return reports


@pytest.mark.parametrize("title", BROKEN)
def test_a_broken_page_is_refused(title: str, reports):
    line, _, words = BROKEN[title][0].partition(": ")
    assert any(
        number == int(line) and words in reason
        for number, reason in reports[stem(title)]
    ), f"wanted {line}: … {words} …; reported {reports[stem(title)]}"


@pytest.mark.parametrize("title", RIGHT)
def test_a_right_page_is_accepted(title: str, reports):
    assert reports[stem(title)] == []


def test_the_corpus_is_large_enough():
    assert len(BROKEN) >= 60
    assert len({stem(title) for title in [*BROKEN, *RIGHT]}) == len(BROKEN) + len(RIGHT)
