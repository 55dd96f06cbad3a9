"""Compare pictures by what they draw: texts and shapes exactly, numbers roughly.

A picture on a page is written by a block of that page. The committed picture must show
the same data, but may differ by a pixel, as pictures of two machines do.
"""

import os
import re
from pathlib import Path, PurePosixPath

from bookbinder.page import Page, Problem

_NUMBER = re.compile(r"(?<![\w#.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")
_TEXT = re.compile(r"(?<=>)[^<>]*[^<>\s][^<>]*(?=<)")
# A label is placed where there is most room, so a tiny change can move it far.
_LABEL = re.compile(r'<g id="label-[^"]*">.*?</g>', re.DOTALL)
_FILL = re.compile(r"fill: #[0-9a-f]{6}")
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r'(?<=id=")[^"]+(?=")')
_MENTION = re.compile(r'(?<=["#])[^"#()\s<>]+(?=[")])')


def draw_as_the_book() -> None:
    """Make matplotlib draw text as text, and the same picture each time."""
    os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("book.matplotlibrc"))
    os.environ["SOURCE_DATE_EPOCH"] = "0"


def compare_figures(page: Page, drawn: dict[str, str], root: Path) -> list[Problem]:
    """Compare the pictures that a page shows with those that its blocks drew."""
    problems: list[Problem] = []
    folder = root / page.figures
    shown = {PurePosixPath(image.target).name: image.line for image in page.images}
    for name, line in shown.items():
        file = folder / name
        if name not in drawn:
            reason = f"no block of this page draws {name}"
        elif not file.is_file():
            reason = f"{name} is drawn but not kept: make outputs"
        elif not same_drawing(file.read_text(encoding="utf-8"), drawn[name]):
            reason = f"{name} is not what the page draws: make outputs"
        else:
            continue
        problems.append(Problem(page.path, line, reason))
    for name in drawn.keys() - shown.keys():
        line = next((b.line for b in page.blocks if name in b.code), 1)
        reason = f"a block draws {name}, but the page does not show it"
        problems.append(Problem(page.path, line, reason))
    for name in {file.name for file in folder.glob("*")} - shown.keys():
        reason = f"{name} is kept, but the page does not show it: delete it"
        problems.append(Problem(page.path, 1, reason))
    return problems


def same_drawing(one: str, other: str) -> bool:
    """Return whether two SVG files draw the same thing.

    Texts must be equal. Opacities, which stand for weights, may differ by 0.02; lengths
    by 1, in a picture hundreds wide. The places and line breaks of labels may differ.
    """
    one, other = _renamed(one), _renamed(other)
    if _TEXT.findall(one) != _TEXT.findall(other):
        return False
    one, other = _TEXT.sub("", one), _TEXT.sub("", other)
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return False
    numbers = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(_near(float(a), float(b)) for a, b in numbers)


def _words(label: str) -> str:
    """Return the parts of a label that are compared: its color and its words."""
    words = " ".join(_TEXT.findall(label)).split()
    return " ".join((*_FILL.findall(label)[:1], *words))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= (0.02 if max(abs(a), abs(b)) <= 1.0 else 1.0)


def _renamed(svg: str) -> str:
    """Rename ids by their order, because matplotlib hashes the drawing for them."""
    svg = _METADATA.sub("", svg)
    svg = _LABEL.sub(lambda label: f"<g>{_words(label[0])}</g>", svg)
    ids = {name: f"id_{n}" for n, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    return _MENTION.sub(lambda mention: ids.get(mention[0], mention[0]), svg)
