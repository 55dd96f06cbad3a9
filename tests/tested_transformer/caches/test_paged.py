"""Pages: the same tokens as in one piece, each page once, and copies on write alone."""

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tested_transformer.attentions import Latent, LatentAttention
from tested_transformer.cache import KVCache
from tested_transformer.caches import PagedCache, PagePool, rolling_cache, share_in_use
from tested_transformer.decoding import rewind
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.positions import rotary_table

# Pairwise different: layers, heads, page size, pages, widths of key and value.
LAYERS, H, SIZE, PAGES, D_K, D_V = 2, 3, 4, 6, 5, 7
ROOM: dict[str, Any] = {
    "num_pages": PAGES,
    "page_size": SIZE,
    "num_layers": LAYERS,
    "num_kv_heads": H,
    "head_dim": D_K,
    "value_dim": D_V,
}


def rand(length: int) -> tuple[Tensor, Tensor]:
    return torch.randn(1, H, length, D_K), torch.randn(1, H, length, D_V)


def read(cache: KVCache, k: Tensor, v: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Append to all layers, each a little different."""
    return [layer.append(k + i, v - i) for i, layer in enumerate(cache.layers)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 7))
def test_it_gives_back_what_one_piece_does(lengths: list[int], size: int) -> None:
    total = sum(lengths)
    pool = PagePool(**(ROOM | {"num_pages": -(-total // size), "page_size": size}))
    paged = PagedCache(pool)
    settings = {"num_layers": LAYERS, "batch_size": 1, "num_kv_heads": H}
    whole = KVCache(**settings, max_length=total, head_dim=D_K, value_dim=D_V)
    for length in lengths:
        k, v = rand(length)
        for one, other in zip(read(paged, k, v), read(whole, k, v), strict=True):
            assert torch.equal(one[0], other[0])
            assert torch.equal(one[1], other[1])
    assert paged.length == whole.length == total
    assert pool.num_free == 0
    assert paged.nbytes == pool.nbytes


def test_pages_are_taken_as_they_are_needed_and_given_back() -> None:
    pool = PagePool(**ROOM)
    one, other = PagedCache(pool), PagedCache(pool)
    read(one, *rand(3))
    assert (one.table, pool.num_free) == ([0], 5)
    read(other, *rand(5))
    read(one, *rand(2))
    assert (one.table, other.table) == ([0, 3], [1, 2])
    assert pool.users == [1, 1, 1, 1, 0, 0]
    one.reset()
    assert (one.table, one.length, pool.num_free) == ([], 0, 4)
    read(other, *rand(6))
    assert other.table == [1, 2, 0]


def test_a_prefix_is_shared_and_copied_on_write() -> None:
    pool = PagePool(**ROOM)
    first = PagedCache(pool)
    k, v = rand(6)
    read(first, k, v)
    second = first.fork()
    assert (second.table, second.length) == ([0, 1], 6)
    assert pool.users == [2, 2, 0, 0, 0, 0]
    new = rand(1)
    found = read(second, *new)
    # The full page is still shared; the half full one was copied before it was written.
    assert (first.table, second.table) == ([0, 1], [0, 2])
    assert pool.users == [2, 1, 1, 0, 0, 0]
    other = rand(3)
    kept = read(first, *other)  # its page is its own again: no copy
    assert (first.table, pool.num_free) == ([0, 1, 3], 2)
    for i in range(LAYERS):
        assert torch.equal(found[i][0], torch.cat([k, new[0]], 2) + i)
        assert torch.equal(found[i][1], torch.cat([v, new[1]], 2) - i)
        assert torch.equal(kept[i][0], torch.cat([k, other[0]], 2) + i)
        assert torch.equal(kept[i][1], torch.cat([v, other[1]], 2) - i)
    first.reset()
    assert pool.users == [1, 0, 1, 0, 0, 0]


def test_a_full_last_page_is_not_copied() -> None:
    pool = PagePool(**ROOM)
    first = PagedCache(pool)
    read(first, *rand(2 * SIZE))
    second = first.fork()
    read(second, *rand(1))
    assert (first.table, second.table) == ([0, 1], [0, 1, 2])


def test_its_bytes_by_the_formula() -> None:
    pool = PagePool(**ROOM, dtype=torch.bfloat16)
    assert pool.nbytes == LAYERS * PAGES * H * SIZE * (D_K + D_V) * 2
    cache = PagedCache(pool)
    assert cache.nbytes == 0
    for layer in cache.layers:
        layer.append(*(each.bfloat16() for each in rand(SIZE + 1)))
    assert cache.nbytes == LAYERS * 2 * H * SIZE * (D_K + D_V) * 2


def make_model(**changes: Any) -> GPT:
    settings: dict[str, Any] = {
        "vocab_size": 13,
        "max_seq_len": 16,
        "d_model": 24,
        "num_heads": 6,
        "num_layers": LAYERS,
        "num_kv_heads": H,
        "tie_head": False,
    }
    model = GPT(GPTConfig(**(settings | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # or it would write one token for ever
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


@torch.no_grad()
def write(model: GPT, cache: KVCache, tokens: Tensor, count: int) -> list[int]:
    written: list[int] = []
    for _ in range(count):
        tokens = model(tokens, cache=cache, last_only=True).argmax(-1)
        written.append(int(tokens))
    return written


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}, {"smear": True}])
def test_a_model_writes_the_same_tokens(changes: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = make_model(**changes)
    prompt = torch.randint(13, (1, 6))
    room = ROOM | {"head_dim": 4, "value_dim": None, "num_pages": 8}
    cache = PagedCache(PagePool(**room))
    wanted = write(model, model.new_cache(), prompt, 10)
    assert write(model, cache, prompt, 10) == wanted
    assert len(set(wanted)) > 2
    # Two answers to one prompt, side by side.
    cache.reset()
    write(model, cache, prompt, 1)
    other = cache.fork()
    for start in (3, 5):
        begun = torch.tensor([[start]])
        alone = model.new_cache()
        write(model, alone, prompt, 1)
        mine = cache if start == 3 else other
        assert write(model, mine, begun, 8) == write(model, alone, begun, 8)
    assert cache.table[:1] == other.table[:1]
    assert cache.table[1:] != other.table[1:]


@torch.no_grad()
def test_entries_of_latent_attention_lie_in_pages() -> None:
    layer = LatentAttention(
        d_model=8, num_heads=3, head_dim=5, rotary_dim=4, latent_dim=7
    )
    room = ROOM | {"num_layers": 1, "num_kv_heads": 1, "head_dim": 11, "value_dim": 0}
    (cache,) = PagedCache(PagePool(**room)).layers
    x, table = torch.randn(1, 9, 8), rotary_table(torch.arange(9), 4)
    whole = layer(x, causal=True, rotary=table)
    rows = [
        layer(token, causal=True, rotary=table[:, t : t + 1], cache=cache)
        for t, token in enumerate(x.split(1, dim=1))
    ]
    torch.testing.assert_close(torch.cat(rows, dim=1), whole)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    pool = PagePool(**ROOM)
    cache, other = PagedCache(pool), PagedCache(pool, max_length=9)
    read(cache, *rand(3 * SIZE + 1))
    message = "the cache holds 0 of at most 9 tokens: there is no room for 10 more"
    with pytest.raises(ValueError, match=f"^{message}$"):
        read(other, *rand(10))
    read(other, *rand(5))
    message = "1 more pages are wanted; 0 of 6 are free"
    with pytest.raises(ValueError, match=f"^{message}$"):
        read(other, *rand(4))
    assert (other.table, other.length) == ([4, 5], 5)
    with pytest.raises(ValueError, match=r"^all 6 pages are in use$"):
        pool.take()
    twice = [torch.cat([each, each]) for each in rand(1)]
    message = "^the cache holds one sequence; the keys have 2$"
    with pytest.raises(ValueError, match=message):
        read(cache, *twice)


@pytest.mark.parametrize("name", [*ROOM][:-1])
def test_sizes_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
        PagePool(**(ROOM | {name: 0}))


def test_other_sizes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"^value_dim=-1 must not be negative$"):
        PagePool(**(ROOM | {"value_dim": -1}))
    with pytest.raises(ValueError, match=r"^max_length=0 must be positive$"):
        PagedCache(PagePool(**ROOM), max_length=0)


def test_what_is_in_use_by_hand() -> None:
    pool = PagePool(**ROOM)
    one, other = PagedCache(pool), PagedCache(pool)
    assert share_in_use([one, other]) == share_in_use([]) == 1.0
    read(one, *rand(6))  # pages of 4: one full, one half full
    assert share_in_use([one]) == 6 / 8
    twin = one.fork()
    assert share_in_use([one, twin]) == 6 / 8
    read(twin, *rand(1))  # a copy of the second page, with one token more
    read(other, *rand(1))
    assert share_in_use([one, twin, other]) == (4 + 2 + 3 + 1) / (4 * SIZE)
    rewind(one, [0] * 3)  # its pages stay its own, and one is empty
    assert share_in_use([one]) == 3 / 8
    again = twin.fork()
    rewind(again, [0] * 5)  # of the page that both hold, it knows one token, not three
    assert share_in_use([twin, again]) == share_in_use([again, twin]) == 7 / 8


def test_a_pool_has_the_shapes_of_a_models_own_cache() -> None:
    for changes in ({}, {"attention": Latent(), "num_kv_heads": None}):
        model = make_model(positions="rotary", **changes).bfloat16()
        pool = PagePool.for_model(model, num_pages=5, page_size=7)
        cache = model.new_cache(5, max_length=7)
        assert pool.nbytes == cache.nbytes
        assert (pool.keys.dtype, pool.num_layers) == (torch.bfloat16, LAYERS)
        assert pool.values.shape[-1] == cache.layers[0].values.shape[-1]


@pytest.mark.parametrize("positions", ["alibi", "rotary"])
def test_it_writes_under_autocast_as_the_usual_cache_does(positions: str) -> None:
    """Then keys come in another type than that of the cache, which the weights have."""
    model = make_model(positions=positions, max_seq_len=24, num_kv_heads=None)
    tokens = torch.randint(13, (1, 9))
    caches = {
        "usual": model.new_cache(),
        "paged": PagedCache(PagePool.for_model(model, num_pages=3, page_size=5)),
        "rolling": rolling_cache(model, sinks=2, window=19),
    }
    found = {}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for name, cache in caches.items():
            parts = [model(part, cache=cache) for part in tokens.split([4, 5], 1)]
            found[name] = torch.cat(parts, 1)
    assert torch.equal(found["paged"], found["usual"])
    # Keys that were rounded are turned back, and turned again.
    gap = (found["rolling"] - found["usual"]).float().norm()
    assert gap < 0.05 * found["usual"].float().norm()


def test_a_pool_of_other_shapes_is_refused(as_a_caller: None) -> None:
    tokens, model = torch.randint(13, (1, 3)), make_model(positions="none")
    for changes, message in (
        (
            {"num_kv_heads": H + 1},
            "was made for 4 heads with keys of 4 and values",
        ),
        ({"head_dim": 6}, "was made for 3 heads with keys of 6"),
        ({"num_layers": LAYERS + 1}, "cache has 3 layers, the model 2: make it with"),
    ):
        sizes = ROOM | {"head_dim": 4, "value_dim": 4} | changes
        with pytest.raises(ValueError, match=message):
            model(tokens, cache=PagedCache(PagePool(**sizes)))
    sizes = {"num_layers": LAYERS, "batch_size": 1, "max_length": 9, "head_dim": 4}
    whole = KVCache(num_kv_heads=1, **sizes)
    with pytest.raises(ValueError, match="was made for 1 heads with keys of 4"):
        model(tokens, cache=whole)
