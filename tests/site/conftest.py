"""The finished site, built once, and a browser to open it in."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bookbinder.browser.browsing import Window, window
from bookbinder.browser.chromium import HOW_TO_GET, chromium, find_chromium
from bookbinder.browser.serving import served


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Path:
    """Build the site as it is released; anything it warns of is an error.

    Several workers share one: the first that comes builds it, the others wait.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    site, done = folder / "site", folder / "site-is-built"
    with (folder / "site-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            build(site, pytestconfig.rootpath)
            done.touch()
    return site


def build(site: Path, root: Path) -> None:
    """Do what ``make site`` does, into another folder."""
    ours = ("BOOKBINDER_PREVIEW", "SITE_URL", "REPO_URL")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    for command in (
        ["mkdocs", "build", "--strict", "--site-dir", str(site)],
        ["bookbinder.publishing", str(site)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)}:\n{done.stdout}", pytrace=False)


@pytest.fixture(scope="session")
def address(built: Path) -> Iterator[str]:
    """Serve the built site."""
    with served(built) as url:
        yield url


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a browser where there is none, in one line for all of them."""
    if item.get_closest_marker("browser") and find_chromium() is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET, pytrace=False)
        pytest.skip(HOW_TO_GET)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Chromium, with no way to any other machine."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser: Browser) -> Iterator[Window]:
    """Keep one window open, for one page after another."""
    with window(browser) as one:
        yield one
