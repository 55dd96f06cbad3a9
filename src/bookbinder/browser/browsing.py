"""Open a page of the finished site as a reader does, and say what is wrong with it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    CDPSession,
    ConsoleMessage,
    Page,
    Request,
    Response,
)

__all__ = [
    "DESKTOP",
    "NOTING",
    "PALETTES",
    "PHONE",
    "Window",
    "page_problems",
    "window",
]

CHECKS = Path(__file__).with_suffix(".js")

PHONE, DESKTOP = 360, 1440
PALETTES = ("light", "dark")

_HEIGHT = 900

# Notes, from the first moment of a page, what cannot be asked for later.
NOTING = """
window.noted = { violations: [], shift: 0, moved: [] };
addEventListener("securitypolicyviolation", (event) =>
  noted.violations.push(
    `${event.effectiveDirective} forbids ${event.blockedURI}: ${event.sample}`));
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    noted.shift += entry.value;
    noted.moved.push(...entry.sources.map(({ node }) =>
      (node?.parentElement ?? node)?.outerHTML?.slice(0, 80) ?? "what is gone"));
  }
}).observe({ type: "layout-shift", buffered: true });
"""


@dataclass
class Window:
    """A window that stays open, in which pages are opened one after another.

    ``complaints`` and ``asked`` are those of the page that is open: what it complained
    of, and the paths on its host that it asked for.
    """

    page: Page
    devtools: CDPSession
    complaints: list[str] = field(default_factory=list[str])
    asked: set[str] = field(default_factory=set[str])
    host: str = ""

    def open(self, url: str) -> None:
        """Open a page, on a desktop, in the light palette."""
        # What the page before it still waits for would be told of this one.
        self.page.goto("about:blank")
        self.resize(DESKTOP)
        self.page.emulate_media(color_scheme="light")
        self.complaints.clear()
        self.asked.clear()
        self.host = urlsplit(url).netloc
        self.page.goto(url, wait_until="load")
        self.page.evaluate(CHECKS.read_text("utf-8"))
        self.page.evaluate("book.settled()")

    def resize(self, width: int) -> None:
        """Make it a phone's, whose scroll bars take no place, or a desktop's."""
        hidden = {"hidden": width == PHONE}
        self.devtools.send("Emulation.setScrollbarsHidden", hidden)
        self.page.set_viewport_size({"width": width, "height": _HEIGHT})

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("http", "https", "ws", "wss"):
            return
        if parts.netloc == self.host:
            self.asked.add(parts.path)
        else:
            self.complaints.append(f"a request to another host: {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"status {response.status}: {response.url}")

    def listen(self) -> None:
        """Note from now on what pages complain of and ask for."""
        self.page.on("console", self._on_console)
        self.page.on(
            "pageerror", lambda error: self.complaints.append(f"script error: {error}")
        )
        self.page.on("request", self._on_request)
        self.page.on(
            "requestfailed",
            lambda request: self.complaints.append(f"a request failed: {request.url}"),
        )
        self.page.on("response", self._on_response)


@contextmanager
def window(browser: Browser) -> Generator[Window]:
    """Open a window for somebody who wants nothing to move, and who may copy."""
    context = browser.new_context(
        reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"]
    )
    try:
        # A machine may be busy; a page that does not come at all fails all the same.
        context.set_default_navigation_timeout(120_000)
        context.add_init_script(NOTING)
        page = context.new_page()
        opened = Window(page, context.new_cdp_session(page))
        opened.listen()
        yield opened
    finally:
        context.close()


def page_problems(window: Window) -> list[str]:
    """Ask what is wrong with the page that was just opened.

    It is a phone's, dark, and with all its folds open then.
    """
    page = window.page
    problems: list[str] = page.evaluate("book.shifts()")
    problems += page.evaluate("book.everything()")
    problems += _width(window, DESKTOP)
    for palette in PALETTES:
        if palette != PALETTES[0]:  # in which it was opened
            page.emulate_media(color_scheme=palette)
        colors = page.evaluate("book.colors()")
        if colors["palette"] != palette:
            problems.append(f"where the system is {palette}, the page is not")
        problems += [f"{palette}: {found}" for found in colors["contrasts"]]
    # To be laid out anew costs a page of formulas most: it is narrowed last, and once.
    window.resize(PHONE)
    problems += _width(window, PHONE)
    problems += page.evaluate("noted.violations")
    return window.complaints + problems


def _width(window: Window, width: int) -> list[str]:
    found: list[str] = window.page.evaluate("book.width()")
    return [f"at {width} px {problem}" for problem in found]
