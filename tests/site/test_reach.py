"""Whoever comes with a keyboard, with no script, or to search, finds what is there."""

import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from typing import BinaryIO

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from bookbinder.browser.browsing import DESKTOP, PHONE, Window
from bookbinder.browser.weighing import DRAWN, PLAIN, Budget, budget_of, too_much

pytestmark = pytest.mark.browser

CHAPTER = "which-attention/"

# Presses of the tabulator lead past all of these, each once. That back to the top is
# there while one scrolls up, and no longer.
STOPS = """[...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((e) => e.tabIndex >= 0 && !e.disabled && !e.matches(".md-top")
    && e.checkVisibility({ visibilityProperty: true })
    && (e.type !== "radio" || e.checked))
  .map((e) => (e.dataset.stop = e.tagName + " " + (e.getAttribute("href") ?? e.id)
    + " " + e.textContent.trim().slice(0, 20)))"""

# Where the focus is, and whether one sees it: by an outline, its own or its label's.
FOCUS = """(() => {
  const at = document.activeElement;
  const labels = [at, ...(at.labels ?? []), at.closest("form, nav, .md-search__form")];
  const seen = labels.some((e) => {
    const style = e && getComputedStyle(e);
    return style && (style.outlineStyle !== "none" || style.boxShadow !== "none");
  });
  return [at.dataset.stop ?? at.tagName, seen || at.matches(".md-search__input")];
})()"""


@pytest.fixture
def page(opened: Window, address: str) -> Page:
    opened.open(address + CHAPTER)
    return opened.page


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_the_tabulator_reaches_all_and_shows_where(
    width: int, page: Page, opened: Window
) -> None:
    opened.resize(width)
    page.evaluate("book.settled()")
    stops: list[str] = page.evaluate(STOPS)
    assert len(stops) > 40
    reached: list[str] = []
    unseen: list[str] = []
    while len(reached) < len(stops) + 30:
        page.keyboard.press("Tab")
        name, seen = page.evaluate(FOCUS)
        if name == "BODY" or (reached and name == reached[0]):
            break
        reached.append(name)
        if not seen:
            unseen.append(name)
    assert sorted(set(stops) - set(reached)) == []
    assert unseen == []


def test_the_menu_of_a_phone_opens_and_leads_on_by_keys(
    page: Page, opened: Window
) -> None:
    opened.resize(PHONE)
    link = page.locator(".md-sidebar--primary").get_by_role("link", name="Notation")
    expect(link).to_be_hidden()
    menu = page.get_by_role("button", name="Menu")
    expect(menu).to_have_attribute("aria-expanded", "false")
    menu.focus()
    page.keyboard.press("Enter")
    expect(menu).to_have_attribute("aria-expanded", "true")
    expect(link).to_be_visible()
    part = page.get_by_role("checkbox", name="II. Masks")
    inside = page.locator(".md-sidebar--primary").get_by_role("link", name="No peeking")
    expect(inside).to_be_hidden()
    part.focus()
    page.keyboard.press("Space")
    expect(inside).to_be_visible()
    inside.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/06-no-peeking/")


def test_the_palette_is_chosen_by_keys_and_kept(page: Page, address: str) -> None:
    def scheme() -> str:
        return str(page.evaluate("document.body.dataset.mdColorScheme"))

    page.locator("#__palette_0").focus()
    page.keyboard.press("ArrowRight")
    assert scheme() == "default"
    page.keyboard.press("ArrowRight")
    assert scheme() == "slate"
    page.goto(address)
    assert scheme() == "slate"
    paper = "getComputedStyle(document.body).getPropertyValue('--book-paper')"
    assert page.evaluate(paper) == "#15181e"
    page.emulate_media(media="print")
    assert page.evaluate(paper) in ("#fff", "#ffffff")
    page.emulate_media(media="screen", color_scheme="dark")
    page.locator("#__palette_2").focus()
    page.keyboard.press("ArrowRight")
    page.emulate_media(color_scheme="light")
    page.wait_for_function("() => document.body.dataset.mdColorScheme === 'default'")


def test_a_button_is_pressed_by_keys_and_says_what_it_did(page: Page) -> None:
    button = page.locator("button.copy").nth(1)
    expect(button).to_have_text("Copy with the block before")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_text("Copied with the block before")
    expect(page.get_by_role("status").filter(has_text="Copied")).to_have_count(1)
    expect(button).to_be_focused()
    codes = page.locator(".language-python.highlight pre").all_inner_texts()[:2]
    text = page.evaluate("navigator.clipboard.readText()")
    assert [line for line in text.splitlines() if line] == [
        line for code in codes for line in code.splitlines() if line
    ]


def test_what_cannot_be_copied_is_said_and_marked(page: Page) -> None:
    page.evaluate("""() => {
      navigator.clipboard.write = () => Promise.reject(new Error("no"));
    }""")
    button = page.locator("button.copy").first
    button.click()
    expect(button).to_have_text("Not copied: press Ctrl+C")
    marked = page.evaluate("getSelection().toString()")
    assert marked.strip() == page.locator("pre > code").first.inner_text().strip()


def test_without_a_clipboard_of_its_own_a_page_copies_all_the_same(page: Page) -> None:
    read = "navigator.clipboard.readText()"
    page.evaluate("navigator.clipboard.writeText('before')")
    page.evaluate("delete window.ClipboardItem")
    button = page.locator("button.copy").first
    button.click()
    expect(button).to_have_text("Copied")
    code = page.locator(".language-python pre > code").first.text_content()
    assert page.evaluate(read) == code


def test_a_listing_without_its_file_is_copied_as_shown(
    page: Page, opened: Window, address: str
) -> None:
    opened.open(address + "chapters/03-attention-by-hand/")
    page.route("**/listings/**", lambda route: route.fulfill(status=404))
    block = page.locator(".language-py.highlight").first
    block.locator("button.copy").click()
    expect(block.locator("button.copy")).to_have_text("Copied as shown")
    shown = block.locator("pre > code").text_content()
    assert page.evaluate("navigator.clipboard.readText()") == shown
    page.unroute("**/listings/**")
    # As a page is while it is written: there are no files beside it.
    page.route(
        "**/03-attention-by-hand/",
        lambda route: route.fulfill(
            body=route.fetch().text().replace("data-copy", "data-was")
        ),
    )
    page.reload()
    block.locator("button.copy").click()
    expect(block.locator("button.copy")).to_have_text("Copied as shown")
    page.unroute("**/03-attention-by-hand/")


def test_the_index_comes_when_a_reader_turns_to_the_search(
    page: Page, opened: Window
) -> None:
    assert not [path for path in opened.asked if "search_index" in path]
    page.locator(".md-search__input").focus()
    page.keyboard.type("transformer")
    page.locator(".md-search-result__link").first.wait_for(timeout=20_000)
    assert [path for path in opened.asked if "search_index" in path]
    dialog = page.locator(".md-search[role=dialog]")
    expect(dialog).to_have_attribute("aria-label", "Search")


# Where a slow line may pause: in a table, or before the last links of a short page.
PAUSES = {
    "notation/": (b"<tbody>", b"</tr>"),
    "reference/text/": (b"<tbody>", b"</tr>"),
    "reference/cli/": (b"<footer", b'<div class="md-footer-meta'),
}


@pytest.mark.parametrize("path", PAUSES)
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_moves_while_a_page_comes(
    width: int,
    path: str,
    opened: Window,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_pieces(self: object, source: BinaryIO, outputfile: BinaryIO) -> None:
        content, (part, stop) = source.read(), PAUSES[path]
        cut = content.index(stop, content.index(part))
        outputfile.write(content[:cut])
        time.sleep(0.5)
        outputfile.write(content[cut:])

    opened.open(address + path)
    opened.resize(width)
    monkeypatch.setattr(SimpleHTTPRequestHandler, "copyfile", in_pieces)
    # Under a name that the browser has not kept it under.
    opened.page.goto(f"{address}{path}?slowly")
    opened.page.wait_for_function("() => document.fonts.status === 'loaded'")
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("noted.moved") == []


def test_nothing_moves_when_the_theme_wakes(opened: Window, address: str) -> None:
    """A short page is shown before its scripts run, and stays as it was."""

    def later(route: Route) -> None:
        time.sleep(0.5)
        route.continue_()

    opened.page.route("**/bundle*.js", later)
    opened.open(f"{address}reference/cli/?asleep")
    opened.page.unroute("**/bundle*.js")
    assert opened.page.evaluate("document.documentElement.matches('.js')")
    assert opened.page.evaluate("noted.moved") == []


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


@pytest.mark.parametrize("path", ["chapters/10-order/", "reference/text/"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_code_out_of_sight_has_the_room_that_it_takes(
    width: int, path: str, opened: Window, address: str
) -> None:
    opened.open(address + path)
    opened.resize(width)
    opened.page.evaluate("book.settled()")
    blocks, furthest = opened.page.evaluate(ROOM)
    assert blocks > 3
    assert furthest <= 2


# What takes longer than a glance to change, and who scrolls there slowly.
MOVING = """() => {
  const seconds = (list) => Math.max(...list.split(", ").map(parseFloat));
  const looks = [...document.querySelectorAll("*")].flatMap((element) =>
    [null, "::before", "::after"].map((part) => getComputedStyle(element, part)));
  return [
    looks.filter((look) => seconds(look.transitionDuration) > 0.01).length,
    looks.filter((look) => look.animationName !== "none"
      && seconds(look.animationDuration) > 0.01).length,
    looks.filter((look) => look.scrollBehavior === "smooth").length,
  ];
}"""


def test_nothing_moves_for_whoever_asked_for_that(page: Page) -> None:
    assert page.evaluate(MOVING) == [0, 0, 0]
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(MOVING)[0] > 0
    page.emulate_media(reduced_motion="reduce")


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


def test_without_scripts_a_page_is_read_from_end_to_end(
    plain: Page, address: str
) -> None:
    plain.goto(address + "chapters/04-many-heads/")
    drawn = (".katex-html", "figure.diagram svg", "figure.figure svg")
    for kind in (*drawn, "table", ".highlight pre"):
        assert plain.locator(f"article {kind}").count() > 0
        for each in plain.locator(f"article {kind}").all()[:5]:
            expect(each).to_be_visible()
    for each in plain.locator("article > :is(p, h2)").all():
        expect(each).to_be_visible()
    assert plain.locator("button.copy").count() == 0
    # A fold opens, and a link leads on.
    fold = plain.locator("details").first
    expect(fold.locator("p").first).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("p").first).to_be_visible()
    plain.locator(".md-footer__link--next").click()
    plain.wait_for_url("**/05-shapes-that-lie/")


def test_the_budget_of_a_page_is_that_of_what_it_shows() -> None:
    assert budget_of("<p>words</p>") is PLAIN
    for mark in ("arithmatex", "diagram", "figure"):
        assert budget_of(f'<div class="{mark}">') is DRAWN


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ({"a": 1024, "b": 1024}, []),
        ({"a": 1025, "b": 1024}, ["2.0 KiB, of 2 for a page of words: a 1.0, b 1.0"]),
        (
            {"a": 1, "b": 1, "c": 2},
            ["3 requests, of 2 for a page of words: a, b, c"],
        ),
    ],
)
def test_what_is_beyond_a_budget_is_named(
    weights: dict[str, int], wanted: list[str]
) -> None:
    assert too_much(weights, Budget("of words", 2, 2)) == wanted
