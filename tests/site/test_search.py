"""What a reader would type, and the page that has to come first."""

import json
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

# Functions, arguments, errors and symptoms, subjects, other names of things.
WANTED = {
    "causal_mask": "reference/masks/",
    "attention_with_weights": "reference/attention/",
    "GPTConfig": "reference/config/",
    "generate": "reference/decoding/",
    "nn.MultiheadAttention": "chapters/nn-multiheadattention/",
    "is_causal": "chapters/nn-multiheadattention/",
    "batch_first": "chapters/nn-multiheadattention/",
    "need_weights": "chapters/nn-multiheadattention/",
    "key_padding_mask": "chapters/padding/",
    "True = ignore": "chapters/padding/",
    "attn_mask": "chapters/padding/",
    "nan": "in-depth/nan-and-empty-rows/",
    "NaN in attention": "in-depth/nan-and-empty-rows/",
    "padding mask": "chapters/padding/",
    "inverted mask": "chapters/padding/",
    "leak": "chapters/no-peeking/",
    "causal mask": "chapters/no-peeking/",
    "look-ahead mask": "chapters/no-peeking/",
    "honest loss": "chapters/no-peeking/",
    "kv cache": "chapters/the-cache/",
    "past_key_values": "chapters/the-cache/",
    "prefill": "chapters/the-cache/",
    "rope": "chapters/order/",
    "RoPE": "chapters/order/",
    "alibi": "chapters/order/",
    "positional encoding": "chapters/order/",
    "rotary": "chapters/order/",
    "GQA": "chapters/fewer-keys/",
    "grouped query attention": "chapters/fewer-keys/",
    "multi-query attention": "chapters/fewer-keys/",
    "enable_gqa": "chapters/fewer-keys/",
    "YaRN": "chapters/longer/",
    "attention sinks": "chapters/longer/",
    "context extension": "chapters/longer/",
    "flash attention": "chapters/fast-paths/",
    "FlexAttention": "chapters/fast-paths/",
    "scaled_dot_product_attention": "chapters/fast-paths/",
    "online softmax": "chapters/fast-paths/",
    "how many heads": "chapters/many-heads/",
    "multi-head attention": "chapters/many-heads/",
    "output projection": "chapters/many-heads/",
    "layernorm": "chapters/blocks/",
    "RMSNorm": "chapters/blocks/",
    "residual": "chapters/blocks/",
    "feed-forward": "chapters/blocks/",
    "mixture of experts": "chapters/experts/",
    "MoE": "chapters/experts/",
    "temperature": "chapters/sampling/",
    "top-p": "chapters/sampling/",
    "nucleus sampling": "chapters/sampling/",
    "greedy decoding": "chapters/sampling/",
    "cross attention": "chapters/cross-attention/",
    "encoder-decoder": "chapters/encoder-and-decoder/",
    "translation": "chapters/encoder-and-decoder/",
    "learning rate": "chapters/training/",
    "overfitting": "chapters/training/",
    "bfloat16": "chapters/training/",
    "FSDP": "chapters/training/",
    "induction head": "in-depth/induction/",
    "ablation": "chapters/what-heads-do/",
    "head pruning": "chapters/pruning/",
    "attention visualization": "chapters/watch-it-think/",
    "JAX": "chapters/five-implementations/",
    "check_attention": "chapters/is-your-attention-right/",
    "debug attention": "chapters/is-your-attention-right/",
    "common mistakes": "chapters/the-bug-museum/",
    "query key value": "chapters/attention-by-hand/",
    "self-attention": "chapters/attention-by-hand/",
    "sqrt d_k": "chapters/square-root/",
    "scaling factor": "chapters/square-root/",
    "softmax": "chapters/a-lookup-that-blurs/",
    "tokenizer": "chapters/mini-gpt/",
    "GPT-2": "chapters/mini-gpt/",
    "GPT from scratch": "chapters/microgpt/",
    "install": "",
    "snippets": "recipes/",
    "how to mask padding": "chapters/padding/",
    "attention is slow": "chapters/fast-paths/",
    "out of memory": "chapters/fast-paths/",
    "torch.compile": "chapters/fast-paths/",
    "dropout": "chapters/fast-paths/",
    "sliding window attention": "chapters/longer/",
    "beam search": "chapters/sampling/",
    "repetition": "chapters/sampling/",
    "sinusoidal": "chapters/order/",
    "learned positional embeddings": "chapters/order/",
    "perplexity": "chapters/training/",
    "train on my own text": "chapters/a-gpt-in-twenty-minutes/",
    "loss goes down but output is wrong": "chapters/shapes-that-lie/",
    "load gpt2 weights": "reference/checkpoints/",
    "number of parameters": "chapters/mini-gpt/",
    "weight tying": "chapters/mini-gpt/",
    "multi-head latent attention": "chapters/smaller/",
    "paged attention": "chapters/smaller/",
    "MHA vs GQA": "chapters/fewer-keys/",
    "speculative decoding": "chapters/several-tokens/",
    "linear attention": "chapters/without-the-softmax/",
    "mamba": "chapters/without-the-softmax/",
    "sparse attention": "chapters/other-softmaxes/",
    "activation patching": "chapters/what-heads-do/",
    "teacher forcing": "chapters/encoder-and-decoder/",
    "test my attention layer": "chapters/is-your-attention-right/",
    "flops": "counting/",
    "symbols": "notation/",
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
    # Every query takes a while: on each change, every fourth.
    asked = [*WANTED.items()][:: 1 if os.environ.get("BOOK_NIGHTLY") else 4]
    for query, wanted in asked:
        ask(page, query)
        page.locator(".md-search-result__item").first.wait_for()
        found: list[str] = page.evaluate(FIRST)
        if found[:1] != [wanted]:
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
