"""The GPT in the reader's browser: what it shows is what PyTorch computes.

That the engine computes the same is tested in ``tests/transformer_book``.
"""

import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from tests.site.looking import assert_accessible, pixels

from tested_transformer.data import verb_forms
from tested_transformer.interpret import record_heads
from transformer_book.our_gpt import our_gpt

pytestmark = pytest.mark.browser

CHAPTER = "chapters/watch-it-think/"
MANY, ONE = "The dogs that Nilo sees", "The dog that Nilo sees"
STORY = "Rika is a small wolf. Nilo is a big cat. The dogs that Nilo sees sleep. " * 4


def ready(page: Page) -> None:
    root = page.locator("[data-live=watch]")
    expect(root).to_have_attribute("data-state", "ready", timeout=20_000)


@pytest.fixture
def live(page: Page, address: str) -> Page:
    """Open the chapter, with its first model loaded."""
    page.goto(address + CHAPTER)
    ready(page)
    return page


def part(page: Page, selector: str) -> Locator:
    return page.locator(f"[data-live=watch] {selector}")


def field(page: Page, name: str) -> Locator:
    return page.get_by_role("textbox", name=name, exact=True)


def mode(page: Page, name: str) -> Locator:
    return page.get_by_role("radio", name=name, exact=True)


def recorded(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of every head, and the probabilities after the last word."""
    model, words = our_gpt()
    recording = record_heads(model, torch.tensor([words.encode(text)]))
    return torch.cat(recording.weights), recording.logits[0, -1].softmax(dim=-1)


def subject_head() -> tuple[int, int]:
    """The head that the page opens on: the one that reads *dogs* at the end."""
    weights, _ = recorded(MANY)
    layer, head = divmod(int(weights[:, :, -1, 1].argmax()), weights.shape[1])
    return layer, head


def guesses(many: torch.Tensor, one: torch.Tensor) -> list[str]:
    """The rows that show these probabilities after the last words."""
    _, words = our_gpt()
    best = many.maximum(one).topk(6).indices.tolist()
    verbs = {
        f"{number} verbs": [words.encode(verb)[0] for verb in verb_forms(number)]
        for number in ("plural", "singular")
    }
    rows = {words.vocabulary[at]: [at] for at in best} | verbs
    return [
        "\t".join([name, *(f"{100 * after[ids].sum():.1f} %" for after in (many, one))])
        for name, ids in rows.items()
    ]


PALETTE = "(name) => document.body.dataset.mdColorScheme === name"


def test_the_guesses_are_those_of_the_library_and_the_maps_its_weights_in_color(
    live: Page,
) -> None:
    header = live.locator(".md-header").bounding_box()
    box = live.locator("[data-live=watch]").bounding_box()
    assert header
    assert box
    assert box["height"] <= 900 - header["height"]  # all of it is seen at once
    (many, of_many), (one, of_one) = recorded(MANY), recorded(ONE)
    layer, head = subject_head()
    expect(part(live, ".says-head")).to_contain_text(f"Head {layer}.{head}, subject")
    assert part(live, ".guesses tbody tr").all_inner_texts() == guesses(of_many, of_one)
    for scheme, colors in (
        ("light", ((0x35, 0x57, 0xC2), (0xB0, 0x4A, 0x22))),
        ("dark", ((0x61, 0x84, 0xF2), (0xE3, 0x8B, 0x62))),
    ):
        live.emulate_media(color_scheme=scheme)
        palette = "slate" if scheme == "dark" else "default"
        live.wait_for_function(PALETTE, arg=palette)
        for shown, weights in (
            ("first text", many),
            ("second text", one),
            ("difference", many - one),
        ):
            mode(live, shown).check()
            drawn = pixels(live.locator("[data-live=watch]"))
            opacities = drawn[..., 3] / 255
            maps = torch.cat([weights.flatten(0, 1), weights[layer, head][None]])
            torch.testing.assert_close(
                opacities, maps.flatten(1).abs(), atol=0.003, rtol=0
            )
            for cell, value in zip(
                drawn.flatten(0, 1), maps.flatten().tolist(), strict=True
            ):
                if abs(value) > 0.5:
                    near = torch.tensor(colors[value < 0])
                    assert (cell[:3] - near).abs().max() <= 1


def test_a_head_writes_something_else_until_it_is_restored(live: Page) -> None:
    """That it computes what PyTorch does is tested in ``tests/transformer_book``."""
    layer, head = subject_head()
    share = part(live, ".guesses .sum td").first
    before = share.inner_text()
    select = live.get_by_label(f"In the first text, head {layer}.{head} writes")
    for kind in ("zeros", "second text", "its mean at each position"):
        option = select.locator("option").filter(has_text=kind)
        select.select_option(option.inner_text())
        assert share.inner_text() != before
        expect(part(live, ".map.changed")).to_have_count(1)
        live.get_by_role("button", name="All heads as they are").click()
        expect(share).to_have_text(before)
        expect(part(live, ".map.changed")).to_have_count(0)
        expect(select).to_have_value("own")


def test_a_cell_is_clicked_and_says_how_its_weight_arises(live: Page) -> None:
    layer, head = subject_head()
    weight = recorded(MANY)[0][layer, head, 4, 1]
    cell = part(live, ".plane").bounding_box()
    assert cell
    size = cell["width"] / 5
    part(live, ".plane").click(position={"x": 0.5 * size, "y": 3.5 * size})
    expect(part(live, ".says")).to_contain_text("From Nilo to The: ")
    expect(part(live, ".why")).to_contain_text("All keys that “Nilo” may attend to")
    assert part(live, ".why table").nth(1).locator("tbody tr").count() == 4
    part(live, ".plane").hover(position={"x": 4.5 * size, "y": 0.5 * size})
    expect(part(live, ".says")).to_have_text("From The to sees: 0, hidden by the mask")
    # The same by the keyboard.
    live.get_by_role("slider", name="Query").press("End")
    key = live.get_by_role("slider", name="Key")
    for step in ("Home", "ArrowRight"):
        key.press(step)
    expect(key).to_have_attribute("aria-valuetext", "1: dogs")
    live.mouse.move(0, 0)
    expect(part(live, ".says")).to_have_text(f"From sees to dogs: {weight:.2f}")
    expect(part(live, ".why p")).to_contain_text(f"{weight:.3f} of the value of “dogs”")
    assert part(live, ".why table").first.locator("tbody tr").count() == 16


def test_it_is_used_by_the_keyboard_alone(live: Page) -> None:
    part(live, "select").first.focus()
    for name in ("dogs, dog", "past a cat", "a story"):
        live.keyboard.press("Tab")
        expect(live.get_by_role("button", name=name, exact=True)).to_be_focused()
    live.keyboard.press("Tab")
    live.keyboard.press("Control+a")
    live.keyboard.type("The cat")
    expect(part(live, ".count")).to_have_text("2 of 64 tokens")
    for _ in range(3):
        live.keyboard.press("Tab")
    expect(live.get_by_role("button", name="One token")).to_be_focused()
    live.keyboard.press("Enter")
    expect(part(live, ".status")).to_contain_text("1 token written.")
    assert re.match(r"The cat( \w+|[,.])$", field(live, "First text").input_value())
    heads = part(live, ".maps").get_by_role("radio")
    heads.first.focus()
    live.keyboard.press("ArrowRight")
    expect(heads.nth(1)).to_be_checked()
    live.get_by_role("button", name="Generate").focus()
    live.keyboard.press("Enter")
    expect(live.get_by_role("button", name="Stop")).to_be_focused()
    live.keyboard.press("Escape")
    expect(live.get_by_role("button", name="Generate")).to_be_focused()
    # What is typed over marked text replaces it while it grows.
    live.get_by_role("button", name="Generate").click()
    expect(live.get_by_role("button", name="Stop")).to_be_visible()
    field(live, "First text").focus()
    live.keyboard.press("Control+a")
    live.keyboard.type("The d")
    expect(field(live, "First text")).to_have_value("The d")
    expect(live.get_by_role("button", name="Generate")).to_be_visible()


def test_empty_unknown_full_and_past_it_are_said(live: Page) -> None:
    text = field(live, "First text")
    status, count = part(live, ".status"), part(live, ".count")
    text.fill("")
    expect(status).to_contain_text("There is nothing to read: type something.")
    expect(live.get_by_role("button", name="Generate")).to_be_disabled()
    text.fill("The zebra sees 🐈 dogs")
    expect(count).to_have_text("3 of 64 tokens")
    expect(status).to_contain_text("does not know it: zebra 🐈.")
    expect(status).to_contain_text("A difference of maps needs two texts of equally")
    expect(mode(live, "difference")).to_be_disabled()
    text.fill(STORY)
    expect(count).to_contain_text("the last 43 of 76 tokens")
    field(live, "Second text").fill("")
    expect(part(live, ".guesses thead th").last).to_be_hidden()


def test_a_full_context_keeps_its_words_and_its_place(live: Page) -> None:
    root = live.locator("[data-live=watch]")
    for name in ("First text", "Second text"):
        field(live, name).fill(STORY[:242])
    for width in (1440, 390):
        live.set_viewport_size({"width": width, "height": 900})
        for selector in (".queries span", ".keys span"):
            words = part(live, selector)
            assert words.count() == 64
            size = "e => parseFloat(getComputedStyle(e).fontSize)"
            assert words.first.evaluate(size) > 11
        # The last row is in sight, and its word beside it.
        board = part(live, ".board").bounding_box()
        last = part(live, ".queries .chosen").bounding_box()
        assert board
        assert last
        room = board["height"] - last["height"] + 1
        assert board["y"] <= last["y"] <= board["y"] + room
        assert last["x"] >= board["x"]
        for element in (root, part(live, "input[type=number]")):
            assert element.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    live.emulate_media(color_scheme="dark")
    assert_accessible(live, "watch")


def test_a_model_that_does_not_come_is_said_and_can_be_asked_for_again(
    page: Page, address: str
) -> None:
    pattern = "**/stories/model.safetensors"
    page.route(pattern, lambda route: route.fulfill(status=503))
    page.goto(address + CHAPTER)
    expect(part(page, ".status")).to_contain_text("not be loaded, status 503")
    # None is chosen now, so that a reader can choose the same again.
    expect(part(page, "select").first).to_have_value("")
    page.unroute(pattern)
    part(page, "select").first.select_option("stories")
    ready(page)


def test_each_model_is_small_and_comes_when_it_is_wanted(
    live: Page, built: Path, address: str
) -> None:
    sizes = [
        file.stat().st_size for file in (built / "assets/models/stories").iterdir()
    ]
    assert sum(sizes) < 300_000
    script = "performance.getEntriesByType('resource').map((each) => each.name)"
    names = live.evaluate(script)
    assert any("stories/model" in name for name in names)
    assert not any("stories-2/model" in name for name in names)
    part(live, "select").first.select_option("shakespeare")
    ready(live)
    expect(part(live, ".queries span").nth(6)).to_have_text("⏎")
    expect(part(live, ".guesses .sum")).to_have_count(0)
    # No request leaves the site.
    assert all(name.startswith(address) for name in live.evaluate(script))
