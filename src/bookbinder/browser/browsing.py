"""Open a page of the finished site as a reader does, and say what is wrong with it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

CHECKS = Path(__file__).with_suffix(".js")

PHONE, DESKTOP = 360, 1280

_TOGGLE = "form[data-md-component=palette] label:not([hidden])"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the pages are asked, not the log."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone; give its address, with a slash."""
    handler = partial(_QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def page_problems(browser: Browser, url: str) -> list[str]:
    """Open a page on a desktop and on a phone, in both palettes."""
    context = browser.new_context(
        viewport={"width": DESKTOP, "height": 900}, reduced_motion="reduce"
    )
    try:
        page = context.new_page()
        problems = _listen(page, urlsplit(url).netloc)
        page.goto(url, wait_until="load")
        page.add_script_tag(path=CHECKS)
        problems += page.evaluate("book.everything()")
        problems += _width_problems(page)
        problems += _palette_problems(page)
        return problems
    finally:
        context.close()


def _listen(page: Page, host: str) -> list[str]:
    """Note what the page complains of, and what it asks for and does not get."""
    problems: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"console {message.type}: {message.text}")

    def on_request(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != host:
            problems.append(f"a request to another host: {request.url}")

    def on_failure(request: Request) -> None:
        problems.append(f"a request failed: {request.url}")

    def on_response(response: Response) -> None:
        if response.status >= 400:
            problems.append(f"status {response.status}: {response.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("request", on_request)
    page.on("requestfailed", on_failure)
    page.on("response", on_response)
    return problems


def _width_problems(page: Page) -> list[str]:
    problems: list[str] = []
    for width in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        found: list[str] = page.evaluate("book.width()")
        problems += [f"at {width} px {problem}" for problem in found]
    return problems


def _palette_problems(page: Page) -> list[str]:
    """Look at the palette that is shown, then press the page's own button to others."""
    if not page.locator(_TOGGLE).count():
        return ["there is no button for the palette"]
    problems: list[str] = []
    seen: set[str] = set()
    for press in range(4):
        if press:
            page.locator(_TOGGLE).click()
        colors = page.evaluate("book.colors()")
        if colors["palette"] not in seen:
            seen.add(colors["palette"])
            problems += [
                f"{colors['palette']}: {found}" for found in colors["contrasts"]
            ]
        if len(seen) == 2:
            return problems
    return [*problems, "the button for the palette does not make light and dark"]
