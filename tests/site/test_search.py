"""What a reader would type, and the page that has to come first."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from bookbinder.drawing.katex import node
from bookbinder.publishing.search import shorten

# What a reader would type: functions, arguments, errors, symptoms, tasks, subjects and
# other names of things, by the page that has to come first.
QUERIES_OF = {
    "reference/masks/": "causal_mask",
    "reference/attention/": "attention_with_weights",
    "reference/config/": "GPTConfig",
    "reference/decoding/": "generate",
    "chapters/nn-multiheadattention/": (
        "nn.MultiheadAttention; is_causal; batch_first; need_weights"
    ),
    "chapters/padding/": (
        "key_padding_mask; True = ignore; attn_mask; padding mask; inverted mask; how "
        "to mask padding; wrong mask convention"
    ),
    "in-depth/nan-and-empty-rows/": (
        "nan; NaN in attention; nan in attention; output is nan; all rows masked"
    ),
    "chapters/no-peeking/": (
        "leak; causal mask; look-ahead mask; honest loss; my model sees the future; "
        "loss too low"
    ),
    "chapters/the-cache/": "kv cache; past_key_values; prefill",
    "chapters/order/": (
        "rope; RoPE; alibi; positional encoding; rotary; sinusoidal; learned "
        "positional embeddings; rotary embedding"
    ),
    "chapters/fewer-keys/": (
        "GQA; grouped query attention; multi-query attention; enable_gqa; MHA vs GQA"
    ),
    "chapters/longer/": "YaRN; attention sinks; context extension; long context",
    "chapters/fast-paths/": (
        "flash attention; FlexAttention; scaled_dot_product_attention; online "
        "softmax; attention is slow; out of memory; torch.compile; dropout; cuda out "
        "of memory"
    ),
    "chapters/many-heads/": "how many heads; multi-head attention; output projection",
    "chapters/blocks/": (
        "layernorm; RMSNorm; residual; feed-forward; layernorm pre or post; pre-norm; "
        "swiglu"
    ),
    "chapters/experts/": "mixture of experts; MoE",
    "chapters/sampling/": (
        "temperature; top-p; nucleus sampling; greedy decoding; beam search; "
        "repetition; model repeats itself"
    ),
    "chapters/cross-attention/": "cross attention",
    "chapters/encoder-and-decoder/": "encoder-decoder; translation; teacher forcing",
    "chapters/training/": "learning rate; overfitting; bfloat16; FSDP; perplexity",
    "chapters/induction/": "induction head",
    "chapters/what-heads-do/": "ablation; activation patching",
    "chapters/pruning/": "head pruning",
    "chapters/watch-it-think/": "attention visualization",
    "chapters/five-implementations/": "JAX",
    "chapters/is-your-attention-right/": (
        "check_attention; debug attention; test my attention layer; my attention is "
        "wrong; attention test"
    ),
    "chapters/the-bug-museum/": "common mistakes",
    "chapters/attention-by-hand/": "query key value; self-attention",
    "chapters/square-root/": "sqrt d_k; scaling factor; why sqrt d_k",
    "chapters/a-lookup-that-blurs/": "softmax",
    "chapters/mini-gpt/": "tokenizer; GPT-2; number of parameters; weight tying",
    "chapters/microgpt/": "GPT from scratch",
    "": "install",
    "recipes/": (
        "snippets; rope code; MultiheadAttention example; copy paste attention code"
    ),
    "which-attention/": (
        "sliding window attention; cross attention padding mask; sliding window; "
        "which attention should I call"
    ),
    "chapters/a-gpt-in-twenty-minutes/": (
        "train on my own text; how to train gpt from scratch; train a language model"
    ),
    "chapters/shapes-that-lie/": (
        "loss goes down but output is wrong; view reshape transpose bug"
    ),
    "reference/checkpoints/": "load gpt2 weights",
    "chapters/smaller/": "multi-head latent attention; paged attention; deepseek mla",
    "chapters/several-tokens/": "speculative decoding",
    "chapters/without-the-softmax/": "linear attention; mamba",
    "chapters/other-softmaxes/": "sparse attention; attention sink",
    "counting/": "flops",
    "notation/": "symbols",
    "hosting/": "colab; download pdf",
    "cite/": "cite",
    "in-depth/sub-word-tokens/": "byte pair encoding",
}
QUERIES = {q: page for page, text in QUERIES_OF.items() for q in text.split("; ")}

# With a slip in its longest word, each finds the same page first.
MEANT = (
    *("attention", "transformer", "flashattention", "flexattention", "layernorm"),
    *("softmax temperature", "multi head attention", "causal mask", "encoder"),
    *("positional encoding", "key_padding_mask", "grouped query attention"),
    *("speculative decoding", "residual", "perplexity", "embedding"),
)


def slips(number: int, query: str) -> list[str]:
    """Leave out, double or replace a letter in the midst, or swap two: two of these."""
    word = max(query.split(), key=len)
    at = len(word) // 2
    before, (one, two), after = word[:at], word[at : at + 2], word[at + 2 :]
    middles = (two, one + one + two, "x" + two, two + one)
    two_of_them = (middles[number % 4], middles[(number + 1) % 4])
    return [query.replace(word, before + middle + after) for middle in two_of_them]


SLIPS = {slip: meant for n, meant in enumerate(MEANT) for slip in slips(n, meant)}
# Pages of calls to copy are near the top where a call is what a reader wants.
CALLS = ("cross attention padding mask", "cross attention pytorch")


@pytest.fixture(scope="module")
def ranked(built: Path) -> dict[str, list[str]]:
    """Ask the worker of the built site each query; return the pages it ranked."""
    queries = [*QUERIES, *SLIPS, *SLIPS.values(), *CALLS, "masked_fill", "qkv_proj"]
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


def test_the_page_that_a_reader_wants_comes_first(ranked: dict[str, list[str]]) -> None:
    missed = {
        query: ranked[query][:3]
        for query, page in QUERIES.items()
        if ranked[query][:1] != [page]
    }
    assert missed == {}
    for query in CALLS:
        assert {"which-attention/", "recipes/"} <= {*ranked[query][:8]}, query


def test_a_slip_finds_what_was_meant(ranked: dict[str, list[str]]) -> None:
    missed = {
        slip: ranked[slip][:3]
        for slip, meant in SLIPS.items()
        if not ranked[slip] or ranked[slip][:1] != ranked[meant][:1]
    }
    assert missed == {}


def test_little_words_are_not_looked_for(ranked: dict[str, list[str]]) -> None:
    """A little word is not taken for the beginning of another, but for the last."""
    assert ranked["shift of the museum"] == ranked["shift museum"]
    assert ranked["museum of"] != ranked["museum"]


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
    sentence = first.locator("article p", has_text="draft").first
    expect(sentence).to_be_attached(timeout=60_000)
    expect(page.locator(".md-search-result pre")).to_have_count(0)


def test_search_reads_neither_formulas_nor_pictures(built: Path) -> None:
    index = json.loads((built / "search" / "search_index.json").read_text("utf-8"))
    texts = [entry["title"] + entry["text"] for entry in index["docs"]]
    assert any("attention" in text for text in texts)
    prose = [re.sub("<code>.*?</code>", "", text, flags=re.DOTALL) for text in texts]
    assert not [text for text in prose if "\\" in text]
    assert not [text for text in texts if "<path" in text or "katex" in text]
