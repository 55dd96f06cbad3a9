"""Write what the copy buttons of listings hand out: a file for each section listed.

The files lie under ``listings/`` in the built site, and each listing of its pages says
where its own is, in ``data-copy``. The button asks for it when it is pressed: no page
weighs more for what nobody copies.
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bookbinder.copying.source import Library
from bookbinder.copying.standalone import standalone
from bookbinder.listings import Section, find_section
from bookbinder.page import Page, load_page

__all__ = ["FOLDER", "MarkupError", "file_of", "write_standalone_files"]

FOLDER = "listings"

_BLOCK = re.compile(r'(<div class="language-py highlight")([^>]*>.*?</pre>)', re.DOTALL)
_CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)


class MarkupError(ValueError):
    """A built page that does not show the listings of its source."""


def write_standalone_files(site: Path, root: Path) -> None:
    """Write a file for each listing of the book, and name it where it is shown.

    Args:
        site: The built site.
        root: The folder of the repository.

    Raises:
        StandaloneError: If a listing cannot be taken out of the library.
        MarkupError: If a page does not show its listings, in their order.
    """
    library = Library(root / "src")
    files: dict[Path, str] = {}
    for source in sorted((root / "docs").rglob("*.md")):
        page = load_page(source, root)
        sections = list(_sections(page, root))
        if not sections:
            continue
        folder = _address(page)
        for name, section in sections:
            if site / name not in files:
                files[site / name] = standalone(section, library)
        built = site / folder / "index.html"
        up = "../" * len(folder.parts)
        shown = [(f"{up}{name}", section) for name, section in sections]
        files[built] = _marked(built.read_text("utf-8"), shown, page.path)
    # Only now, so that an error leaves the site as it was.
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def file_of(path: str, name: str) -> str:
    """Give where in the site a section's file is, from the site's root.

    Args:
        path: The source file, from the root of the repository.
        name: The section.
    """
    module = PurePosixPath(path).relative_to("src")
    return str(FOLDER / module.with_stem(f"{module.stem}-{name}"))


def _sections(page: Page, root: Path) -> Iterator[tuple[str, Section]]:
    for listing in page.listings:
        if listing.language == "py":
            name = file_of(listing.path, listing.section)
            yield name, find_section(root, listing.path, listing.section)


def _address(page: Page) -> PurePosixPath:
    """Give the folder of a page in the site: that of its name, or of its folder."""
    name = PurePosixPath(page.path).relative_to("docs").with_suffix("")
    return name.parent if name.name == "index" else name


def _marked(text: str, listings: list[tuple[str, Section]], path: str) -> str:
    """Write each listing's address into its block, if it shows that listing."""
    waiting = iter(listings)

    def mark(block: re.Match[str]) -> str:
        address, section = next(waiting, ("nothing more", None))
        code = _CODE.search(block[2])
        shown = html.unescape(re.sub(r"<[^>]*>", "", code[1])) if code else ""
        if section is None or shown.strip("\n") != section.text.strip("\n"):
            raise MarkupError(f"{path}: wanted {address}, and it shows {shown[:60]!r}")
        return f'{block[1]} data-copy="{address}"{block[2]}'

    marked = _BLOCK.sub(mark, text)
    for address, _ in waiting:
        raise MarkupError(f"{path}: wanted {address}, and it shows nothing more")
    return marked
