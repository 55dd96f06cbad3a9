"""Whoever comes with a keyboard, without scripts or on a slow line finds all of it."""

import time
from http.server import SimpleHTTPRequestHandler
from typing import BinaryIO

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

CHAPTER = "which-attention/"
CLIPBOARD = "navigator.clipboard.readText()"
A_WHILE = 5000  # milliseconds until a button says again what it offers

# Presses of the tabulator lead past all of these, each once. That back to the top is
# there while one scrolls up, and no longer.
STOPS = """[...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((e) => e.tabIndex >= 0 && !e.disabled && !e.matches(".md-top")
    && e.checkVisibility({ visibilityProperty: true })
    && (e.type !== "radio" || e.checked))
  .map((e) => (e.dataset.stop = e.tagName + " " + (e.getAttribute("href") ?? e.id)
    + " " + e.textContent.trim().slice(0, 20)))"""

# Notes where the focus is, and where nobody sees it: there is no outline, neither its
# own nor its label's.
NOTE = """() => {
  window.reached = [];
  window.unseen = [];
  addEventListener("focusin", ({ target }) => {
    reached.push(target.dataset.stop);
    const near = [...(target.labels ?? []), target.closest("form, nav")];
    const seen = [target, ...near].some((e) => {
      const { outlineStyle, boxShadow } = e ? getComputedStyle(e) : {};
      return e && (outlineStyle !== "none" || boxShadow !== "none");
    });
    if (!seen && !target.matches(".md-search__input")) unseen.push(target.outerHTML);
  });
}"""


def narrow(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 900})


@pytest.mark.nightly
def test_the_tabulator_reaches_all_and_shows_where(page: Page, address: str) -> None:
    for width in (1440, 360):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(address + CHAPTER)
        page.wait_for_function("() => window.component$")
        stops: list[str] = page.evaluate(STOPS)
        assert len(stops) > 40
        page.evaluate(NOTE)
        for _ in range(len(stops) + 5):
            page.keyboard.press("Tab")
        assert {*stops} - {*page.evaluate("reached")} == set()
        assert page.evaluate("unseen") == []


def test_the_menu_of_a_phone_opens_and_leads_on_by_keys(
    page: Page, address: str
) -> None:
    narrow(page)
    page.goto(address)
    sidebar = page.locator(".md-sidebar--primary")
    inside = sidebar.get_by_role("link", name="No peeking")
    menu = page.get_by_role("button", name="Menu")
    expect(menu).to_have_attribute("aria-expanded", "false")
    menu.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    expect(inside).to_be_hidden()
    for part in ("Book", "II. Masks"):
        page.get_by_role("checkbox", name=part, exact=True).focus()
        page.keyboard.press("Space")
    expect(inside).to_be_visible()
    inside.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/no-peeking/")


def test_a_button_is_pressed_by_keys_and_says_what_it_did(
    page: Page, address: str
) -> None:
    page.clock.install()
    page.goto(f"{address}recipes/")
    # A page that has passed in an earlier run says what it ran with, as below.
    page.locator("[data-torch]").evaluate_all(
        "blocks => blocks.forEach(block => delete block.dataset.torch)"
    )
    buttons = page.locator("button.copy")
    # A copy says whether it needs more than PyTorch.
    expect(buttons.nth(0)).to_have_text("Copy, PyTorch alone")
    expect(buttons.nth(1)).to_have_text("Copy with the block before")
    first, button = buttons.nth(0), buttons.nth(1)
    first.click()
    expect(first).to_have_text("Copied")
    assert page.evaluate(CLIPBOARD).startswith("import torch")
    button.press("Enter")
    expect(button).to_have_text("Copied with the block before")
    assert page.evaluate(CLIPBOARD).startswith("# in a clone: pip install .")
    expect(page.get_by_role("status").filter(has_text="Copied")).not_to_have_count(0)
    expect(button).to_be_focused()
    page.clock.fast_forward(A_WHILE)
    expect(first).to_have_text("Copy, PyTorch alone")
    code = page.locator("pre > code").first.inner_text().strip()
    page.evaluate("() => { navigator.clipboard.write = () => Promise.reject() }")
    first.click()
    expect(first).to_have_text("Not copied: press Ctrl+C")
    assert page.evaluate("getSelection().toString()").strip() == code
    # Where the page did not come by https there is no such class.
    page.evaluate("() => { delete window.ClipboardItem }")
    block = page.locator(".language-python.highlight").first
    block.evaluate("block => { block.id = 'block-1'; block.dataset.torch = '2.13.0' }")
    first.click()
    expect(first).to_have_text("Copied")
    source, _, copied = page.evaluate(CLIPBOARD).partition("\n")
    assert copied.strip() == code
    where = f"{address}recipes/#block-1"
    assert source == f"# {where} (ran with PyTorch 2.13.0; MIT License)"


def test_what_a_copy_needs_comes_with_it_or_it_is_copied_as_shown(
    page: Page, address: str
) -> None:
    page.clock.install()
    page.goto(address + "chapters/no-peeking/")
    block = page.locator("#block-2")
    code = block.locator("pre > code").text_content() or ""
    button = block.locator("button.copy").nth(1)
    expect(button).to_have_text("PyTorch alone")
    button.click()
    expect(button).to_have_text("Copied with all it needs")
    copied = page.evaluate(CLIPBOARD)
    assert "def causal_mask(" in copied
    assert copied.endswith(code.rpartition("import causal_mask")[2].strip("\n") + "\n")
    page.clock.fast_forward(A_WHILE)
    expect(button).to_have_text("PyTorch alone")
    # Where the files do not come.
    for folder in ("runs", "listings"):
        page.route(f"**/{folder}/**", lambda route: route.fulfill(status=404))
    listing = page.locator(".language-py.highlight").first
    shown = listing.locator("pre > code").text_content()
    for offer, text in ((button, code), (listing.locator("button.copy"), shown)):
        offer.evaluate("button => button.click()")
        expect(offer).to_have_text("Copied as shown")
        assert page.evaluate(CLIPBOARD).endswith(text)


@pytest.mark.usefixtures("complaints")  # which note what moves
def test_the_home_page_knows_what_was_read_and_where_reading_stopped(
    page: Page, address: str
) -> None:
    page.goto(address)
    expect(page.locator("td.read, .continue")).to_have_count(0)
    page.goto(f"{address}{CHAPTERS[0]}#exercises")
    page.wait_for_function(PASSED, arg="exercises")
    page.goto(address)
    back = page.get_by_role("link", name="Continue: 17. Fewer keys")
    back.click()
    page.wait_for_url(f"**/{CHAPTERS[0]}#exercises")
    page.locator(".md-footer").scroll_into_view_if_needed()
    page.wait_for_function("() => __md_get('reading').read.length")
    page.goto(address)
    expect(page.locator("td.read")).to_have_text(["17. Fewer keys"])
    expect(page.locator(".continue > a")).to_have_attribute("href", CHAPTERS[1])
    assert page.evaluate("looking.settled()") == []
    page.get_by_role("button", name="Forget").click()
    expect(page.locator("td.read, .continue")).to_have_count(0)


CHAPTERS = ("chapters/fewer-keys/", "chapters/fast-paths/")
# Whether a heading stands in the upper half, where a reader has reached it.
PASSED = (
    "id => document.getElementById(id).getBoundingClientRect().top < innerHeight / 2"
)


@pytest.mark.usefixtures("complaints")  # which note what moves
def test_nothing_moves_while_a_page_comes_and_when_the_theme_wakes(
    page: Page, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is slow, as whoever holds a table in two and the scripts back."""

    def in_pieces(self: object, source: BinaryIO, outputfile: BinaryIO) -> None:
        content = source.read()
        cut = content.find(b"</tr>")
        slow = cut > 0 or b"component$" in content
        outputfile.write(content[: max(cut, 0)])
        time.sleep(0.4 if slow else 0)
        outputfile.write(content[max(cut, 0) :])

    monkeypatch.setattr(SimpleHTTPRequestHandler, "copyfile", in_pieces)
    for path, width in (("reference/data/", 360), ("reference/cli/", 1440)):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(address + path)
        page.wait_for_function("() => window.component$")
        page.wait_for_timeout(200)
        assert page.evaluate("looking.settled()") == []


# How high code is that is not in sight, and how far its frame scrolls; and when it is.
ROOM = """() => {
  const codes = [...document.querySelectorAll("pre > code")].filter((code) =>
    code.checkVisibility());
  const size = (code) =>
    [code.firstChild.getBoundingClientRect().height, code.scrollWidth];
  const before = codes.map(size);
  for (const code of codes) code.firstChild.style.contentVisibility = "visible";
  const off = codes.map((code, index) => size(code).map((is, axis) =>
    Math.abs(is - before[index][axis])));
  return [codes.length, Math.max(...off.flat())];
}"""


def test_code_out_of_sight_has_the_room_that_it_takes(page: Page, address: str) -> None:
    page.goto(address + "reference/data/")
    blocks, furthest = page.evaluate(ROOM)
    assert blocks > 3
    assert furthest <= 2


@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_scripts_a_page_is_read_from_end_to_end(
    page: Page, address: str
) -> None:
    page.goto(address + "chapters/fewer-keys/")
    drawn = (
        ".katex-html",
        "figure.diagram svg",
        "figure.figure svg",
        "> .highlight pre",
    )
    for kind in (*drawn, "> p", "> h2"):
        parts = page.locator(f"article {kind}")
        expect(parts).not_to_have_count(0)
        for part in parts.all()[:5]:
            expect(part).to_be_visible()
    assert page.locator("button.copy").count() == 0
    fold = page.locator("details:not(.drawing):has(> p)").first
    expect(fold.locator("p").first).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("p").first).to_be_visible()
    page.locator(".md-footer__link--next").click()
    page.wait_for_url("**/fast-paths/")


# The first ways in of the home page.
DOORS = ("Start with chapter 1", "Which attention", "My layer misbehaves")


def test_three_doors_stand_above_the_fold(page: Page, address: str) -> None:
    page.goto(address)
    doors = [page.get_by_role("link", name=name, exact=True).first for name in DOORS]
    for width, height in ((1440, 900), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for door in doors:
            box = door.bounding_box()
            assert box
            assert box["y"] + box["height"] < height
    doors[-1].click()
    page.wait_for_url("**/the-bug-museum/#from-symptom-to-check")
    table = page.get_by_role("columnheader", name="what you see")
    expect(table).to_be_in_viewport()


# What takes longer than a glance to change, and who scrolls there slowly.
MOVING = """() => [...document.querySelectorAll("*")].filter((element) => {
  const seconds = (list) => Math.max(...list.split(", ").map(parseFloat));
  const look = getComputedStyle(element);
  return seconds(look.transitionDuration) > 0.01 || look.scrollBehavior === "smooth"
    || (look.animationName !== "none" && seconds(look.animationDuration) > 0.01);
}).length"""


def test_nothing_moves_for_whoever_asked_for_that(page: Page, address: str) -> None:
    page.goto(address + CHAPTER)
    assert page.evaluate(MOVING) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(MOVING) > 0
