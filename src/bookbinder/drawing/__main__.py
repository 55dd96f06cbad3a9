"""``python -m bookbinder.drawing``: draw the diagrams of the pages.

Draws those that are not drawn yet, deletes those that no page has any more, and says
what it did; ``--check`` only says what it would do, with exit status 1.
"""

import argparse
import base64
import difflib
import html
import re
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Browser
from playwright.sync_api import Error as PlaywrightError

from bookbinder.browser.chromium import NoChromiumError, chromium
from bookbinder.drawing.diagrams import (
    DRAWING_SCRIPT,
    ROOT,
    diagram_name,
    diagram_problem,
    drawings_folder,
)
from bookbinder.drawing.palette import PALETTE
from bookbinder.drawing.undrawn import places

Draw = Callable[[str], str]

_FENCE = re.compile(r"^```mermaid[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<>]*[^<>\s][^<>]*(?=<)")
_COLOR = re.compile(r"(?<!url\()#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\(")


class DrawingError(ValueError):
    """A diagram that cannot be drawn; the message is the reason."""


def diagrams_of(docs: Path) -> dict[str, str]:
    """Find every diagram of the pages: its source, by the name of its drawing."""
    sources = [
        match[1].strip()
        for page in sorted(docs.rglob("*.md"))
        for match in _FENCE.finditer(page.read_text(encoding="utf-8"))
    ]
    return {diagram_name(source): source for source in sources}


def drawing_by(browser: Browser) -> Draw:
    """Make a browser ready to draw.

    Raises:
        FileNotFoundError: If there is no mermaid.
    """
    mermaid = ROOT / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
    if not mermaid.is_file():
        raise FileNotFoundError("node_modules holds no mermaid: run make setup")
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.set_content(f'<style>{_measuring_font()}</style><div id="host"></div>')
    page.add_script_tag(path=mermaid)
    page.add_script_tag(path=DRAWING_SCRIPT)

    def draw(source: str) -> str:
        """Draw one diagram, twice: what is kept must not be a matter of luck."""
        problem = diagram_problem(source)
        if problem:
            raise DrawingError(problem)
        try:
            one, other = (
                str(page.evaluate("both => drawDiagram(...both)", [source, PALETTE]))
                for _ in range(2)
            )
        except PlaywrightError as error:
            raise DrawingError(_reason(error)) from None
        if one != other:
            raise DrawingError("comes out differently each time")
        return _checked(one)

    return draw


def _measuring_font() -> str:
    """Give the font that labels are measured in, the same on every machine.

    DejaVu Sans, which comes with matplotlib, is wider than the fonts that pages are
    shown in, so a label that fits in it fits in them.
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


def _reason(error: PlaywrightError) -> str:
    text = error.message.split("\n    at ")[0]
    text = re.sub(r"^.*?evaluate: (?:Error: )?", "", text)
    return " ".join(text.split())


def _checked(svg: str) -> str:
    """Hold a drawing to what a page can bear."""
    literal = _COLOR.search(svg)
    if literal:
        raise DrawingError(f"has a color that is not the book's: {literal[0]}")
    for word in ("<style", "<script", "foreignObject", "mermaid"):
        # The last would have mkdocs-mermaid2-plugin parse the page again.
        if word in svg:
            raise DrawingError(f"drawn with {word!r} in it, which a page cannot bear")
    return svg + "\n"


def renew(docs: Path, folder: Path, *, check: bool) -> bool:
    """Draw what is missing and delete what is left over; tell whether all is well.

    Args:
        docs: Where the pages are.
        folder: Where the drawings are kept.
        check: Only say what is missing or left over.
    """
    wanted = diagrams_of(docs)
    kept = {file.stem: file for file in folder.glob("*.svg")}
    missing = {name: wanted[name] for name in wanted if name not in kept}
    orphans = [file for name, file in kept.items() if name not in wanted]
    if check:
        for source in missing.values():
            _report(source, "diagram not drawn: run make diagrams")
        for file in orphans:
            print(f"{file}: no page has this diagram: run make diagrams")
        return not missing and not orphans
    before = {file: file.read_text("utf-8") for file in orphans}
    well = _draw_all(missing, folder) if missing else True
    for file in orphans:
        file.unlink()
        print(f"deleted {file}: no page has it")
    drawn = [folder / f"{name}.svg" for name in missing]
    for line in changed_words(
        [*before.values()], [f.read_text("utf-8") for f in drawn if f.is_file()]
    ):
        print(line)
    if well:
        print(f"{len(wanted)} diagrams: {len(missing)} drawn, {len(orphans)} deleted")
    return well


def changed_words(before: list[str], after: list[str]) -> list[str]:
    """Give what the drawings that are new say otherwise than those that are gone.

    A drawing that is only changed has the title that it had; its words are compared.

    Args:
        before: The drawings that are gone.
        after: Those that are new.
    """
    gone = {words[0]: words for words in map(_words, before) if words}
    lines: list[str] = []
    for words in map(_words, after):
        old = gone.get(words[0], []) if words else []
        if old:
            lines += difflib.unified_diff(old, words, "before", "after", "", "", 0, "")
    return lines


def _words(svg: str) -> list[str]:
    """Give the texts of a drawing, its title first."""
    return [html.unescape(text) for text in _TEXT.findall(svg)]


def _draw_all(missing: dict[str, str], folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    well = True
    with chromium() as browser:
        draw = drawing_by(browser)
        for name, source in missing.items():
            try:
                svg = draw(source)
            except DrawingError as error:
                _report(source, f"diagram {error}")
                well = False
            else:
                (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
                _report(source, f"drawn as {folder / name}.svg")
    return well


def _report(source: str, message: str) -> None:
    for place in places(source):
        print(f"{place}: {message}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bookbinder.drawing",
        description="Draw the diagrams of the book.",
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check: bool = parser.parse_args(arguments).check
    try:
        well = renew(Path("docs"), drawings_folder(), check=check)
    except NoChromiumError as error:
        print(f"{error}; or leave it to the pull request's check", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
