"""Break the library, and let its tests and the pages notice.

The tests are collected once, and run once to see which lines each of them executes.
Then every mutant gets a process that is forked off: it runs the tests that meet the
mutant, those of its own module first and the fast before the slow, up to the first
that fails.
"""

import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bookbinder.mutation.operators import Mutant, mutants
from bookbinder.mutation.recording import Ran, fails, meeting, watched
from bookbinder.mutation.swapping import NotImportableError, Swapper
from bookbinder.running.forking import Outcome, each_in_a_fork

__all__ = ["MODULES", "Broken", "Verdict", "all_mutants", "try_mutants"]

MODULES = (
    *("masks", "attention", "multihead", "positions", "cache", "blocks"),
    "generation",
)
# Tests of modules that are built on these are asked too, where they are quick to run.
_ALSO = ("interchange", "gpt", "encoder_decoder")
# For each mutant: so many seconds of other tests, after all those of its own module.
_PATIENCE = 8.0
_OURS = "a mistake of the mutation itself: "


@dataclass(frozen=True)
class Broken:
    """A mutant of one file of a module."""

    module: str
    file: Path
    source: str = field(repr=False)
    mutant: Mutant


@dataclass(frozen=True)
class Verdict:
    """What the tests said of a mutant: ``by`` names the one that failed, or is ""."""

    broken: Broken
    by: str
    tests: int
    seconds: float


def _files_of(library: Path, module: str) -> list[Path]:
    folder = library / module
    return (
        sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    )


def all_mutants(library: Path, modules: tuple[str, ...] = MODULES) -> list[Broken]:
    """Give every mutant of some modules."""
    sources = [
        (module, file, file.read_text("utf-8"))
        for module in modules
        for file in _files_of(library, module)
    ]
    return [
        Broken(module, file, source, mutant)
        for module, file, source in sources
        for mutant in mutants(source)
    ]


def try_mutants(
    root: Path,
    chosen: list[Broken],
    told: Callable[[Verdict], None],
    *,
    pages: list[Path] | None = None,
    tests: list[Path] | None = None,
    jobs: int = 2,
    kept: Path | None = None,
) -> None:
    """Let the tests, or the pages, judge mutants.

    Args:
        root: The repository.
        chosen: The mutants.
        told: Is given each verdict as it comes.
        pages: Let the blocks of these pages judge; the tests of the library if None.
        tests: Let these files judge, and not those of the library.
        jobs: How many processes run at once.
        kept: Where to keep which test executes what, for the next time.
    """
    if pages is not None:
        judges = [str(page) for page in pages]
    elif tests is not None:
        judges = [str(test) for test in tests]
    else:
        judges = [str(test) for test in library_tests(root)]
    session = _Session(root, chosen, told, jobs, kept)
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "--no-header", "--no-summary"]
    status = pytest.main([*arguments, "--rootdir", str(root), *judges], [session])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise RuntimeError(f"pytest could not begin: {status!r}")


def library_tests(root: Path) -> list[Path]:
    """Give the test files of the modules, and of what is built on them."""
    folder = root / "tests" / "tested_transformer"
    places = [folder / module for module in (*MODULES, *_ALSO)]
    return [
        place if place.is_dir() else place.with_name(f"test_{place.name}.py")
        for place in places
    ]


class _Session:
    """The plugin that takes the place of pytest's own loop over the tests."""

    def __init__(
        self,
        root: Path,
        chosen: list[Broken],
        told: Callable[[Verdict], None],
        jobs: int,
        kept: Path | None,
    ) -> None:
        self.root, self.chosen, self.told = root, chosen, told
        self.jobs, self.kept = jobs, kept

    def pytest_sessionstart(self) -> None:
        """Let hypothesis give up at the first example that fails, without its story."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile(
            "mutants", settings.default, phases=phases, database=None
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record what each test executes, then judge the mutants."""
        from bookbinder import pytest_plugin

        items = {
            item.nodeid: item
            for item in session.items
            if not isinstance(item, pytest_plugin.PageItem)
        }
        ran = self._recorded(items)
        tests = meeting(ran)
        files = {broken.file for broken in self.chosen}
        for file in files:
            # Pages import what they need only when they run.
            name = file.relative_to(self.root / "src").with_suffix("")
            import_module(".".join(name.parts).removesuffix(".__init__"))
        swapper = Swapper(files)
        pieces = self._pieces(items, ran, tests, swapper)
        for (broken, count), outcome in each_in_a_fork(pieces, self.jobs):
            self.told(_verdict(broken, count, outcome))
        return True

    def _recorded(self, items: dict[str, pytest.Item]) -> dict[str, Ran]:
        """Run every test once, watched: those of a file in one process."""
        ran: dict[str, Ran] = {}
        if self.kept and self.kept.is_file():
            with suppress(Exception):
                ran = pickle.loads(self.kept.read_bytes())
        if ran.keys() >= items.keys():
            return ran
        folder = self.root / "src" / "tested_transformer"
        of_a_file = defaultdict[Path, list[pytest.Item]](list)
        for item in items.values():
            of_a_file[item.path].append(item)
        work = (
            (path, partial(watched, group, folder), 600.0)
            for path, group in of_a_file.items()
        )
        for path, outcome in each_in_a_fork(work, self.jobs):
            if outcome.died:
                print(f"left out, {outcome.died}: {path}", flush=True)
            ran |= outcome.value or {}
        for nodeid, each in ran.items():
            if each.failed:
                print(f"left out, for it fails as it is: {nodeid}", flush=True)
        if self.kept:
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            self.kept.write_bytes(pickle.dumps(ran))
        return ran

    def _pieces(
        self,
        items: dict[str, pytest.Item],
        ran: dict[str, Ran],
        met: dict[tuple[str, int], list[str]],
        swapper: Swapper,
    ) -> Iterator[tuple[Any, Callable[[], str], float]]:
        for broken in self.chosen:
            chosen = _chosen(broken, ran, met)
            nominal = sum(ran[nodeid].seconds for nodeid in chosen)
            tests = [items[nodeid] for nodeid in chosen if nodeid in items]
            yield (
                (broken, len(tests)),
                lambda broken=broken, tests=tests: _judged(broken, tests, swapper),
                20 + 4 * nominal,
            )


def _chosen(
    broken: Broken, ran: dict[str, Ran], tests: dict[tuple[str, int], list[str]]
) -> list[str]:
    """Choose the tests for a mutant: all of its own module, and of others some."""
    mutant, name = broken.mutant, str(broken.file)
    lines = mutant.lines or sorted({line for file, line in tests if file == name})
    met = list(dict.fromkeys(nodeid for line in lines for nodeid in tests[name, line]))
    met.sort(key=lambda nodeid: ran[nodeid].seconds)
    if not met:
        # Compiled code runs unseen: any test of the module may be the one.
        met = sorted(
            (n for n, r in ran.items() if _is_of(n, broken.module) and not r.failed),
            key=lambda nodeid: ran[nodeid].seconds,
        )
    own = [nodeid for nodeid in met if _is_of(nodeid, broken.module)]
    chosen, seconds = own, 0.0
    for nodeid in met:
        if not _is_of(nodeid, broken.module):
            chosen.append(nodeid)
            # The first block of a page imports what it needs, which takes its time.
            seconds += ran[nodeid].seconds
            if seconds > (_PATIENCE if own else 5 * _PATIENCE):
                break
    return chosen


def _is_of(nodeid: str, module: str) -> bool:
    return f"/test_{module}.py::" in nodeid or f"/{module}/test_" in nodeid


def _judged(broken: Broken, tests: list[pytest.Item], swapper: Swapper) -> str:
    """Give the name of the first test that fails; only in a fork."""
    try:
        swapper.swap(broken.file, broken.source, broken.mutant)
    except NotImportableError:
        return "import"
    except Exception as error:
        return f"{_OURS}{broken}: {error!r}"
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo:
        dynamo.reset()
    for item, following in zip(tests, [*tests[1:], None], strict=bool(tests)):
        if fails(item, following):
            return item.nodeid
    return ""


def _verdict(broken: Broken, count: int, outcome: Outcome) -> Verdict:
    by = outcome.died or outcome.value
    if by.startswith(_OURS):
        raise RuntimeError(by)
    return Verdict(broken, by, count, outcome.seconds)
