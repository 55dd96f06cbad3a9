"""Connect the pages to pytest: pytest-codeblocks runs them, this plugin watches.

Each page has three kinds of tests: the audit, one test for each chain of blocks (run by
pytest-codeblocks), and the evidence, which checks that the blocks executed the page's
listings and drew its figures. When all have passed, the run writes a record of the
page, which the finished site shows.

Two parts of pytest-codeblocks are replaced: how a file is read into blocks, and how an
output is compared (``ExpectedText``).
"""

import contextlib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from pytest_codeblocks import plugin as codeblocks
from pytest_codeblocks.main import CodeBlock

from bookbinder.audit import audit
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.outputs import compare
from bookbinder.page import Chain, Page, load_page
from bookbinder.publishing.records import (
    foundations,
    make_record,
    record_file,
    write_record,
)
from bookbinder.running.blocks import explain, program
from bookbinder.running.figures import draw_as_the_book
from bookbinder.running.shape_checks import check_shapes, forget_calls
from bookbinder.running.state import LeftBehindError

_evidence = pytest.StashKey[dict[Path, Evidence]]()
_passed = pytest.StashKey[dict[Path, set[str]]]()
_standing_on = pytest.StashKey[str]()


class PageError(Exception):
    """The problems of a page, one ``page.md:line: reason`` per line."""


def pytest_load_initial_conftests() -> None:
    """Turn on shape checks for the library before anything imports it."""
    check_shapes()


def pytest_runtest_setup() -> None:
    """Have the shapes of each function checked in every test."""
    forget_calls()


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-codeblocks read pages with the strict reader of this package."""
    config.stash[_evidence] = {}
    config.stash[_passed] = {}
    draw_as_the_book()

    def extract_from_file(f: Any, *_: Any, **__: Any) -> list[CodeBlock]:
        page = load_page(f, config.rootpath)
        return [ChainBlock(page, chain) for chain in page.chains]

    codeblocks.extract_from_file = extract_from_file


class ExpectedText(str):
    """The output that a chain must print; pytest-codeblocks compares with ``!=``.

    Numbers are compared as numbers, and the error names each line that differs.
    """

    def __new__(cls, page: Page, chain: Chain) -> "ExpectedText":
        """Keep the page, for its lines and tolerances."""
        text = super().__new__(cls, "the outputs of the page")
        text.page, text.chain = page, chain
        return text

    page: Page
    chain: Chain

    def __ne__(self, printed: object) -> bool:
        """Compare what was printed with the outputs of the page.

        Raises:
            PageError: If they differ; the message names the lines.
        """
        problems = [*compare(self.page, self.chain, str(printed))]
        if problems:
            raise PageError("\n".join(map(str, problems)))
        return False

    __hash__ = str.__hash__


class ChainBlock(CodeBlock):
    """A chain of blocks for pytest-codeblocks: one program, one output."""

    def __init__(self, page: Page, chain: Chain) -> None:
        super().__init__(
            code=program(chain),
            lineno=chain.line,
            syntax="python",
            expected_output=ExpectedText(page, chain),
        )
        self.page, self.chain = page, chain


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Add the audit and the evidence to every page whose blocks are run."""
    if file_path.suffix == ".md" and parent.config.option.codeblocks:
        return PageFile.from_parent(parent, path=file_path)
    return None


class PageFile(pytest.File):
    """The tests of a page as a whole."""

    def collect(self) -> Iterable[pytest.Item]:
        """Return the audit and the evidence."""
        stash = self.config.stash
        if _standing_on not in stash:
            # Taken before anything runs, because later changes are not what ran.
            stash[_standing_on] = foundations(self.config.rootpath)
        yield PageItem.from_parent(self, name="audit")
        yield PageItem.from_parent(self, name="evidence")


class PageItem(pytest.Item):
    """A test of a whole page, which fails with all its problems at once.

    The audit checks what the page shows. The evidence checks what its blocks did, after
    running those that were not selected.
    """

    def runtest(self) -> None:
        """Fail if there is any problem."""
        root = self.config.rootpath
        page = load_page(self.path, root)
        problems = (
            audit(page, root)
            if self.name == "audit"
            else evidence_problems(_evidence_of(self, page))
        )
        if problems:
            raise PageError("\n".join(map(str, problems)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        """Show problems without a traceback, and other errors with it."""
        if isinstance(excinfo.value, PageError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the page."""
        return self.path, 0, f"{self.path.name}: {self.name}"


def _evidence_of(item: pytest.Item, page: Page) -> Evidence:
    """Return what the blocks of a page have done so far in this test run."""
    known = item.config.stash[_evidence]
    return known.setdefault(item.path, Evidence(page, item.config.rootpath))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the audit of a page before its blocks, and the evidence after them."""
    paths = dict.fromkeys(item.path for item in items)
    files = {path: number for number, path in enumerate(paths)}

    def place(item: pytest.Item) -> tuple[int, int]:
        of_page = isinstance(item, PageItem)
        return files[item.path], of_page and (-1 if item.name == "audit" else 1)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run a block in a fresh state, watched, and name the page's line if it fails."""
    block = getattr(item, "obj", None)
    if not isinstance(block, ChainBlock):
        return (yield)
    try:
        with _evidence_of(item, block.page).gathered(block.chain):
            return (yield)
    except (KeyboardInterrupt, PageError):
        raise
    except BaseException as error:
        # pytest-codeblocks raises its own error from that of the block. A block that
        # skips itself must not count as one that ran.
        of_the_block = isinstance(error, Exception) and error.__context__
        cause = error if isinstance(error, LeftBehindError) else of_the_block or error
        problem = explain(block.page, block.chain, cause)
        raise PageError(str(problem)) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the record of a page that has passed; delete it if a test fails.

    The evidence comes last, and covers the whole page.
    """
    report = yield
    root, passed = item.config.rootpath, item.config.stash[_passed]
    of_a_page = isinstance(item, PageItem)
    if not of_a_page and not isinstance(getattr(item, "obj", None), ChainBlock):
        return report
    if not item.path.resolve().is_relative_to(root.resolve()):
        return report
    names = passed.setdefault(item.path, set())
    if not report.passed:
        page = load_page(item.path, root)
        with contextlib.suppress(OSError):  # A checkout may be read-only.
            record_file(root, page.path).unlink(missing_ok=True)
    elif call.when == "call":
        names.add(item.name)
        if of_a_page and item.name == "evidence":
            page = load_page(item.path, root)
            if {"audit", *(f"line {chain.line}" for chain in page.chains)} <= names:
                first = _evidence_of(item, page).lines
                standing_on = item.config.stash[_standing_on]
                record = make_record(page, first, root, standing_on)
                with contextlib.suppress(OSError):
                    write_record(root, page, record)
    return report
