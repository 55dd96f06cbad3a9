"""``python -m bookbinder.drawing``: draw new diagrams of the pages.

Drawings that no page uses any more are deleted.
"""

import base64
import re
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Browser, Error as PlaywrightError

from bookbinder.browser import NoChromiumError, chromium
from bookbinder.drawing.diagrams import (
    DRAWING_SCRIPT,
    DRAWINGS,
    ROOT,
    diagram_problem,
    drawing,
)
from bookbinder.drawing.svg import PALETTE
from bookbinder.page import load_page
from bookbinder.writing import write_whole

Draw = Callable[[str], str]


class DrawingError(ValueError):
    """A diagram that cannot be drawn; the message is the reason."""


def drawing_by(browser: Browser) -> Draw:
    """Return a function that draws a diagram in a browser, as SVG."""
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_content(f'<style>{_measuring_font()}</style><div id="host"></div>')
    page.add_script_tag(path=ROOT / "node_modules/mermaid/dist/mermaid.min.js")
    page.add_script_tag(path=DRAWING_SCRIPT)

    def draw(source: str) -> str:
        if problem := diagram_problem(source):
            raise DrawingError(problem)
        try:
            svg = page.evaluate("both => drawDiagram(...both)", [source, PALETTE])
        except PlaywrightError as error:
            text = error.message.split("\n    at ")[0]
            text = re.sub(r"^.*?evaluate: (?:Error: )?", "", text)
            raise DrawingError(" ".join(text.split())) from None
        return f"{svg}\n"

    return draw


def _measuring_font() -> str:
    """Return the font for measuring labels, the same on every machine.

    DejaVu Sans, which comes with matplotlib, is wider than the fonts of the pages, so a
    label that fits in it fits in those.
    """
    folder = files("matplotlib") / "mpl-data" / "fonts" / "ttf"
    rules: list[str] = []
    for name, weight in (("DejaVuSans.ttf", 400), ("DejaVuSans-Bold.ttf", 700)):
        data = base64.b64encode((folder / name).read_bytes()).decode()
        rules.append(
            f"@font-face{{font-family:book-measure;font-weight:{weight};"
            f"src:url(data:font/ttf;base64,{data})}}"
        )
    return "".join(rules)


def new_and_old() -> tuple[dict[Path, tuple[str, str]], list[Path]]:
    """Return the missing drawings, with places and sources, and the unused ones.

    The pages are those of the book in the current folder.
    """
    expected = {
        drawing(fence.text): (f"{file.as_posix()}:{fence.line}", fence.text)
        for file in sorted(Path("docs").rglob("*.md"))
        for fence in load_page(file, Path()).fences
        if fence.info == "mermaid"
    }
    there = {*DRAWINGS.glob("*.svg")}
    new = {file: expected[file] for file in expected if file not in there}
    return new, sorted(there - expected.keys())


def main() -> int:
    """Run the command; the exit status is 1 if a diagram could not be drawn."""
    new, old = new_and_old()
    failed = False
    if new:
        with chromium() as browser:
            draw = drawing_by(browser)
            for file, (place, source) in new.items():
                try:
                    write_whole(file, draw(source))
                    print(f"{place}: drawn as {file}")
                except DrawingError as error:
                    print(f"{place}: diagram {error}")
                    failed = True
    for file in old:
        file.unlink()
        print(f"deleted {file}: no page has it")
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoChromiumError as error:
        sys.exit(f"{error}; or leave it to the pull request's check")
