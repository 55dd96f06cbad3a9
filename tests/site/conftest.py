"""The finished site, built once, and a browser to open it in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bookbinder.browser.browsing import served
from bookbinder.browser.chromium import HOW_TO_GET, chromium, find_chromium


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Path:
    """Build the site as it is released; anything it warns of is an error."""
    site = tmp_path_factory.mktemp("site")
    ours = ("BOOKBINDER_PREVIEW", "SITE_URL")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=pytestconfig.rootpath,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"mkdocs build --strict:\n{done.stdout}", pytrace=False)
    return site


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
