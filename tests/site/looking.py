"""Measure what stands on a page that is open."""

from playwright.sync_api import Locator

# How high it is, and how high it would be if no room were kept for it.
_HEIGHTS = """(element) => {
  const height = () => element.getBoundingClientRect().height;
  const found = [height(), element.scrollWidth - element.clientWidth];
  element.style.minHeight = 0;
  found.push(height());
  element.style.minHeight = "";
  return found;
}"""


def assert_room(element: Locator) -> float:
    """Check that what is inside has room, and not much more; return the height."""
    height, hidden, needed = element.evaluate(_HEIGHTS)
    assert hidden == 0
    assert needed <= height < needed + 50, f"{needed} px needed"
    return height
