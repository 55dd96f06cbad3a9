"""Maps from a file: the page shows what is in it, and refuses what is not one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import FilePayload, Locator, Page, expect
from tests.site.looking import assert_accessible, assert_room, pixels

from tested_transformer.cli import main
from tested_transformer.interpret import record_heads
from transformer_book import model_folder
from transformer_book.our_gpt import our_gpt

pytestmark = pytest.mark.browser

EXAMPLE = model_folder("stories") / "maps.json"
EVIL = '<img src=x onerror="document.title = 1">'


@pytest.fixture
def widget(page: Page, address: str) -> Locator:
    """Open the page and scroll to the maps, which begin with the example."""
    page.goto(f"{address}chapters/watch-it-think/")
    maps = page.locator("[data-live=maps]")
    maps.scroll_into_view_if_needed()
    expect(maps).to_have_attribute("data-state", "ready", timeout=20_000)
    return maps


def weights_of(file: dict[str, Any]) -> torch.Tensor:
    """What the library computes for the tokens of a file, for every head."""
    model, words = our_gpt()
    tokens = [words.vocabulary.index(token) for token in file["tokens"]]
    return torch.cat(record_heads(model, torch.tensor([tokens])).weights)


def put(widget: Locator, content: str, name: str = "mine.json") -> None:
    payload = FilePayload(
        name=name, mimeType="application/json", buffer=content.encode()
    )
    widget.locator("input[type=file]").set_input_files(payload)


def example(**changes: Any) -> str:
    return json.dumps(json.loads(EXAMPLE.read_text("utf-8")) | changes)


def test_the_example_is_what_the_command_writes(tmp_path: Path) -> None:
    out = tmp_path / "maps.json"
    assert main(["heads", str(EXAMPLE.parent), "--out", str(out)]) == 0
    ours, theirs = (json.loads(file.read_text("utf-8")) for file in (out, EXAMPLE))
    assert ours["tokens"] == theirs["tokens"]
    assert ours["model"] == "stories"
    for kind, scores in theirs["scores"].items():
        near = torch.tensor(ours["scores"][kind]) - torch.tensor(scores)
        assert near.abs().max() < 2e-3, kind


def test_the_example_shows_the_weights_of_the_library_cell_by_cell(
    widget: Locator, page: Page
) -> None:
    file = json.loads(EXAMPLE.read_text("utf-8"))
    weights, words = weights_of(file), file["tokens"]
    layer, head = divmod(int(torch.tensor(file["scores"]["subject"]).argmax()), 4)
    expect(widget.locator(".says-head")).to_have_text(f"Head {layer}.{head}")
    shown = pixels(widget)[..., 3].view(9, 48, 48) / 255
    expected = torch.cat([weights.flatten(0, 1), weights[layer, head][None]])
    torch.testing.assert_close(shown, expected, atol=0.0045, rtol=0)
    expect(widget.locator(".count")).to_contain_text("1,024 bytes of cache for each")
    score = file["scores"]["subject"][layer][head]
    expect(widget.locator(".caption")).to_contain_text(f"subject {score:.2f}")
    # By keyboard, and by mouse.
    says = widget.locator(".says")

    def assert_says(query: int, key: int, head: torch.Tensor) -> None:
        start = f"From {words[query]} to {words[key]}: "
        expect(says).to_contain_text(start)
        weight = float(says.inner_text().removeprefix(start))
        assert weight == pytest.approx(head[query, key].item(), abs=0.0075)

    widget.get_by_role("radio").first.focus()
    for step in range(1, 4):
        page.keyboard.press("ArrowRight")
        expect(widget.get_by_role("radio").nth(step)).to_be_checked()
    expect(widget.locator(".says-head")).to_have_text("Head 0.3")
    query, key = (widget.get_by_role("slider", name=name) for name in ("Query", "Key"))
    query.press("Home")
    assert_says(0, 0, weights[0, 3])
    query.press("ArrowRight")
    query.press("ArrowRight")
    key.press("Home")
    key.press("ArrowRight")
    expect(key).to_have_attribute("aria-valuetext", f"1: {words[1]}")
    assert_says(2, 1, weights[0, 3])
    plane = widget.locator(".plane")
    box = plane.bounding_box()
    assert box
    cell = box["width"] / 48
    plane.hover(position={"x": 2.5 * cell, "y": 6.5 * cell})
    assert_says(6, 2, weights[0, 3])
    plane.click(position={"x": 4.5 * cell, "y": 7.5 * cell})
    page.mouse.move(0, 0)
    assert_says(7, 4, weights[0, 3])
    widget.locator("summary").click()
    expect(widget.locator("details tbody tr")).to_have_count(8)


NOT_MAPS = [
    ("no", "it is not JSON"),
    ("null", "tested-transformer heads --out did not write it"),
    (example(version=2), "it is of a version that this page does not know"),
    (example(model=7), "its model, its text or its dtype has no name"),
    (example(tokens=["a", 1]), "its tokens are not 1 to 256 texts"),
    (example(tokens=["a"] * 257), "its tokens are not 1 to 256 texts"),
    (example(tokens=["a"] * 47), "the map of head 0.0 is broken"),
    (example(maps=[]), "its maps are not layers of heads, 8192 at most"),
    (example(maps=[[""] * 8193]), "its maps are not layers of heads"),
    (example(maps=[["%"]]), "the map of head 0.0 is broken"),
    (example(maps=[[["AA=="]]]), "the map of head 0.0 is broken"),
    (example(scores=None), "its scores are not numbers for each head"),
    (example(scores={"same": [[1]]}), "its scores are not numbers for each head"),
    (example(cache_bytes_per_token=-1), "does not say how many bytes its cache"),
]


DROP = """(element, content) => {
  const carried = new DataTransfer();
  carried.items.add(new File([content], "dropped.json"));
  for (const type of ["dragover", "drop"]) {
    element.dispatchEvent(
      new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true }));
  }
}"""


def test_a_file_is_chosen_or_dropped_and_what_is_none_changes_nothing(
    widget: Locator, page: Page, tmp_path: Path
) -> None:
    before, status = pixels(widget), widget.locator(".status")
    for number, (content, message) in enumerate(NOT_MAPS):
        put(widget, content, f"{number}.json")
        expect(status).to_contain_text(f"{number}.json: not a file of maps")
        expect(status).to_contain_text(message)
        expect(widget).to_have_attribute("data-state", "failed")
    widget.evaluate(f"(element) => ({DROP})(element, ' '.repeat(16_000_001))")
    expect(status).to_contain_text("dropped.json: not a file of maps")
    expect(status).to_contain_text("it has more than 16 MB")
    assert pixels(widget).equal(before)
    widget.get_by_role("button", name="Show the example").click()
    expect(widget).to_have_attribute("data-state", "ready")
    expect(status).to_have_text("")
    file = tmp_path / "chosen.json"
    file.write_text(example(model="chosen"))
    with page.expect_file_chooser() as chooser:
        widget.get_by_role("button", name="Open a file of maps").press("Enter")
    chooser.value.set_files(file)
    expect(widget.locator(".count")).to_contain_text("chosen: 2 layers, 8 heads")
    widget.evaluate(DROP, example(model="dropped"))
    expect(widget.locator(".count")).to_contain_text("dropped: 2 layers, 8 heads")


def test_text_stays_text(widget: Locator, page: Page, complaints: list[str]) -> None:
    title = page.title()
    scores = json.loads(EXAMPLE.read_text("utf-8"))["scores"]
    content = example(
        model=EVIL,
        text=EVIL,
        dtype=EVIL,
        tokens=[EVIL] * 48,
        scores={EVIL: scores["same"], "__proto__": scores["same"]},
    )
    put(widget, content, name=f"{EVIL}.json")
    expect(widget.locator(".count")).to_contain_text(EVIL)
    widget.locator("summary").click()
    put(widget, "no", name=f"{EVIL}.json")
    expect(widget.locator(".status")).to_contain_text(EVIL)
    assert widget.locator("img").count() == 0
    assert page.title() == title
    assert complaints == []


def test_many_heads_fit_and_are_read_by_everyone(widget: Locator, page: Page) -> None:
    assert_room(widget)
    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(color_scheme="dark")
    assert_room(widget)
    assert_accessible(page, "maps")
    file = json.loads(EXAMPLE.read_text("utf-8"))
    # As many as SmolLM2-135M has, and one layer has fewer.
    maps = [[file["maps"][0][0]] * (9 if layer else 5) for layer in range(30)]
    scores = {"previous": [[0.5] * 9] * 30}
    put(widget, example(model="many", maps=maps, scores=scores))
    expect(widget.locator(".count")).to_contain_text("many: 30 layers, 266 heads")
    assert widget.evaluate("e => e.scrollWidth - e.clientWidth") == 0
    radios = widget.get_by_role("radio")
    assert radios.count() == 266
    first, below = (radios.nth(at).locator("..").bounding_box() for at in (0, 5))
    assert first
    assert below
    assert first["x"] == below["x"]
    assert first["width"] >= 24
    # The rest is as it was, and Axe looks at each head for a while.
    assert_accessible(page, "maps", "scrollable-region-focusable")
