"""Connect the pages to pytest: pytest-codeblocks runs them, this plugin watches.

Each page has three kinds of tests: the audit, one test for each chain of blocks, and
the evidence, which checks that the blocks executed the page's listings and drew its
figures. When all have passed, the run writes a record of the page, which the finished
site shows.

pytest-codeblocks finds the pages and runs the blocks. It would give a chain of blocks
one output, so the pages are read, and outputs are compared, here.
"""

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from unittest.mock import patch

import pytest
from pytest_codeblocks.main import CodeBlock
from pytest_codeblocks.plugin import MarkdownFile, TestBlock

from bookbinder.audit import audit
from bookbinder.evidence import Evidence, evidence_problems
from bookbinder.outputs import compare
from bookbinder.page import Chain, PageError, load_page
from bookbinder.publishing.records import (
    foundations,
    make_record,
    record_file,
    write_record,
)
from bookbinder.running.blocks import program
from bookbinder.running.figures import draw_as_the_book
from bookbinder.running.signatures import check_shapes, forget_calls

_evidence = pytest.StashKey[dict[Path, Evidence]]()
_passed = pytest.StashKey[dict[Path, set[str]]]()
_standing_on = pytest.StashKey[str]()
_chain = pytest.StashKey[Chain]()


def pytest_load_initial_conftests() -> None:
    """Turn on shape checks for the library before anything imports it."""
    check_shapes()


def pytest_configure(config: pytest.Config) -> None:
    """Draw as the book does, and keep what the pages have done."""
    config.stash[_evidence] = {}
    config.stash[_passed] = {}
    draw_as_the_book()
    if precision := os.environ.get("BOOK_AUTO_PRECISION"):  # set by make elsewhere
        from tested_transformer.training import devices

        patch.object(devices, "faster_precision", return_value=precision).start()


def pytest_runtest_setup() -> None:
    """Have the shapes of each function checked in every test."""
    forget_calls()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    parent: pytest.Collector,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect each page that pytest-codeblocks would read with this plugin's reader."""
    collectors = yield
    return [
        PageFile.from_parent(parent, path=collector.path)
        if isinstance(collector, MarkdownFile)
        else collector
        for collector in collectors
    ]


class PageFile(pytest.File):
    """The tests of a page: the audit, its chains, and the evidence."""

    def collect(self) -> Iterable[pytest.Item]:
        """Return the tests in this order, each chain as a test of pytest-codeblocks."""
        stash, root = self.config.stash, self.config.rootpath
        if _standing_on not in stash:
            # Taken before anything runs, because later changes are not what ran.
            stash[_standing_on] = foundations(root)
        page = load_page(self.path, root)
        stash[_evidence][self.path] = Evidence(page, root)
        yield PageItem.from_parent(self, name="audit")
        for chain in page.chains:
            block = CodeBlock(program(chain), chain.line, "python")
            item = TestBlock.from_parent(self, name=f"line {chain.line}", obj=block)
            item.stash[_chain] = chain
            yield item
        yield PageItem.from_parent(self, name="evidence")


class PageItem(pytest.Item):
    """A test of a whole page, which fails with all its problems at once.

    The audit checks what the page shows. The evidence checks what its blocks did, after
    running those that were not selected.
    """

    def runtest(self) -> None:
        """Fail if there is any problem."""
        evidence = self.config.stash[_evidence][self.path]
        problems = (
            audit(evidence.page, evidence.root)
            if self.name == "audit"
            else evidence_problems(evidence)
        )
        if problems:
            raise PageError(problems)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        """Show problems without a traceback, and other errors with it."""
        if isinstance(excinfo.value, PageError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the page."""
        return self.path, 0, f"{self.path.name}: {self.name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run a chain in a fresh state, watched, and compare its outputs."""
    chain = item.stash.get(_chain, None)
    if not chain:
        return (yield)
    evidence = item.config.stash[_evidence][item.path]
    with evidence.gathered(chain) as outputs:
        yield
    if problems := [*compare(evidence.page, chain, outputs)]:
        raise PageError(problems)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the record of a page when all its tests have passed, in whatever order.

    If one fails, delete the record.
    """
    report = yield
    root, stash = item.config.rootpath, item.config.stash
    evidence = stash[_evidence].get(item.path)
    if not evidence or not item.path.resolve().is_relative_to(root.resolve()):
        return report
    page, names = evidence.page, stash[_passed].setdefault(item.path, set())
    required = {"audit", "evidence", *(f"line {chain.line}" for chain in page.chains)}
    with contextlib.suppress(OSError):  # A checkout may be read-only.
        if not report.passed:
            record_file(root, page.path).unlink(missing_ok=True)
        elif call.when == "call":
            names.add(item.name)
            if required <= names:
                record = make_record(page, evidence.lines, root, stash[_standing_on])
                write_record(root, page, record)
    return report
