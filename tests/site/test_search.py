"""What a reader would type, and the page that has to come first."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bookbinder.drawing.katex import node
from bookbinder.publishing.search import shorten

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
    "sliding window attention": "which-attention/",
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
    # What a newcomer tried.
    "rotary embedding": "chapters/order/",
    "nan in attention": "in-depth/nan-and-empty-rows/",
    "why sqrt d_k": "chapters/square-root/",
    "attention sink": "chapters/other-softmaxes/",
    "layernorm pre or post": "chapters/blocks/",
    "deepseek mla": "chapters/smaller/",
    "how to train gpt from scratch": "chapters/a-gpt-in-twenty-minutes/",
    "cross attention padding mask": "which-attention/",
    "sliding window": "which-attention/",
    "my model sees the future": "chapters/no-peeking/",
    "rope code": "recipes/",
    "colab": "hosting/",
    "download pdf": "hosting/",
    "cite": "cite/",
    # Tasks and symptoms.
    "which attention should I call": "which-attention/",
    "MultiheadAttention example": "recipes/",
    "copy paste attention code": "recipes/",
    "loss too low": "chapters/no-peeking/",
    "model repeats itself": "chapters/sampling/",
    "output is nan": "in-depth/nan-and-empty-rows/",
    "all rows masked": "in-depth/nan-and-empty-rows/",
    "wrong mask convention": "chapters/padding/",
    "my attention is wrong": "chapters/is-your-attention-right/",
    "attention test": "chapters/is-your-attention-right/",
    "view reshape transpose bug": "chapters/shapes-that-lie/",
    "cuda out of memory": "chapters/fast-paths/",
    "long context": "chapters/longer/",
    "byte pair encoding": "in-depth/sub-word-tokens/",
    "pre-norm": "chapters/blocks/",
    "swiglu": "chapters/blocks/",
    "train a language model": "chapters/a-gpt-in-twenty-minutes/",
}

# With a slip in its longest word, each finds the same page first.
MEANT = [
    "attention",
    "transformer",
    "flashattention",
    "flexattention",
    "softmax temperature",
    "multi head attention",
    "causal mask",
    "positional encoding",
    "encoder",
    "layernorm",
    "key_padding_mask",
    "grouped query attention",
    "speculative decoding",
    "residual",
    "perplexity",
    "embedding",
]


def slips(query: str) -> list[str]:
    """Leave out, double and replace a letter in the midst, and swap two."""
    word = max(query.split(), key=len)
    at = len(word) // 2
    before, (one, two), after = word[:at], word[at : at + 2], word[at + 2 :]
    middles = (two, one + one + two, "x" + two, two + one)
    return [query.replace(word, before + middle + after) for middle in middles]


SLIPS = {slip: meant for meant in MEANT for slip in slips(meant)}
# Pages of calls to copy are near the top where a call is what a reader wants.
CALLS = {
    "cross attention padding mask": ["which-attention/", "recipes/"],
    "cross attention pytorch": ["which-attention/", "recipes/"],
}


@pytest.fixture(scope="module")
def found(built: Path) -> dict[str, list[str]]:
    """Ask the worker of the built site each query; return the pages it found."""
    queries = [*WANTED, *SLIPS, *SLIPS.values(), *CALLS, "masked_fill", "qkv_proj"]
    queries += ["shift of the museum", "shift museum", "museum of", "museum"]
    answers = subprocess.run(
        [node(), str(Path(__file__).with_name("searching.js")), str(built)],
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        check=True,
    )
    pages: dict[str, list[str]] = json.loads(answers.stdout)
    return pages


def test_the_page_that_a_reader_wants_comes_first(found: dict[str, list[str]]) -> None:
    missed = {
        query: found[query][:3]
        for query, wanted in WANTED.items()
        if found[query][:1] != [wanted]
    }
    assert missed == {}
    for query, pages in CALLS.items():
        assert {*pages} <= {*found[query][:8]}, query


def test_a_slip_finds_what_was_meant(found: dict[str, list[str]]) -> None:
    missed = {
        slip: found[slip][:3]
        for slip, meant in SLIPS.items()
        if not found[slip] or found[slip][:1] != found[meant][:1]
    }
    assert missed == {}


def test_little_words_are_not_looked_for(found: dict[str, list[str]]) -> None:
    """A little word is not taken for the beginning of another, but for the last."""
    assert found["shift of the museum"] == found["shift museum"]
    assert found["museum of"] != found["museum"]


def test_code_is_found_by_its_words_and_not_shown() -> None:
    section = {
        "text": "<p>Fill it.</p> <pre><code>fill(mask_of(x), fill)\n</code></pre>"
    }
    shorten(section)
    assert section == {"text": "<p>Fill it.</p> ", "code": "mask_of"}


def hold(page: Page, query: str) -> None:
    """Turn to the search and type a query while the index has not come."""
    page.locator(".md-search__input").click()
    page.keyboard.insert_text(query)
    page.keyboard.press("End")


@pytest.mark.browser
def test_enter_leads_on_as_soon_as_there_is_an_answer(page: Page, address: str) -> None:
    index: list[str] = []
    page.on("request", lambda r: index.append(r.url) if "search_index" in r.url else 0)
    page.goto(address)
    page.wait_for_function("() => window.component$")
    assert not index, "the index comes when a reader turns to the search"
    hold(page, "kv cacche")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapters/the-cache/?h=*", timeout=60_000)
    assert index


@pytest.mark.browser
def test_titles_answer_before_texts_and_texts_follow(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function("() => window.component$")
    dialog = page.locator(".md-search[role=dialog]")
    expect(dialog).to_have_attribute("aria-label", "Search")
    hold(page, "speculative decoding")
    first = page.locator(".md-search-result__item").first
    first.wait_for(timeout=60_000)
    expect(first.locator("mark").first).to_be_visible()
    # Only the texts hold a sentence.
    expect(first.locator("article p", has_text="draft").first).to_be_attached()
    expect(page.locator(".md-search-result pre")).to_have_count(0)


def test_search_reads_neither_formulas_nor_pictures(built: Path) -> None:
    index = json.loads((built / "search" / "search_index.json").read_text("utf-8"))
    texts = [entry["title"] + entry["text"] for entry in index["docs"]]
    assert any("attention" in text for text in texts)
    prose = [re.sub("<code>.*?</code>", "", text, flags=re.DOTALL) for text in texts]
    assert not [text for text in prose if "\\" in text]
    assert not [text for text in texts if "<path" in text or "katex" in text]
