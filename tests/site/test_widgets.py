"""The widgets: equal to PyTorch, small, used by mouse, by touch and by keyboard."""

import gzip
import re
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from tests.site.looking import assert_accessible, assert_room

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
    bench = opened(page, address, "mask-bench")
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
    cell.press("Enter")
    expect(cell).to_have_attribute("aria-pressed", "true")
    expect(chosen).to_have_count(0)
    expect(says).to_contain_text("the outputs of “The” move too")
    cell.press("Space")
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
    bench.get_by_label("read True as ignore").check()
    expect(says).to_contain_text("they see the future")
    assert complaints == []


# What each says at first, as its chapter has it, and after a key on a slider or a
# button, pressed once or more.
STEPS = {
    "lookup": [
        ("", "", "", "0.018 · 500 + 0.965 · 800 + 0.018 · 600 = 791 m"),
        ("slider", "query", "ArrowLeft 10", "= 764 m"),
        ("slider", "temperature", "Home", "= 800 m"),
        ("slider", "temperature", "End", "= 635 m"),
    ],
    "samplers": [
        ("", "", "", "All five words are left."),
        ("button", "greedy", "Enter", "the likeliest word, mat, gets all"),
        ("button", "temperature 2", "Enter", "All five words are left."),
        ("button", "top-k 3", "Enter", "They had 0.900 together"),
        ("button", "top-p 0.7", "Enter", "They had 0.750 together"),
        ("button", "min-p 0.1", "Enter", "They had 0.970 together"),
        ("slider", "temperature", "ArrowLeft 5", "they had 0.917 together"),
        ("slider", "top-k", "Home", "Left: mat."),
    ],
    "rotary": [
        ("", "", "", "difference 2."),
        ("slider", "move both", "ArrowRight 9", "at 12, key at 10, difference 2."),
        ("", "", "", "-0.42 + 0.98 + 1.00 = 1.56"),
        ("slider", "query at", "ArrowRight", "difference 3."),
        ("slider", "key at", "End", "difference -16."),
    ],
    "tiles": [
        ("slider", "tiles read", "End", "29.00; with no maximum subtracted: 29.00"),
        ("button", "+ 1000", "Enter", "29.00; with no maximum subtracted: NaN."),
        ("button", "query 1", "Enter", "o / ℓ = 21.00;"),
        ("slider", "keys in a tile", "Home", "Held: "),
        ("slider", "tiles read", "Home", "Nothing is read yet: m is −∞, ℓ and o"),
    ],
    "switches": [
        ("", "", "", "An s has 0.99. One animal sleeps: right."),
        ("button", "without 2.0", "Enter", "One animal sleeps: "),
        ("button", "head 2.0", "Space", "An s has 0.99. One animal sleeps: right."),
        ("combobox", "text", "ArrowDown", "An s has 0.00."),
    ],
}


@pytest.mark.browser
@pytest.mark.parametrize("name", STEPS)
def test_a_widget_answers_each_key(
    name: str, page: Page, address: str, complaints: list[str]
) -> None:
    """What it computes is tested in ``tests/transformer_book``."""
    widget = opened(page, address, name)
    chosen = widget.locator(".presets [aria-pressed=true]")
    for role, label, key, words in STEPS[name]:
        if role:
            control = widget.get_by_role(cast(Any, role), name=label).first
            key, _, times = key.partition(" ")
            for _ in range(int(times or 1)):
                control.press(key)
            expect(control).to_be_focused()
        if (role, key) == ("button", "Enter"):
            expect(chosen).to_contain_text(label)
        expect(widget.get_by_role("status")).to_contain_text(words)
    assert complaints == []


@pytest.mark.browser
def test_a_curve_and_a_slider_are_pulled_by_the_mouse(
    page: Page, address: str, complaints: list[str]
) -> None:
    widget = opened(page, address, "lookup")
    says, query = widget.get_by_role("status"), slider(widget, "query")
    slider(widget, "temperature").press("Home")
    chart = widget.get_by_role("img")
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
    widget = opened(page, address, "samplers")
    widget.get_by_role("button", name="top-k 3").tap()
    expect(widget.get_by_role("status")).to_contain_text("Left: mat, sofa, roof.")
    assert complaints == []


@pytest.mark.browser
def test_a_first_look_shows_what_the_head_for_the_subject_reads(
    page: Page, address: str, complaints: list[str]
) -> None:
    model, tokenizer = our_gpt()
    widget = opened(page, address, "first-look")
    for button in widget.get_by_role("button").all():
        button.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "true")
        spans = widget.locator(".words span").all_inner_texts()
        words, shown = zip(*map(str.split, spans), strict=True)
        tokens = torch.tensor([tokenizer.encode(" ".join(words))])
        recording = record_heads(model, tokens)
        weights = torch.cat(recording.weights)[:, :, -1]
        # Of all heads the one that reads the subject most.
        layer, head = divmod(int(weights[..., 1].argmax()), model.config.num_heads)
        assert shown == (*(f"{w:.2f}" for w in weights[layer, head].tolist()),)
        says = f"head {layer}.{head} reads mostly “{words[1]}”"
        expect(widget.get_by_role("status")).to_contain_text(says)
        shares = recording.logits[0, -1].softmax(dim=-1)
        verbs = [verb_forms(number) for number in ("plural", "singular")]
        sums = [sum(shares[tokenizer.encode(v)[0]] for v in forms) for forms in verbs]
        bars = widget.locator(".bars .bar").all_inner_texts()
        assert bars == [f"{total:.3f}" for total in sums]
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
        assert_accessible(page, name)
    assert complaints == []


@pytest.mark.browser
@pytest.mark.browser_context_args(java_script_enabled=False)
def test_without_scripts_a_sentence_and_a_picture_stand_there(
    page: Page, address: str, html: dict[str, str]
) -> None:
    for name, path in PAGES.items():
        widget = html[path].partition(f'data-live="{name}"')[2]
        sentence = widget.partition("</section>")[0].partition('"without">')[2]
        assert sentence.startswith("Where scripts are")
        # Where a page has no figure, its code and output stand there.
        assert re.search(r'<figure|class="language-python', html[path])
    page.goto(address)
    shown = page.locator("[data-live] .without")
    expect(shown.filter(visible=True)).to_have_count(2)
    expect(page.locator("article .language-python").first).to_be_visible()


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
