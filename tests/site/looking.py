"""Measure what stands on a page that is open."""

import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page

# How high it is, and how high it would be if no room were kept for it.
_HEIGHTS = """(element) => {
  const height = () => element.getBoundingClientRect().height;
  const found = [height(), element.scrollWidth - element.clientWidth];
  element.style.minHeight = 0;
  found.push(height());
  element.style.minHeight = "";
  return found;
}"""
_LEFT_ALONE = """(part) => {
  const named = ({ id }) => Object.assign(document.createElement("i"), { id });
  const ids = (element) =>
    [element, ...element.querySelectorAll("*")].filter(({ id }) => id);
  for (let within = part; within !== document.body; within = within.parentElement) {
    for (const other of [...within.parentElement.children]) {
      if (other !== within && !other.matches("link"))
        other.replaceWith(...ids(other).map(named));
    }
  }
}"""
# Red, green, blue and opacity of each cell of each canvas.
_PIXELS = """(element) => [...element.querySelectorAll("canvas")].map((canvas) =>
  [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data])"""


def assert_room(element: Locator) -> float:
    """Check that what is inside has room, and not much more; return the height."""
    height, hidden, needed = element.evaluate(_HEIGHTS)
    assert hidden == 0
    assert needed <= height < needed + 50, f"{needed} px needed"
    return height


def assert_accessible(page: Page, name: str, *rules: str) -> None:
    """Check that Axe finds nothing wrong with a live part, by all or by few rules.

    Of the page around it, which would take it longest, only the ids are left.
    """
    part = f'[data-live="{name}"]'
    page.locator(part).evaluate(_LEFT_ALONE)
    options = {"runOnly": [*rules]} if rules else None
    axe = Axe().run(page, part, options).response
    assert [violation["id"] for violation in axe["violations"]] == []


def pixels(element: Locator) -> torch.Tensor:
    """Return the colors of the canvases in an element: (canvas, pixel, 4)."""
    return torch.tensor(element.evaluate(_PIXELS)).unflatten(1, (-1, 4))
