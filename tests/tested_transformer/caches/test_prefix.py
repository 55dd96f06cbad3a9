"""Pages are found by their whole text, and the longest unused go first."""

import pytest

from tested_transformer.caches import PagedCache, PrefixPool, page_names

ROOM = {"page_size": 2, "num_layers": 1, "num_kv_heads": 1, "head_dim": 3}


def read(pool: PrefixPool, tokens: list[int]) -> PagedCache:
    """Return a cache that takes the pages of a text, found or new, and names them."""
    cache, names = PagedCache(pool), page_names(tokens, 2)
    pages = pool.find(names)
    cache.begin_with(pages, 2 * len(pages), None)
    cache.make_room(2 * len(pages), len(tokens))
    pool.publish(cache.table[: len(names)], names)
    return cache


def test_a_name_says_all_tokens_up_to_the_end_of_its_page() -> None:
    names = page_names([1, 2, 3, 4, 5], 2)
    assert len(names) == 2
    assert page_names([1, 2, 3, 4, 6, 7], 2)[:2] == names
    assert page_names([1, 2, 4, 3], 2)[0] == names[0]
    assert page_names([1, 2, 4, 3], 2)[1] != names[1]
    assert page_names([9, 2, 3, 4], 2)[1] != names[1]
    assert page_names([258, 0], 2) != page_names([2, 256], 2)


def test_pages_are_shared_kept_and_found_again() -> None:
    pool = PrefixPool(num_pages=6, **ROOM)
    first, second = read(pool, [1, 2, 3, 4, 5]), read(pool, [1, 2, 3, 4, 7])
    assert (first.table, second.table) == ([0, 1, 2], [0, 1, 3])
    assert pool.users == [2, 2, 1, 1, 0, 0]
    first.reset()
    assert (pool.num_free, pool.num_cached) == (3, 0)
    second.reset()
    assert (pool.num_free, pool.num_cached) == (6, 2)
    assert read(pool, [1, 2, 9]).table[0] == 0
    assert (pool.num_free, pool.num_cached) == (4, 1)


def test_the_longest_unused_goes_first_and_of_a_text_its_end() -> None:
    pool = PrefixPool(num_pages=4, **ROOM)
    texts = [1, 2, 3, 4], [5, 6, 7, 8]
    for text in texts:
        read(pool, text).reset()
    read(pool, texts[0]).reset()  # now the other one is the longest unused
    read(pool, [9])
    assert pool.num_evicted == 1
    assert [len(pool.find(page_names(text, 2))) for text in texts] == [2, 1]
    read(pool, [9])
    assert [len(pool.find(page_names(text, 2))) for text in texts] == [2, 0]
    read(pool, [9])
    assert [len(pool.find(page_names(text, 2))) for text in texts] == [1, 0]
    read(pool, [9])
    assert (pool.num_evicted, pool.num_free, pool.num_cached) == (4, 0, 0)
    with pytest.raises(ValueError, match="all 4 pages are in use"):
        pool.take()


def test_of_two_pages_with_one_text_the_first_is_found() -> None:
    pool = PrefixPool(num_pages=3, **ROOM)
    first, second = PagedCache(pool), PagedCache(pool)
    for cache in (first, second):
        cache.make_room(0, 2)
        pool.publish(cache.table, page_names([1, 2], 2))
    assert pool.find(page_names([1, 2], 2)) == [0]
    second.reset()
    assert (pool.num_free, pool.num_cached) == (2, 0)
