"""What a reader would type, and the page that has to be among the first three."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

# Functions, arguments, errors and symptoms, other names of things, symbols.
WANTED = {
    "causal_mask": "reference/masks/",
    "attention_with_weights": "reference/attention/",
    "GPTConfig": "reference/gpt/",
    "generate": "reference/generation/",
    "nn.MultiheadAttention": "chapters/nn-multiheadattention/",
    "is_causal": "chapters/nn-multiheadattention/",
    "key_padding_mask": "chapters/padding/",
    "True = ignore": "chapters/padding/",
    "NaN in attention": "chapters/padding/",
    "attn_mask": "chapters/padding/",
    "leak": "chapters/no-peeking/",
    "kv cache": "chapters/the-cache/",
    "RoPE": "glossary/",
    "GQA": "chapters/fewer-keys/",
    "top-p": "chapters/sampling/",
    "W_O": "chapters/many-heads/",
    "d_k": "chapters/many-heads/",
}

FIRST = """() => [...document.querySelectorAll(".md-search-result__item")].slice(0, 3)
  .map((item) => new URL(item.querySelector("a").href).pathname.slice(1))"""


def ask(page: Page, query: str) -> str:
    """Search for a query; return what is said of how much was found."""
    says = page.locator(".md-search-result__meta")
    page.keyboard.press("Control+a")
    page.keyboard.press("Backspace")
    expect(says).to_have_text("Type to start searching", timeout=60_000)
    # At one stroke, for the theme looks at each: what counts is the whole of it.
    page.keyboard.insert_text(query)
    page.keyboard.press("End")
    expect(says).to_contain_text("matching", timeout=30_000)
    return says.inner_text()


@pytest.mark.browser
def test_search_finds_what_readers_type(page: Page, address: str) -> None:
    index: list[str] = []
    page.on("request", lambda r: index.append(r.url) if "search_index" in r.url else 0)
    page.goto(address)
    page.wait_for_function("() => window.component$")
    assert not index, "the index comes when a reader turns to the search"
    page.locator(".md-search__input").click()
    dialog = page.locator(".md-search[role=dialog]")
    expect(dialog).to_have_attribute("aria-label", "Search")
    missed: list[tuple[str, list[str]]] = []
    for query, wanted in WANTED.items():
        ask(page, query)
        page.locator(".md-search-result__item").first.wait_for()
        found: list[str] = page.evaluate(FIRST)
        if wanted not in found:
            missed.append((query, found))
    assert missed == []
    assert index
    # A little word is not taken for the beginning of another, but for the last.
    assert ask(page, "shift of the museum") == ask(page, "shift museum")
    assert ask(page, "museum of") != ask(page, "museum")


def test_search_reads_neither_formulas_nor_pictures(built: Path) -> None:
    index = json.loads((built / "search" / "search_index.json").read_text("utf-8"))
    texts = [entry["title"] + entry["text"] for entry in index["docs"]]
    assert any("attention" in text for text in texts)
    prose = [re.sub("<code>.*?</code>", "", text, flags=re.DOTALL) for text in texts]
    assert not [text for text in prose if "\\" in text]
    assert not [text for text in texts if "<path" in text or "katex" in text]
