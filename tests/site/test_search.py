"""What a reader would type, and the page that has to be among the first three."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

# Functions, arguments, errors and symptoms, other names of things, symbols.
WANTED = {
    "causal_mask": "reference/masks/",
    "scaled_dot_product_attention": "reference/attention/",
    "GPTConfig": "reference/gpt/",
    "generate": "reference/generation/",
    "nn.MultiheadAttention": "chapters/12-nn-multiheadattention/",
    "is_causal": "chapters/12-nn-multiheadattention/",
    "key_padding_mask": "chapters/07-padding/",
    "True = ignore": "chapters/07-padding/",
    "NaN in attention": "chapters/07-padding/",
    "attn_mask": "chapters/07-padding/",
    "leak": "chapters/06-no-peeking/",
    "kv cache": "chapters/17-the-cache/",
    "RoPE": "glossary/",
    "GQA": "chapters/18-fewer-keys/",
    "top-p": "chapters/19-sampling/",
    "W_O": "chapters/04-many-heads/",
    "d_k": "chapters/04-many-heads/",
}

FIRST = """() => [...document.querySelectorAll(".md-search-result__item")].slice(0, 3)
  .map((item) => new URL(item.querySelector("a").href).pathname.slice(1))"""


@pytest.fixture(scope="module")
def search(address: str, browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.locator(".md-search__input").click()
    yield page
    page.close()


def ask(search: Page, query: str) -> str:
    """Search for a query; give what is said of how much was found."""
    says = search.locator(".md-search-result__meta")
    search.keyboard.press("Control+a")
    search.keyboard.press("Backspace")
    expect(says).to_have_text("Type to start searching", timeout=60_000)
    # At one stroke, for the theme looks at each: what counts is the whole of it.
    search.keyboard.insert_text(query)
    search.keyboard.press("End")
    expect(says).to_contain_text("matching", timeout=30_000)
    return says.inner_text()


@pytest.mark.parametrize("query", WANTED)
def test_search_finds(query: str, search: Page) -> None:
    ask(search, query)
    search.locator(".md-search-result__item").first.wait_for()
    found: list[str] = search.evaluate(FIRST)
    assert WANTED[query] in found[: 1 if query == "NaN in attention" else 3]


def test_a_little_word_is_not_taken_for_the_beginning_of_another(search: Page) -> None:
    assert ask(search, "shift of the museum") == ask(search, "shift museum")
    # The last may still be one.
    assert ask(search, "museum of") != ask(search, "museum")
