"""The widgets: equal to PyTorch, small, used by mouse, by touch and by keyboard."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from tests.site.looking import assert_room

from tested_transformer.data import verb_forms
from tested_transformer.interpret import record_heads
from transformer_book.our_gpt import our_gpt

# The page of each.
PAGES = {
    "mask-bench": "",
    "first-look": "",
    "lookup": "chapters/a-lookup-that-blurs/",
    "samplers": "chapters/sampling/",
    "rotary": "chapters/order/",
    "tiles": "chapters/fast-paths/",
    "switches": "chapters/induction/",
}
AT_NIGHT = [pytest.param(name, marks=pytest.mark.nightly) for name in [*PAGES][1:]]
by_touch = pytest.mark.browser_context_args(
    has_touch=True, viewport={"width": 390, "height": 844}
)
# All of them but the engine of the live model, which the last three stand on.
MODULES = [
    *("start", "controls", "elements", "masked-attention", "mask-bench", "softmax"),
    *("blurred-lookup", "lookup", "samplers", "sampling-bars"),
    *("rotary", "rotary-arrows", "tiled-softmax", "softmax-tiles"),
    *("muted-guess", "head-switches", "first-look"),
]
# Bytes of scripts and style as they are written, with comments, and as they are sent.
BUDGET, PACKED = 31 * 1024, 15 * 1024


def opened(page: Page, address: str, name: str) -> Locator:
    page.goto(address + PAGES[name])
    widget = page.locator(f'[data-live="{name}"]')
    widget.scroll_into_view_if_needed()
    says = widget.get_by_role("status")
    expect(says).not_to_have_text(re.compile("^$|is loading"), timeout=20_000)
    return widget


def slider(widget: Locator, name: str) -> Locator:
    return widget.get_by_role("slider", name=name)


def across(element: Locator, share: float) -> tuple[float, float]:
    """Where on the screen an element is, at a share of its width."""
    box = element.bounding_box()
    assert box
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def touched(page: Page, element: Locator, *shares: float) -> None:
    """Put a finger on an element, and move it along."""
    session = page.context.new_cdp_session(page)
    for number, share in enumerate(shares):
        x, y = across(element, share)
        kind = "touchMove" if number else "touchStart"
        points = [{"x": x, "y": y}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.browser
def test_an_inverted_mask_lets_the_past_see_the_future(
    page: Page, address: str, complaints: list[str]
) -> None:
    page.goto(address)
    bench = page.locator('[data-live="mask-bench"]')
    says = bench.get_by_role("status")
    expect(says).to_contain_text("no earlier output moves")
    assert bench.locator("tbody button").all_inner_texts()[:6] == (
        ["1.00", "·", "·", "·", "·", "0.67"]
    )
    chosen = bench.locator(".presets [aria-pressed=true]")
    expect(chosen).to_have_text("causal")
    bench.get_by_role("button", name="inverted").click()
    expect(chosen).to_have_text("inverted")
    expect(says).to_contain_text("the outputs of “The”, “cat”, “sat”, “on” move too")
    expect(bench.locator(".note").last).to_have_text("zeros")
    bench.get_by_role("button", name="causal", exact=True).click()
    cell = bench.get_by_role("button", name="The may attend to mats")
    cell.focus()
    page.keyboard.press("Enter")
    expect(cell).to_have_attribute("aria-pressed", "true")
    expect(chosen).to_have_count(0)
    expect(says).to_contain_text("the outputs of “The” move too")
    page.keyboard.press("Space")
    expect(says).to_contain_text("no earlier output moves")
    # The cells are one stop of the tabulator; arrows lead from one to the next.
    for key, name in (
        ("ArrowUp", "The may attend to mats"),
        ("ArrowDown", "cat may attend to mats"),
        ("ArrowLeft", "cat may attend to on"),
        ("ArrowUp", "The may attend to on"),
    ):
        page.keyboard.press(key)
        expect(bench.get_by_role("button", name=name)).to_be_focused()
    page.keyboard.press("Tab")
    expect(bench.get_by_label("read True as ignore")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(bench.get_by_role("button", name="The may attend to on")).to_be_focused()
    bench.get_by_label("read True as ignore").check()
    expect(says).to_contain_text("they see the future")
    assert complaints == []


@pytest.mark.browser
def test_a_lookup_by_keyboard_and_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "lookup")
    says = widget.get_by_role("status")
    # As the chapter has it, on paper and in Python.
    expect(says).to_have_text("Answer: 0.018 · 500 + 0.965 · 800 + 0.018 · 600 = 791 m")
    assert widget.locator("td").all_inner_texts() == ["0.018", "0.965", "0.018"]
    query, temperature = (
        slider(widget, "query"),
        slider(widget, "temperature"),
    )
    query.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    expect(query).to_have_attribute("aria-valuetext", "2.0 km")
    expect(says).to_contain_text("= 764 m")
    page.keyboard.press("Tab")
    expect(temperature).to_be_focused()
    page.keyboard.press("Home")
    expect(temperature).to_have_attribute("aria-valuetext", "0.05")
    expect(says).to_contain_text("= 800 m")
    page.keyboard.press("End")
    expect(temperature).to_have_attribute("aria-valuetext", "100")
    expect(says).to_contain_text("= 635 m")

    chart = widget.get_by_role("img")
    before = widget.locator(".curve").get_attribute("d")
    page.keyboard.press("Home")
    assert widget.locator(".curve").get_attribute("d") != before
    page.mouse.move(*across(chart, 0.5))
    page.mouse.down()
    page.mouse.move(*across(chart, (48 + 38) / 360))
    expect(says).to_contain_text("= 500 m")
    expect(query).to_have_attribute("aria-valuetext", "0.0 km")
    page.mouse.up()
    page.mouse.move(*across(chart, 0.9))  # nothing is held now
    expect(says).to_contain_text("= 500 m")
    page.mouse.click(*across(query, 0.99))
    expect(query).to_have_attribute("aria-valuetext", "7.0 km")
    assert complaints == []


@pytest.mark.browser
@by_touch
def test_a_lookup_and_samplers_by_touch(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "lookup")
    query = slider(widget, "query")
    touched(page, widget.get_by_role("img"), 0.3, 0.5, (48 + 7 * 38) / 360)
    expect(query).to_have_attribute("aria-valuetext", "6.0 km")
    touched(page, query, 0.99)
    expect(query).to_have_attribute("aria-valuetext", "7.0 km")
    # All widgets have the same sliders and buttons.
    widget = opened(page, address, "samplers")
    widget.get_by_role("button", name="top-k 3").tap()
    expect(widget.get_by_role("status")).to_contain_text("Left: mat, sofa, roof.")
    touched(page, slider(widget, "top-k"), 0.5, 0.99)
    expect(widget.get_by_role("status")).to_have_text("All five words are left.")
    assert complaints == []


@pytest.mark.browser
def test_samplers_by_keyboard_and_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "samplers")
    says, cells = widget.get_by_role("status"), widget.locator("td:last-child")
    expect(says).to_have_text("All five words are left.")
    chosen = widget.locator(".presets [aria-pressed=true]")
    expect(chosen).to_have_text("all off")
    # As the chapter prints them.
    for name, row, words in (
        ("greedy", "1.000 cut cut cut cut", "the likeliest word, mat, gets all"),
        ("temperature 2", "0.348 0.246 0.191 0.130 0.085", "All five"),
        ("top-k 3", "0.556 0.278 0.167 cut cut", "They had 0.900 together"),
        ("top-p 0.7", "0.667 0.333 cut cut cut", "They had 0.750 together"),
        ("min-p 0.1", "0.515 0.258 0.155 0.072 cut", "They had 0.970 together"),
    ):
        widget.get_by_role("button", name=name).click()
        assert " ".join(cells.all_inner_texts()) == row
        expect(says).to_contain_text(words)
        expect(chosen).to_have_text(name)
    temperature = slider(widget, "temperature")
    temperature.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    assert " ".join(cells.all_inner_texts()) == "0.800 0.200 cut cut cut"
    expect(chosen).to_have_count(0)
    expect(says).to_contain_text("After the temperature, they had 0.917 together")
    page.keyboard.press("Tab")
    expect(slider(widget, "top-k")).to_be_focused()
    expect(slider(widget, "top-k")).to_have_attribute("aria-valuetext", "off")
    page.keyboard.press("Home")
    assert " ".join(cells.all_inner_texts()) == "1.000 cut cut cut cut"
    widget.get_by_role("button", name="min-p 0.1").press("Enter")
    for mood, count in (("sure", 1), ("at a loss", 5), ("as above", 4)):
        widget.get_by_label("the model is").select_option(mood)
        assert 5 - cells.all_inner_texts().count("cut") == count
    page.mouse.click(*across(slider(widget, "min-p"), 0.99))
    expect(slider(widget, "min-p")).to_have_attribute("aria-valuetext", "1.00")
    assert complaints == []


@pytest.mark.browser
def test_arrows_by_keyboard_and_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "rotary")
    says, dials = widget.get_by_role("status"), widget.locator(".dials p")
    # The first two pairs are those of the chapter's run.
    first_two = ["speed 1.00 2.00 rad apart score -0.42", "speed 0.10 0.20 rad apart"]
    expect(dials).to_contain_text([*first_two, "speed 0.01 0.02 rad apart score 1.00"])
    expect(says).to_contain_text("-0.42 + 0.98 + 1.00 = 1.56")
    arrow = widget.locator("path.q").first
    drawn = arrow.get_attribute("d")
    both = slider(widget, "move both")
    both.focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    # Elsewhere, and the angles and the scores are what they were.
    expect(says).to_contain_text("Query at 12, key at 10, difference 2.")
    expect(says).to_contain_text("-0.42 + 0.98 + 1.00 = 1.56")
    expect(dials).to_contain_text([*first_two, "0.02 rad apart"])
    assert arrow.get_attribute("d") != drawn
    query, key = slider(widget, "query at"), slider(widget, "key at")
    query.focus()
    page.keyboard.press("ArrowRight")
    expect(says).to_contain_text("difference 3.")
    expect(dials.first).to_contain_text("3.00 rad apart")
    page.keyboard.press("Tab")
    expect(key).to_be_focused()
    page.mouse.click(*across(key, 0.99))
    expect(key).to_have_attribute("aria-valuetext", "20")
    expect(says).to_contain_text("difference -16.")
    page.mouse.move(*across(key, 0.99))
    page.mouse.down()
    page.mouse.move(*across(key, 0.01))
    page.mouse.up()
    expect(key).to_have_attribute("aria-valuetext", "0")
    assert complaints == []


@pytest.mark.browser
def test_tiles_by_keyboard_and_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "tiles")
    says, size = widget.get_by_role("status"), slider(widget, "keys in a tile")
    read = slider(widget, "tiles read")

    def rows() -> list[str]:
        lines = widget.locator("tbody tr").all_inner_texts()
        return [" ".join(line.split()) for line in lines if line.strip()]

    # The numbers that the chapter works out, and prints for the second query.
    assert rows() == ["0, 1 0.00 1.10 1.10 1.33 23.33", "2, 3"]
    size.focus()
    page.keyboard.press("Tab")
    expect(read).to_be_focused()
    page.keyboard.press("ArrowRight")
    assert rows() == [
        "0, 1 gone 1.10 1.33 23.33",
        "2, 3 0.69 1.39 1.39 0.75 2.50 72.50",
    ]
    expect(says).to_contain_text("o / ℓ = 29.00; with no maximum subtracted: 29.00.")
    chosen = widget.locator(".presets [aria-pressed=true]")
    expect(chosen).to_have_text("query 0")
    widget.get_by_role("button", name="+ 1000").click()
    expect(chosen).to_have_text("query 0, scores + 1000")
    expect(says).to_contain_text("o / ℓ = 29.00; with no maximum subtracted: NaN.")
    widget.get_by_role("button", name="query 1").press("Enter")
    for keys, tiles in ((1, 4), (2, 2), (3, 2), (4, 1)):
        size.press("Home")
        for _ in range(keys - 1):
            size.press("ArrowRight")
        read.press("End")
        expect(read).to_have_attribute("aria-valuetext", str(tiles))
        assert len(rows()) == tiles
        expect(says).to_contain_text(f"Held: {4 - keys * (tiles - 1)} of 4 scores")
        expect(says).to_contain_text("o / ℓ = 21.00;")
    page.mouse.click(*across(read, 0.01))
    expect(says).to_have_text("Nothing is read yet: m is −∞, ℓ and o are 0.")
    page.mouse.click(*across(size, 0.01))
    expect(size).to_have_attribute("aria-valuetext", "1")
    assert complaints == []


@pytest.mark.browser
def test_heads_are_switched_by_keyboard_and_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "switches")
    says, switches = widget.get_by_role("status"), widget.locator("tbody button")
    # As the chapter prints them, with all heads.
    expect(says).to_have_text("An s has 0.99. One animal sleeps: right.")
    texts = widget.get_by_label("text")
    texts.select_option("The wolves near the house sleep")
    expect(says).to_have_text("An s has 0.00. Several animals sleep: right.")
    switch = widget.get_by_role("button", name="head 2.0", exact=True)
    expect(switch).to_have_attribute("aria-pressed", "true")
    chosen = widget.locator(".presets [aria-pressed=true]")
    expect(chosen).to_have_text("all on")
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(says).to_contain_text("Several animals sleep: wrong.")
    expect(chosen).to_have_text("without 2.0")
    off = says.inner_text()
    expect(widget.locator(".bars th").nth(3)).to_have_text("s")
    page.keyboard.press("Enter")
    expect(says).to_have_text("An s has 0.00. Several animals sleep: right.")
    widget.get_by_role("button", name="without 2.0").click()
    expect(says).to_have_text(off)
    widget.get_by_role("button", name="all on").click()
    assert {*switches.all_inner_texts()} == {"on"}
    page.mouse.click(*across(switches.last, 0.5))
    expect(switches.last).to_have_text("off")
    assert complaints == []


# As a live block does, wherever it stands.
PLACE = """async (address) => {
  document.body.innerHTML = '<main class="md-typeset"><h1>A first look</h1></main>';
  const style = document.createElement("link");
  const root = document.createElement("section");
  Object.assign(style, { rel: "stylesheet", href: `${address}assets/css/widgets.css` });
  Object.assign(root, { className: "live", ariaLabel: "A first look at a head" });
  root.dataset.live = "first-look";
  document.querySelector("main").append(style, root);
  await import(`${address}assets/js/gpt/first-look.js`);
}"""


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_a_first_look_shows_what_the_head_for_the_subject_reads(
    width: int, scheme: Any, page: Page, address: str, complaints: list[str]
) -> None:
    model, tokenizer = our_gpt()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}404.html")
    page.evaluate(PLACE, address)
    widget = page.locator("[data-live=first-look]")
    says = widget.get_by_role("status")
    expect(says).to_contain_text("At “sees”", timeout=20_000)
    heights: set[float] = set()
    for button in widget.get_by_role("button").all():
        button.focus()
        page.keyboard.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "true")
        spans = widget.locator(".words span").all_inner_texts()
        shown = [span.split() for span in spans]
        text = " ".join(word for word, _ in shown)
        recording = record_heads(model, torch.tensor([tokenizer.encode(text)]))
        weights = torch.cat(recording.weights)[:, :, -1]
        # Of all heads the one that reads the subject most.
        layer, head = divmod(int(weights[..., 1].argmax()), model.config.num_heads)
        wanted = [f"{weight:.2f}" for weight in weights[layer, head].tolist()]
        assert [weight for _, weight in shown] == wanted
        expect(says).to_contain_text(
            f"head {layer}.{head} reads mostly “{text.split()[1]}”"
        )
        shares = recording.logits[0, -1].softmax(dim=-1)
        sums = [
            sum(shares[tokenizer.encode(verb)[0]] for verb in verb_forms(number))
            for number in ("plural", "singular")
        ]
        bars = widget.locator(".bars .bar").all_inner_texts()
        assert bars == [f"{total:.3f}" for total in sums]
        heights.add(assert_room(widget))
    assert len(heights) == 1
    axe = Axe().run(page, context="[data-live=first-look]").response
    assert [violation["id"] for violation in axe["violations"]] == []
    assert complaints == []


@pytest.mark.browser
def test_the_model_comes_when_its_switches_are_near(page: Page, address: str) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address + PAGES["switches"], wait_until="networkidle")
    assert not any("safetensors" in url for url in requests)
    page.route("**/model.safetensors", lambda route: route.fulfill(status=503))
    widget = page.locator('[data-live="switches"]')
    widget.scroll_into_view_if_needed()
    expect(widget.get_by_role("status")).to_contain_text("not be loaded, status 503")


@pytest.mark.browser
@pytest.mark.parametrize("name", ["mask-bench", *AT_NIGHT])
def test_a_widget_moves_nothing_and_is_read_by_everyone(
    name: str, page: Page, address: str, complaints: list[str]
) -> None:
    for width, palette in ((1440, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if palette == "dark" else "light")
        widget = opened(page, address, name)
        assert page.evaluate("looking.settled()") == []
        height = assert_room(widget)
        for button in widget.locator(".presets button").all():
            button.click()
            assert assert_room(widget) == height, button.inner_text()
        for slide in widget.get_by_role("slider").all():
            before = slide.bounding_box()
            slide.press("End")
            assert slide.bounding_box() == before
        assert assert_room(widget) == height
        axe = Axe().run(page, context=f'[data-live="{name}"]').response
        assert [violation["id"] for violation in axe["violations"]] == []
    assert complaints == []


@pytest.mark.browser
@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_scripts_a_sentence_and_a_picture_stand_there(
    page: Page, address: str
) -> None:
    for name, path in PAGES.items():
        page.goto(address + path)
        widget = page.locator(f'[data-live="{name}"]')
        expect(widget).to_contain_text("Where scripts are")
        # Where a page has no figure, its code and output stand there.
        picture = "article figure, article .language-python"
        expect(page.locator(picture).first).to_be_visible()


def test_all_widgets_together_are_small(built: Path) -> None:
    scripts = built / "assets" / "js" / "gpt"
    style = built / "assets" / "css" / "widgets.css"
    files = [*(scripts / f"{module}.js" for module in MODULES), style]
    sizes = {file.name: file.stat().st_size for file in files}
    assert sum(sizes.values()) < BUDGET, sizes
    sent = {file.name: len(gzip.compress(file.read_bytes(), 6)) for file in files}
    assert sum(sent.values()) < PACKED, sent
    # Nothing moves by itself, so that there is nothing to switch off.
    for file in files:
        text = file.read_text("utf-8")
        for word in ("animat", "transition", "setInterval", "requestAnimationFrame"):
            assert word not in text, f"{file.name}: {word}"
