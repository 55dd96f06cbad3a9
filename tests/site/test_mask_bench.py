"""The bench of masks: equal to PyTorch, by mouse and by keyboard, without scripts."""

import json
import subprocess
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from bookbinder.drawing.katex import node
from tested_transformer import (
    attention_with_weights,
    causal_mask,
    sliding_window_mask,
)
from tested_transformer.book import JAVASCRIPT

SCRIPT = json.dumps((JAVASCRIPT / "masked-attention.js").as_uri())
ATTEND = f"""
import {{ attend, MASKS, moved }} from {SCRIPT};
import {{ readFileSync }} from "node:fs";
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({{
  masks: Object.fromEntries(
    Object.entries(MASKS).map(([name, rule]) => [name, rule(5)])),
  answers: cases.map(({{ q, k, v, mask, other }}) => (
    {{ ...attend(q, k, v, mask), moved: moved({{ q, k, v }}, other, mask) }})),
}}));
"""


def computed(cases: list[dict[str, Any]]) -> dict[str, Any]:
    done = subprocess.run(
        [node(), "--input-type=module", "--eval", ATTEND],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_attention_under_a_mask_is_that_of_the_library() -> None:
    torch.manual_seed(0)
    double = torch.float64
    cases: list[dict[str, Any]] = []
    wanted: list[tuple[torch.Tensor, ...]] = []
    for _ in range(100):
        size, width, features = torch.randint(2, 8, (3,)).tolist()
        q, k = torch.randn(2, size, width, dtype=double)
        v = torch.randn(size, features, dtype=double)
        mask = torch.rand(size, size) < torch.rand(())
        mask[0] &= bool(torch.rand(()) < 0.7)  # sometimes a row is left with nothing
        other = [row.clone() for row in (q, k, v)]
        for row in other:
            row[-1] = torch.randn_like(row[-1])
        output, weights = attention_with_weights(q, k, v, mask=mask)
        change = attention_with_weights(*other, mask=mask)[0] - output
        wanted.append((output, weights, change.abs().amax(dim=-1)))
        last = dict(zip("qkv", (row[-1].tolist() for row in other), strict=True))
        tensors = {"q": q, "k": k, "v": v, "mask": mask}
        cases.append(
            {name: x.tolist() for name, x in tensors.items()} | {"other": last}
        )
    answers = computed(cases)["answers"]
    for answer, expected in zip(answers, wanted, strict=True):
        for name, tensor in zip(("output", "weights", "moved"), expected, strict=True):
            got = torch.tensor(answer[name], dtype=double)
            torch.testing.assert_close(got, tensor)


def test_masks_to_begin_with_are_those_of_the_library() -> None:
    masks = computed([])["masks"]
    for name, mask in {
        "causal": causal_mask(5),
        "inverted": ~causal_mask(5),
        "window of 2": sliding_window_mask(5, window=2),
    }.items():
        assert masks[name] == mask.tolist()


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
    bench.get_by_role("button", name="inverted").click()
    expect(says).to_contain_text("the outputs of The, cat, sat, on move too")
    expect(bench.locator(".note").last).to_have_text("nothing: zeros")
    bench.get_by_role("button", name="causal", exact=True).click()
    cell = bench.get_by_role("button", name="The may attend to mats")
    cell.focus()
    page.keyboard.press("Enter")
    expect(cell).to_have_attribute("aria-pressed", "true")
    expect(says).to_contain_text("the outputs of The move too")
    page.keyboard.press("Space")
    expect(says).to_contain_text("no earlier output moves")
    bench.get_by_label("read True as ignore").check()
    expect(says).to_contain_text("they see the future")
    assert complaints == []


@pytest.mark.browser
def test_without_scripts_a_sentence_stands_there(
    browser: Browser, address: str
) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(address)
    bench = page.locator('[data-live="mask-bench"]')
    expect(bench).to_contain_text("Where scripts are allowed")
    page.close()
