"""Chromium, which draws diagrams, prints the book and tests the site, and a server."""

import os
import re
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

HOW_TO_GET = (
    "Chromium is needed: apt-get install chromium, or CHROMIUM=/path/to/chromium"
)

# The one without windows comes first: it opens pages in two thirds of the time.
_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chrome",
)
_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


class NoChromiumError(RuntimeError):
    """This machine has no browser; the message says how to get one."""


def find_chromium() -> str | None:
    """Return the path of Chromium or a browser based on it, if there is one."""
    configured = os.environ.get("CHROMIUM")
    if configured:
        return shutil.which(configured)
    paths = filter(None, map(shutil.which, _NAMES))
    return next(paths, str(_MAC) if _MAC.is_file() else None)


def launch_options() -> dict[str, Any]:
    """Return Playwright's options for a browser that can reach only this machine.

    Raises:
        NoChromiumError: If there is no browser.
    """
    executable = find_chromium()
    if executable is None:
        raise NoChromiumError(HOW_TO_GET)
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Chromium refuses to sandbox itself for root, as in a container.
        arguments.append("--no-sandbox")
    return {
        "executable_path": executable,
        "args": arguments,
        # Desktops show scroll bars next to the content.
        "ignore_default_args": ["--hide-scrollbars"],
    }


@contextmanager
def chromium() -> Generator[Browser]:
    """Start a browser that can reach only this machine.

    Raises:
        NoChromiumError: If there is none.
    """
    options = launch_options()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Serve a folder to this machine only; yield its address, with a slash.

    Each file is sent with the headers that the site's ``_headers`` gives for all files.
    """
    file = folder / "_headers"
    rules = file.read_text("utf-8") if file.is_file() else ""

    class Handler(SimpleHTTPRequestHandler):
        # One connection for a page and all its files.
        protocol_version = "HTTP/1.1"

        def end_headers(self) -> None:
            for name, value in re.findall("^  (.*?): (.*)$", rules, re.MULTILINE):
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = partial(Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
