"""Writing with another cache, against the same cache used by hand."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.attentions import DeltaRule, Latent
from tested_transformer.caches import (
    quantized_cache,
    rolling_cache,
    share_in_use,
    stream_logits,
)
from tested_transformer.decoding import Sampling, generate
from tested_transformer.decoding.cache_readers import (
    CACHES,
    PagedReader,
    RollingReader,
    reader_with,
)
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: vocabulary, longest sequence, heads, head width, layers.
V, LONGEST, H, D_K, L = 13, 47, 3, 4, 2
SMALL = GPTConfig(
    vocab_size=V,
    max_seq_len=LONGEST,
    d_model=H * D_K,
    num_heads=H,
    num_layers=L,
    positions="rotary",
)
# One is in the middle of a group of 32 tokens, one beyond it, one fills the cache.
PROMPTS = [[1, 2, 3], [n % V for n in range(37)], [n * n % V for n in range(LONGEST)]]


def make(**changes: Any) -> GPT:
    torch.manual_seed(0)
    model = with_large_weights(GPT(replace(SMALL, **changes)).double(), 0.7)
    return model.eval().requires_grad_(False)


GREEDY = Sampling(temperature=0.0)


def written(model: GPT, cache: str, prompts: list[list[int]], number: int) -> Any:
    reader = reader_with(cache, model)
    return generate(reader, prompts, max_new_tokens=number, sampling=GREEDY)


@pytest.mark.parametrize("positions", ["rotary", "alibi"])
def test_a_rolling_cache_writes_on_beyond_the_context(positions):
    model, number = make(positions=positions, max_seq_len=11), 15
    prompts = [prompt[:16] for prompt in PROMPTS]  # two of them longer than the cache
    answers = written(model, "rolling", prompts, number)
    for prompt, answer in zip(prompts, answers, strict=True):
        text = torch.tensor([[*prompt, *answer]])
        cache = rolling_cache(model, sinks=4, window=11 - 4)
        expected = stream_logits(model, text, cache)[0].argmax(dim=-1).tolist()
        assert answer == expected[len(prompt) - 1 : -1]
    usual = generate(model, prompts[:1], max_new_tokens=number, sampling=GREEDY)[0]
    assert answers[0][: 11 - 3] == usual[: 11 - 3]
    assert answers[0] != usual  # which has read the last half of its context anew


def test_pages_hold_what_one_piece_does():
    """Beyond the context too, and for unlike lengths side by side."""
    model = make()
    for how in ({"sampling": GREEDY}, {"seed": 5}):
        usual = generate(model, PROMPTS, max_new_tokens=20, **how)
        reader = reader_with("paged", model)
        assert generate(reader, PROMPTS, max_new_tokens=20, **how) == usual


def test_pages_of_a_prompt_are_shared_until_a_row_writes_into_them():
    model, size, lengths = make(), 5, list[int]()
    model.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].numel()))
    reader = PagedReader(model, page_size=size)
    prompt, short = [n % V for n in range(13)], [1, 2]
    reader.read([prompt, short, prompt, prompt])
    assert lengths == [13, 2]  # the same prompt is read once
    tables = [cache.table for cache in reader.caches]
    assert tables == [[0, 1, 2], [3], [0, 1, 2], [0, 1, 2]]
    assert share_in_use(reader.caches) == pytest.approx((13 + 2) / (4 * size))
    reader.step(torch.tensor([3, 4, 5, 6]))
    tables = [cache.table for cache in reader.caches]
    assert [table[:2] for table in tables] == [[0, 1], [3], [0, 1], [0, 1]]
    assert len({table[2] for table in tables if len(table) > 2}) == 3
    # Two full pages are shared; each copy of the third holds four tokens.
    pool = reader.caches[0].pool
    assert len(pool.users) - pool.num_free == 2 + 3 + 1
    assert share_in_use(reader.caches) == pytest.approx((10 + 3 * 4 + 3) / (6 * size))


def test_a_small_context_has_room_for_the_newest_token():
    for longest, sinks in ((9, 4), (5, 4), (4, 3), (1, 0)):
        model = make(max_seq_len=longest)
        assert RollingReader(model).sinks == sinks
        assert RollingReader(model, sinks=2).sinks == min(sinks, 2)
        assert len(written(model, "rolling", [[1, 2, 3]], 7)[0]) == 7


def test_a_cache_of_few_bits_is_the_one_of_its_chapter():
    model, prompts = make(), [*PROMPTS[:2], [7, 5, 6]]  # two of one length
    for bits in (8, 4):
        answers = written(model, f"int{bits}", prompts, 9)
        for prompt, answer in zip(prompts, answers, strict=True):
            cache, tokens = quantized_cache(model, bits=bits), prompt
            for token in answer:
                logits = model(torch.tensor([tokens]), cache=cache)[0, -1]
                assert int(logits.argmax()) == token
                tokens = [token]
    exact = model(torch.tensor([PROMPTS[1]]))[:, -1]
    eight, four = (
        (reader_with(cache, model).read([PROMPTS[1]]) - exact).abs().max()
        for cache in ("int8", "int4")
    )
    assert 0 < 4 * eight < four


@pytest.mark.parametrize(
    ("cache", "changes", "message"),
    [
        ("all", {}, f"cache='all' must be one of {', '.join(CACHES)}"),
        ("rolling", {"positions": "learned"}, "positions='learned' of model must be"),
        ("rolling", {"attention": Latent()}, "Latent(latent_dim=None) of model does"),
        ("int8", {"attention": Latent()}, "Latent(latent_dim=None) of model caches no"),
        ("int4", {"d_model": 15, "positions": "none"}, "head_dim=5 of model must be "),
        (
            "paged",
            {"attention": DeltaRule(), "softmax_every": 2},
            "every layer must keep keys and values in a DenseCache",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_at_once(cache, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        reader_with(cache, GPT(replace(SMALL, **changes)))
    known = cache in CACHES
    hint = f"cache={cache!r} does not fit this model: leave out cache"
    assert getattr(caught.value, "__notes__", []) == [hint] * known
