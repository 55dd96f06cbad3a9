"""Fixtures and hooks for all tests.

PyTorch is imported where it is first needed, so that a test run starts visibly at once.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

# Tensors in tests are small, and several workers share the processors, so more than one
# thread only adds waiting. The processes that tests start inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Every night runs all tests; a change runs those that are likely to notice it.
NIGHTLY = bool(os.environ.get("BOOK_NIGHTLY"))
# If it names a page, tests that take one page each run on this one only.
PAGE = Path(os.environ.get("BOOK_PAGE", "")).stem
DOCS = Path(__file__).parents[1] / "docs"
PAGES = {name for file in DOCS.rglob("*.md") for name in (file.stem, file.parent.name)}

# No deadline, because a machine may be busy; no randomness, so that failures repeat.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True)
hypothesis.settings.load_profile("book")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Turn garbage collection off while tests are collected.

    Collection imports millions of objects that stay; searching them took a tenth of the
    time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect nightly tests and those of other pages; start with the slow ones."""
    out = {item for item in items if PAGE and _is_of_another_page(item)}
    if not NIGHTLY:
        out |= {item for item in items if item.get_closest_marker("nightly")}
    items[:], deselected = (
        [item for item in items if (item in out) is left] for left in (False, True)
    )
    config.hook.pytest_deselected(items=deselected)
    if hasattr(config, "workerinput"):
        items.sort(key=_turns(items))


def _is_of_another_page(item: pytest.Item) -> bool:
    """Return whether a test has been given one page, and not the one that is asked."""
    callspec = getattr(item, "callspec", None)
    name = Path(callspec.id).stem.removeprefix("reference-") if callspec else ""
    return name in PAGES and name != PAGE


def _turns(items: list[pytest.Item]) -> Callable[[pytest.Item], int]:
    """Return a sort key for tests that several workers share, by their files.

    The first worker builds the site, on which all tests of the site wait, while the
    others run pages. Short tests come last, so that no worker waits at the end.
    """
    on_site = dict.fromkeys(
        i.path for i in items if "built" in getattr(i, "fixturenames", ())
    )
    browsed = {i.path for i in items if i.get_closest_marker("browser")}
    slow = {i.path for i in items if i.get_closest_marker("slow")}
    builder = next(iter(on_site), None)

    def turn(item: pytest.Item) -> int:
        if item.path == builder:
            return 0
        if item.path in browsed or item.path in on_site:
            return 2
        return 1 if item.path in slow or item.path.suffix == ".md" else 3

    return turn


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    # Without a GPU, torch.manual_seed records its caller for a GPU that may come later,
    # which takes a millisecond with so many tests.
    seeded = torch if torch.cuda.is_available() else torch.default_generator
    seeded.manual_seed(0)


@pytest.fixture
def as_a_caller() -> Iterator[None]:
    """Turn off the shape checks of the test run, to see the library's own errors."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
