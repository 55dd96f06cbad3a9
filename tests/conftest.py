"""What every test may ask for. PyTorch is imported where it is first needed, so that
a test run says at once that it has begun.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator

import hypothesis
import pytest

# Tensors in tests are small, and several workers share the processors: more threads
# than one only wait for each other. The processes that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each night all is tested; on a change, what is likely to notice it.
NIGHTLY = bool(os.environ.get("BOOK_NIGHTLY"))

# A machine may be busy, and a test that fails must fail again: no deadline, no chance.
hypothesis.settings.register_profile("book", deadline=None, derandomize=True)
hypothesis.settings.load_profile("book")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported while tests are collected, millions of objects.

    To look through it again and again for what can be let go took a tenth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what runs each night, and let workers begin with what takes long."""
    if not NIGHTLY:
        tonight = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if item not in tonight]
        config.hook.pytest_deselected(items=tonight)
    if hasattr(config, "workerinput"):
        items.sort(key=_turns(items))


def _turns(items: list[pytest.Item]) -> Callable[[pytest.Item], int]:
    """Return when the file of a test has its turn, where several workers share them.

    The first worker builds the site, for which all tests of the site wait; the others
    run pages meanwhile. What is left for the end is short, so that none waits there.
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

    # For a GPU that may come later, torch.manual_seed writes down who calls it, which
    # takes a millisecond under so many tests.
    seeded = torch if torch.cuda.is_available() else torch.default_generator
    seeded.manual_seed(0)


@pytest.fixture
def as_a_caller() -> Iterator[None]:
    """Switch the shape checks of the test run off, to meet the library's own errors."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
