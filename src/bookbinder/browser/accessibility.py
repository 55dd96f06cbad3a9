"""Have axe look for what keeps some readers out of a page."""

from functools import cache
from pathlib import Path
from typing import Literal

from bookbinder.browser.browsing import DESKTOP, PHONE, Window

__all__ = ["barriers"]

_AXE = Path("node_modules", "axe-core", "axe.min.js")
_ROOT = Path(__file__).resolve().parents[3]

# Most elements of a page are strokes of a formula or a picture, which stand behind one
# name for whoever listens, and words of code in colors that others have already: axe
# would look at each for seconds and find nothing.
_THIN = """(frame) => {
  // Out of sight: without them, or what is in them, the theme fails, and follows the
  // system no more.
  for (const part of frame ? [] : document.querySelectorAll(".md-sidebar")) {
    part.style.display = "none";
  }
  const [first, ...formulas] = document.querySelectorAll(".katex");
  for (const part of first?.children ?? []) part.textContent = part.textContent;
  for (const formula of formulas) formula.textContent = formula.textContent;
  for (const part of document.querySelectorAll("svg[role=img] > *")) {
    if (!["title", "desc"].includes(part.tagName)) part.remove();
  }
  const seen = new Set();
  for (const word of document.querySelectorAll("pre code span")) {
    const look = `${word.closest(".highlight")?.className} ${word.className}`;
    if (seen.has(look)) word.replaceWith(...word.childNodes);
    else seen.add(look);
  }
}"""

# Most of axe's time goes into colors, text by text; nearly all look like another.
_ASK = """async (rules) => {
  book.markAlike();
  axe.configure({ rules: [
    { id: "color-contrast", selector: ":not([data-alike])" },
    { id: "target-size", enabled: true },  // Axe asks for it only when told to.
  ] });
  const { violations } = await axe.run(document, {
    resultTypes: ["violations"],
    preload: false,
    ...(rules && { runOnly: { type: "rule", values: rules } }),
  });
  return violations.map(({ id, help, nodes }) => ({ id, help, html: nodes[0].html }));
}"""

# What is seen of an article, and what axe says of looks alone: of the rest it would say
# the same of the same elements, in whatever colors and width.
_SEEN = """() => [...document.querySelectorAll("article *")]
  .map((element) => Number(element.checkVisibility({ visibilityProperty: true })))
  .join("")"""
_OF_LOOKS = (
    "color-contrast",
    "link-in-text-block",
    "scrollable-region-focusable",
    "target-size",
)

# Every page is seen at both widths and in both palettes, first as it was left by
# page_problems.
_View = tuple[int, Literal["light", "dark"]]
_VIEWS: tuple[_View, ...] = ((PHONE, "dark"), (DESKTOP, "light"))
_MORE_VIEWS: tuple[_View, ...] = ((DESKTOP, "dark"), (PHONE, "light"))


def barriers(window: Window, *, frame: bool = False) -> list[str]:
    """Give what axe finds on the page that is open, of any impact.

    The page is not what it was afterwards: what is there many times over is taken out.

    Args:
        window: Where the page is open.
        frame: Whether to look, in each width and palette, at what is around the article
            too, which is the same on all pages of a site.
    """
    page = window.page
    page.evaluate(_source())
    page.evaluate(_THIN, frame)
    found: list[str] = []
    asked: set[str] = set()
    for width, palette in _VIEWS + (_MORE_VIEWS if frame else ()):
        window.resize(width)
        page.emulate_media(color_scheme=palette)
        page.evaluate("book.settled()")
        if page.evaluate("book.palette()") != palette:
            found.append(f"{palette}, at {width} px: the page is not {palette}")
        seen: str = page.evaluate(_SEEN)
        rules = [*_OF_LOOKS] if seen in asked and not frame else None
        asked.add(seen)
        violations: list[dict[str, str]] = page.evaluate(_ASK, rules)
        for each in violations:
            what = f"{each['id']}, {each['help']}: {each['html'][:120]}"
            found.append(f"{palette}, at {width} px: {what}")
    return found


@cache
def _source() -> str:
    return (_ROOT / _AXE).read_text("utf-8")
