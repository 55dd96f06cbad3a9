"""Writing with another cache, against the same cache used by hand."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from tested_transformer.attentions import ChosenBlocks, DeltaRule, Latent
from tested_transformer.caches import (
    quantized_cache,
    rolling_cache,
    share_in_use,
    stream_logits,
)
from tested_transformer.decoding import Sampling, generate, stream
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
    """Make a model with weights large enough for it to have an opinion."""
    torch.manual_seed(0)
    model = GPT(replace(SMALL, **changes), dtype=torch.float64)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return model.eval().requires_grad_(False)


def written(model: GPT, cache: str, prompts: list[list[int]], number: int) -> Any:
    greedy = Sampling(temperature=0.0)
    steps = stream(
        reader_with(cache, model),
        prompts,
        max_new_tokens=number,
        sampling=greedy,
    )
    rows = zip(*steps, strict=True)
    return [[token for tokens in row for token in tokens] for row in rows]


@pytest.mark.parametrize("positions", ["rotary", "alibi", "none"])
def test_a_rolling_cache_writes_on_beyond_the_context(positions: str) -> None:
    model, number = make(positions=positions), 60
    answers = written(model, "rolling", PROMPTS, number)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        text = [*prompt, *answer]
        cache = rolling_cache(model, sinks=4, window=LONGEST - 4)
        logits = stream_logits(model, torch.tensor([text]), cache)[0]
        wanted = logits.argmax(dim=-1).tolist()
        assert answer == wanted[len(prompt) - 1 : -1]
    greedy = Sampling(temperature=0.0)
    usual = generate(model, PROMPTS[:1], max_new_tokens=number, sampling=greedy)[0]
    assert answers[0][: LONGEST - 3] == usual[: LONGEST - 3]
    assert answers[0] != usual  # which has read the last half of its context anew


def test_pages_hold_what_one_piece_does() -> None:
    """Beyond the context too, and for unlike lengths side by side."""
    model, number = make(), 60
    greedy = Sampling(temperature=0.0)
    usual = generate(model, PROMPTS, max_new_tokens=number, sampling=greedy)
    assert written(model, "paged", PROMPTS, number) == usual
    drawn = {"max_new_tokens": number, "seed": 5}
    paged = generate(reader_with("paged", model), PROMPTS, **drawn)
    assert paged == generate(model, PROMPTS, **drawn)


def test_pages_of_a_prompt_are_shared_until_a_row_writes_into_them() -> None:
    model, size = make(), 5
    reader = PagedReader(model, page_size=size)
    prompt, other = [n % V for n in range(13)], [1, 2]
    reader.read([prompt, other, prompt, prompt])
    tables = [cache.table for cache in reader.caches]
    assert tables == [[0, 1, 2], [3], [0, 1, 2], [0, 1, 2]]
    assert share_in_use(reader.caches) == pytest.approx((13 + 2) / (4 * size))
    reader.step(torch.tensor([3, 4, 5, 6]))
    tables = [cache.table for cache in reader.caches]
    assert [table[:2] for table in tables] == [[0, 1], [3], [0, 1], [0, 1]]
    assert len({table[2] for table in tables if len(table) > 2}) == 3
    # Two full pages are shared; each copy of the third holds four tokens.
    pages = reader.caches[0].pool.num_free
    assert len(reader.caches[0].pool.users) - pages == 2 + 3 + 1
    assert share_in_use(reader.caches) == pytest.approx((10 + 3 * 4 + 3) / (6 * size))


def test_the_same_prompt_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lengths = make(), list[int]()
    forward = model.forward

    def count(tokens: torch.Tensor, **how: Any) -> Any:
        lengths.append(tokens.numel())
        return forward(tokens, **how)

    monkeypatch.setattr(model, "forward", count)
    reader = reader_with("paged", model)
    reader.read([PROMPTS[0], PROMPTS[1], PROMPTS[0]])
    assert lengths == [3, 37]


def test_a_rolling_cache_reads_a_prompt_that_is_longer_than_it() -> None:
    model, prompt = make(), [n * n % V for n in range(LONGEST + 5)]
    cache = rolling_cache(model, sinks=4, window=LONGEST - 4)
    wanted = stream_logits(model, torch.tensor([prompt]), cache)[:, -1]
    found = reader_with("rolling", model).read([prompt])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(("longest", "sinks"), [(9, 4), (5, 4), (4, 3), (2, 1), (1, 0)])
def test_a_small_context_has_room_for_the_newest_token(
    longest: int, sinks: int
) -> None:
    model = make(max_seq_len=longest)
    assert RollingReader(model).sinks == sinks
    assert len(written(model, "rolling", [[1, 2, 3]], 7)[0]) == 7


@pytest.mark.parametrize("bits", [8, 4])
def test_a_cache_of_few_bits_is_the_one_of_its_chapter(bits: int) -> None:
    model, number = make(), 9
    answers = written(model, f"int{bits}", PROMPTS[:2], number)
    for prompt, answer in zip(PROMPTS[:2], answers, strict=True):
        cache, tokens = quantized_cache(model, bits=bits), prompt
        for token in answer:
            logits = model(torch.tensor([tokens]), cache=cache)[0, -1]
            assert int(logits.argmax()) == token
            tokens = [token]


def test_fewer_bits_are_farther_from_the_numbers() -> None:
    model = make()
    exact = model(torch.tensor([PROMPTS[1]]))[:, -1]
    gaps = [
        float((reader_with(cache, model).read([PROMPTS[1]]) - exact).abs().max())
        for cache in ("int8", "int4")
    ]
    assert 0 < 4 * gaps[0] < gaps[1]


@pytest.mark.parametrize(
    ("cache", "changes", "message"),
    [
        ("whole", {}, f"cache='whole' must be one of {', '.join(CACHES)}"),
        ("rolling", {"positions": "learned"}, "positions='learned' of model must be"),
        (
            "rolling",
            {"attention": Latent()},
            "Latent(latent_dim=None) of model does not",
        ),
        ("rolling", {"attention": ChosenBlocks()}, "of model does not cache keys"),
        (
            "int8",
            {"attention": Latent()},
            "Latent(latent_dim=None) of model caches no",
        ),
        (
            "int8",
            {"attention": DeltaRule(), "positions": "none"},
            "DeltaRule(gated=False, by_feature=False) of model caches no keys and "
            "values of heads",
        ),
        (
            "int4",
            {"d_model": 15, "positions": "none"},
            "head_dim=5 of model must be even for 4 bits",
        ),
        (
            "paged",
            {"attention": DeltaRule(), "softmax_every": 2},
            "every layer must keep keys and values in a DenseCache",
        ),
        (
            "paged",
            {"kept_heads": ((0, 1, 2), (1,))},
            "layers of model must have equally many heads of keys",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_at_once(
    cache: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        reader_with(cache, GPT(replace(SMALL, **changes)))
    known = cache in CACHES
    hint = f"cache={cache!r} does not fit this model: leave out cache"
    assert getattr(caught.value, "__notes__", []) == [hint] * known
