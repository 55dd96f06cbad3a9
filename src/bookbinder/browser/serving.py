"""Serve a built site on this machine, with its headers, as a static host does."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(SimpleHTTPRequestHandler):
    # One connection for a page and all its files.
    protocol_version = "HTTP/1.1"
    wanted: tuple[str, ...] = ()

    def end_headers(self) -> None:
        """Send the site's headers with each file."""
        for line in self.wanted:
            name, _, value = line.partition(": ")
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Generator[str]:
    """Serve a folder to this machine only; yield its address, with a slash.

    Each file is sent with the headers that the site's ``_headers`` gives for all files.
    """
    file = folder / "_headers"
    rules = file.read_text("utf-8").splitlines() if file.is_file() else []
    wanted = tuple(line.strip() for line in rules if line.startswith("  "))
    kind = type("_SiteHandler", (_Handler,), {"wanted": wanted})
    handler = partial(kind, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
