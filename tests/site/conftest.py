"""The finished site, built once, and a browser to open it in."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from bookbinder.browser import HOW_TO_GET, find_chromium, launch_options, served
from bookbinder.publishing.old_addresses import OLD

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    p.relative_to(ROOT / "docs").as_posix() for p in ROOT.glob("docs/**/*.md")
)
# On every change these are opened in a browser, one of each kind; each night, all. For
# a change of one page, that one.
CHOSEN_PAGE = os.environ.get("BOOK_PAGE", "").rpartition("docs/")[2]
A_FEW = (
    [CHOSEN_PAGE]
    if CHOSEN_PAGE in PAGES
    else ["index.md", "chapters/fewer-keys.md", "reference/attention.md"]
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for an ``opened_page`` on a few pages, or on all of the book."""
    if "opened_page" in metafunc.fixturenames:
        pages = PAGES if os.environ.get("BOOK_NIGHTLY") else A_FEW
        metafunc.parametrize("opened_page", pages)


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
            build(site, pytestconfig.rootpath, folder)
            done.touch()
    return site


def build(site: Path, root: Path, here: Path) -> None:
    """Do what ``make site`` does, into another folder and from another one."""
    ours = ("BOOKBINDER_PREVIEW", "SITE_URL", "REPO_URL")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    for command in (
        ["mkdocs", "build", "--strict", "-f", f"{root}/mkdocs.yml", "-d", str(site)],
        ["bookbinder.publishing", str(site)],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=here,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)}:\n{done.stdout}", pytrace=False)


@pytest.fixture(scope="session")
def html(built: Path) -> dict[str, str]:
    """Read every page of the built site, by its address: the home page's is empty."""
    return {
        ""
        if file.parent == built
        else f"{file.parent.relative_to(built).as_posix()}/": (file.read_text("utf-8"))
        for file in sorted(built.rglob("index.html"))
        # An old address holds nothing but the new one.
        if file.parent.relative_to(built).as_posix() not in OLD
    }


@pytest.fixture(scope="session")
def address(built: Path) -> Iterator[str]:
    """Serve the built site."""
    with served(built) as url:
        yield url


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Tell pytest-playwright which browser to start, with no way to other machines."""
    if find_chromium() is None:
        if os.environ.get("CI"):
            pytest.fail(HOW_TO_GET, pytrace=False)
        pytest.skip(HOW_TO_GET)
    return launch_options()


@pytest.fixture(scope="session")
def browser_context_args() -> dict[str, Any]:
    """Open pages on a desktop, for somebody who wants nothing to move and may copy."""
    return {
        "viewport": {"width": 1440, "height": 900},
        "reduced_motion": "reduce",
        "permissions": ["clipboard-read", "clipboard-write"],
    }


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """Note what a page complains of, and what it asks for and does not get.

    No other machine can be reached: what is asked of one fails.
    """
    heard: list[str] = []
    page.on("console", lambda m: heard.append(m.text) if m.type in NOISE else None)
    page.on("pageerror", lambda error: heard.append(f"script error: {error}"))
    page.on("requestfailed", lambda request: heard.append(f"failed: {request.url}"))
    page.add_init_script(path=Path(__file__).with_name("looking.js"))
    return heard


NOISE = ("error", "warning")
