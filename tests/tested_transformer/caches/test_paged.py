"""Pages: the same tokens as in one piece, each page once, and copies on write alone."""

from typing import Any

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor

from tested_transformer.attentions import Latent
from tested_transformer.cache import KVCache, LayerCache, dense_layers
from tested_transformer.caches import PagedCache, PagePool, rolling_cache, share_in_use
from tested_transformer.gpt import GPT, GPTConfig

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
    kept: list[tuple[Tensor, Tensor]] = []
    for i, layer in enumerate(cache.layers):
        assert isinstance(layer, LayerCache)
        kept.append(layer.append(k + i, v - i))
    return kept


def test_pages_are_taken_as_they_are_needed_and_given_back() -> None:
    pool = PagePool(**ROOM)
    first, second = PagedCache(pool), PagedCache(pool)
    read(first, *rand(3))
    assert (first.table, pool.num_free) == ([0], 5)
    read(second, *rand(5))
    read(first, *rand(2))
    assert (first.table, second.table) == ([0, 3], [1, 2])
    assert pool.users == [1, 1, 1, 1, 0, 0]
    first.reset()
    assert (first.table, first.length, pool.num_free) == ([], 0, 4)
    read(second, *rand(6))
    assert second.table == [1, 2, 0]


def test_a_prefix_is_shared_and_copied_on_write() -> None:
    pool = PagePool(**ROOM)
    first = PagedCache(pool)
    k, v = rand(6)
    read(first, k, v)
    second = first.fork()
    assert (second.table, second.length) == ([0, 1], 6)
    assert pool.users == [2, 2, 0, 0, 0, 0]
    new = rand(1)
    kept_by_second = read(second, *new)
    # The full page is still shared; the half full one was copied before it was written.
    assert (first.table, second.table) == ([0, 1], [0, 2])
    assert pool.users == [2, 1, 1, 0, 0, 0]
    more = rand(3)
    kept = read(first, *more)  # its page is its own again: no copy
    assert (first.table, pool.num_free) == ([0, 1, 3], 2)
    for i in range(LAYERS):
        assert torch.equal(kept_by_second[i][0], torch.cat([k, new[0]], 2) + i)
        assert torch.equal(kept_by_second[i][1], torch.cat([v, new[1]], 2) - i)
        assert torch.equal(kept[i][0], torch.cat([k, more[0]], 2) + i)
        assert torch.equal(kept[i][1], torch.cat([v, more[1]], 2) - i)
    first.reset()
    assert pool.users == [1, 0, 1, 0, 0, 0]


def test_a_full_last_page_is_not_copied() -> None:
    pool = PagePool(**ROOM)
    first = PagedCache(pool)
    read(first, *rand(2 * SIZE))
    second = first.fork()
    read(second, *rand(1))
    assert (first.table, second.table) == ([0, 1], [0, 1, 2])


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
    return with_large_weights(GPT(GPTConfig(**(settings | changes)))).eval()


@torch.no_grad()
def test_two_answers_to_one_prompt_go_on_side_by_side() -> None:
    """Each is read as if it were alone, and with smear knows the token before it."""
    model, prompt = make_model(smear=True), torch.randint(13, (1, 6))
    cache = PagedCache(PagePool.for_model(model, num_pages=5, page_size=SIZE))
    model(prompt, cache=cache)
    for answer in (cache, cache.fork()):
        tokens = torch.randint(13, (1, 4))
        expected = model(torch.cat([prompt, tokens], dim=1))[:, 6:]
        parts = [model(part, cache=answer) for part in tokens.split([1, 3], dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), expected)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    pool = PagePool(**ROOM)
    cache, limited = PagedCache(pool), PagedCache(pool, max_length=9)
    assert limited.fork().max_length == 9
    read(cache, *rand(3 * SIZE + 1))
    read(limited, *rand(5))
    message = "1 more pages are wanted; 0 of 6 are free"
    with pytest.raises(ValueError, match=f"^{message}$"):
        read(limited, *rand(4))
    assert (limited.table, limited.length) == ([4, 5], 5)
    # A fork that needs its own copy of a page, and a page more.
    pool.release([cache.table.pop()])
    fork, users = limited.fork(), [*pool.users]
    message = "2 more pages are wanted; 1 of 6 are free"
    with pytest.raises(ValueError, match=f"^{message}$"):
        read(fork, *rand(4))
    assert (fork.table, fork.length, pool.users) == ([4, 5], 5, users)
    pool.take()
    with pytest.raises(ValueError, match=r"^all 6 pages are in use$"):
        pool.take()


def test_sizes_that_do_not_fit() -> None:
    for name in [*ROOM][:-1]:
        with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
            PagePool(**(ROOM | {name: 0}))
    with pytest.raises(ValueError, match=r"^value_dim=-1 must not be negative$"):
        PagePool(**(ROOM | {"value_dim": -1}))
    with pytest.raises(ValueError, match=r"^max_length=0 must be positive$"):
        PagedCache(PagePool(**ROOM), max_length=0)
    uneven = make_model(kept_heads=((0, 1, 4, 5), (2, 3)))
    with pytest.raises(ValueError, match=r"equally many heads .* they have \[2, 1\]$"):
        PagePool.for_model(uneven, num_pages=3, page_size=SIZE)


def test_pages_that_are_taken_back_are_free_but_for_who_shares_them() -> None:
    pool = PagePool(**ROOM)
    one = PagedCache(pool)
    read(one, *rand(3 * SIZE))
    fork = one.fork()
    one.rewind(SIZE)  # exactly one page
    assert (one.table, pool.users[:3], pool.num_free) == ([0], [2, 1, 1], 3)
    fork.rewind(SIZE + 1)
    assert (fork.table, pool.users[:3], pool.num_free) == ([0, 1], [2, 1, 0], 4)
    fork.rewind(0)
    assert (fork.table, pool.users[:3]) == ([], [1, 0, 0])


def test_gradients_of_others_outlive_a_reset() -> None:
    """The passes of all sequences are forgotten with the last of them."""
    pool = PagePool(**ROOM)
    first, second = PagedCache(pool), PagedCache(pool)
    k, v = rand(3)
    k.requires_grad_()
    read(second, *rand(2))
    read(first, k, v)
    second.reset()
    (keys, _), *_ = read(first, *rand(1))
    assert torch.equal(torch.autograd.grad(keys.sum(), k)[0], torch.ones_like(k))
    first.reset()
    assert not pool.keys.requires_grad


def test_what_is_in_use_by_hand() -> None:
    pool = PagePool(**ROOM)
    first, second = PagedCache(pool), PagedCache(pool)
    assert share_in_use([first, second]) == share_in_use([]) == 1.0
    read(first, *rand(6))  # pages of 4: one full, one half full
    assert share_in_use([first]) == 6 / 8
    twin = first.fork()
    assert share_in_use([first, twin]) == 6 / 8
    read(twin, *rand(1))  # a copy of the second page, with one token more
    read(second, *rand(1))
    assert share_in_use([first, twin, second]) == (4 + 2 + 3 + 1) / (4 * SIZE)
    first.rewind(3)  # the second page is free again
    assert share_in_use([first]) == 3 / 4
    again = twin.fork()
    again.rewind(5)  # of the page that both hold, it knows one token, not three
    assert share_in_use([twin, again]) == share_in_use([again, twin]) == 7 / 8


def test_a_pool_has_the_shapes_of_a_models_own_cache() -> None:
    for changes in ({}, {"attention": Latent(), "num_kv_heads": None}):
        model = make_model(positions="rotary", **changes).bfloat16()
        pool = PagePool.for_model(model, num_pages=5, page_size=7)
        cache = model.new_cache(5, max_length=7)
        assert pool.nbytes == cache.nbytes
        assert (pool.keys.dtype, pool.num_layers) == (torch.bfloat16, LAYERS)
        assert pool.values.shape[-1] == dense_layers(cache)[0].values.shape[-1]


def test_it_writes_under_autocast_as_the_usual_cache_does() -> None:
    """Then keys come in another type than that of the cache, which the weights have."""
    model = make_model(positions="rotary", max_seq_len=24, num_kv_heads=None)
    tokens = torch.randint(13, (1, 9))
    caches = {
        "usual": model.new_cache(),
        "paged": PagedCache(PagePool.for_model(model, num_pages=3, page_size=5)),
        "rolling": rolling_cache(model, sinks=2, window=19),
    }
    outputs = {}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for name, cache in caches.items():
            parts = [model(part, cache=cache) for part in tokens.split([4, 5], 1)]
            outputs[name] = torch.cat(parts, 1)
    assert torch.equal(outputs["paged"], outputs["usual"])
    # Keys that were rounded are turned back, and turned again.
    gap = (outputs["rolling"] - outputs["usual"]).float().norm()
    assert gap < 0.05 * outputs["usual"].float().norm()
