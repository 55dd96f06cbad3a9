"""The contract of all caches: what ``Cache`` and ``LayerCache`` promise, each keeps.

A case makes a model's cache of two empty layers, and says by another way what a layer
returns for the keys and values of a text. Caches with keys and values append them; a
state adds the products of each key and its value.
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tested_transformer.attentions import StateCache
from tested_transformer.cache import (
    Cache,
    DenseCache,
    KVCache,
    LayerCache,
    WindowCache,
)
from tested_transformer.caches import (
    PagedCache,
    PagedLayer,
    PagePool,
    QuantizedLayer,
    RollingLayer,
    quantize,
)
from tested_transformer.positions import rotary_table

# Pairwise different: layers, heads, tokens, widths of keys and values, group, page.
LAYERS, H, S, D_K, D_V, GROUP, PAGE = 2, 3, 8, 6, 10, 5, 4
Pair = tuple[Tensor, Tensor]


def as_they_are(k: Tensor, v: Tensor) -> Pair:
    return k, v


def in_groups(bits: int) -> Callable[[Tensor, Tensor], Pair]:
    """Return what keys per channel and values per token are in groups of ``GROUP``."""

    def restored(x: Tensor, per: str) -> Tensor:
        groups = x.split(GROUP, dim=2)
        full = [group for group in groups if group.shape[2] == GROUP]
        in_bits = [quantize(group, bits=bits, per=per).restore() for group in full]
        return torch.cat([*in_bits, *groups[len(full) :]], dim=2)

    return lambda k, v: (restored(k, "channel"), restored(v, "token"))


@dataclass(frozen=True)
class Case:
    """How to make a cache, and what it is expected to do.

    Args:
        new: A function from the batch size to a cache of ``LAYERS`` empty layers.
        expected: What a layer returns for all keys and values so far.
        earliest: What ``earliest`` must be after so many tokens.
        batch_size: B; 2 unless the cache holds one sequence only.
        capacity: How many tokens fit; ``None`` if any number does.
        d_v: The width of the values.
        before: How many tokens before the new ones it returns; ``None`` for all.
    """

    new: Callable[[int], KVCache]
    expected: Callable[[Tensor, Tensor], Pair] = as_they_are
    earliest: Callable[[int], int] = lambda length: 0
    batch_size: int = 2
    capacity: int | None = S
    d_v: int = D_V
    before: int | None = None

    def empty(self) -> KVCache:
        return self.new(self.batch_size)

    def text(self, length: int) -> Pair:
        """Return keys and values of a new text."""
        shape = self.batch_size, H, length
        return torch.randn(*shape, D_K), torch.randn(*shape, self.d_v)


def memory(batch_size: int, capacity: int = S, d_v: int = D_V) -> Pair:
    """Return memory whose initial content must not matter."""
    shape = batch_size, H, capacity
    return torch.full((*shape, D_K), torch.nan), torch.full((*shape, d_v), torch.nan)


def dense(d_v: int) -> Callable[[int], KVCache]:
    return lambda batch_size: KVCache(
        [DenseCache(*memory(batch_size, d_v=d_v)) for _ in range(LAYERS)]
    )


def windows(batch_size: int) -> KVCache:
    """Return caches for a window of 3, with a slack of one token."""
    layers = [DenseCache(*memory(batch_size, capacity=4)) for _ in range(LAYERS)]
    return KVCache([WindowCache(layer, window=3, max_length=S) for layer in layers])


def rolling(rotary: bool) -> Callable[[int], KVCache]:
    """Return rolling caches with room for one token more than the texts have."""
    table = rotary_table(torch.arange(S + 1), D_K) if rotary else None
    return lambda batch_size: KVCache(
        [
            RollingLayer(*memory(batch_size, S + 1), sinks=2, table=table)
            for _ in range(LAYERS)
        ]
    )


def quantized(bits: int) -> Case:
    settings: dict[str, Any] = {"bits": bits, "group_size": GROUP, "max_length": S}
    return Case(
        lambda batch_size: KVCache(
            [QuantizedLayer(batch_size=batch_size, **settings) for _ in range(LAYERS)]
        ),
        in_groups(bits),
        lambda length: length // GROUP * GROUP,
    )


def paged(_: int) -> PagedCache:
    sizes = {"num_layers": LAYERS, "num_kv_heads": H, "head_dim": D_K}
    pool = PagePool(num_pages=S // PAGE, page_size=PAGE, value_dim=D_V, **sizes)
    return PagedCache(pool)


def states(slack: int) -> Callable[[int], KVCache]:
    def new(batch_size: int) -> KVCache:
        memory = torch.full((batch_size, H, D_K, D_V), torch.nan)
        layers = [StateCache(memory.clone(), written) for _ in range(LAYERS)]
        for layer in layers:
            layer.slack = slack
        return KVCache(layers)

    return new


def written(state: Tensor | None, pair: Pair) -> Tensor:
    new, _ = sum_of_products(*pair)
    return new if state is None else state + new


def sum_of_products(k: Tensor, v: Tensor) -> Pair:
    state = torch.einsum("bhtk,bhtv->bhkv", k, v)
    return state, state


CASES = {
    "dense": Case(dense(D_V)),
    "latent": Case(dense(0), d_v=0),
    "window": Case(windows, earliest=lambda n: n - 1 if n > 4 else 0, before=2),
    "rolling": Case(rolling(False), capacity=None),
    "rolling, rotary": Case(rolling(True), capacity=None),
    "int8": quantized(8),
    "int4": quantized(4),
    "paged": Case(paged, batch_size=1),
    "state": Case(
        states(0),
        sum_of_products,
        lambda length: length,
        capacity=None,
    ),
    "state, with slack": Case(states(S), sum_of_products, capacity=None),
}


def caches(which: Callable[[Case], object]) -> pytest.MarkDecorator:
    """Run a test with these caches."""
    chosen = {name: case for name, case in CASES.items() if which(case)}
    return pytest.mark.parametrize("case", chosen.values(), ids=[*chosen])


each_cache = caches(lambda case: True)
with_keys = caches(lambda case: case.expected is not sum_of_products)
with_a_limit = caches(lambda case: case.capacity)


def add(layer: Cache, k: Tensor, v: Tensor) -> Pair:
    """Let a layer's cache read tokens; return what it returns."""
    if isinstance(layer, LayerCache):
        return layer.append(k, v)
    assert isinstance(layer, StateCache)
    layer.keep(written(layer.state, (k, v)), (k, v))
    assert layer.state is not None
    return layer.state, layer.state


def read(cache: KVCache, k: Tensor, v: Tensor) -> list[Pair]:
    """Let all layers read tokens, each a little different."""
    return [add(layer, k + i, v - i) for i, layer in enumerate(cache.layers)]


def check(case: Case, kept: list[Pair], k: Tensor, v: Tensor, num_new: int) -> None:
    """Assert that the layers have returned what they should for all of a text."""
    before = S if case.before is None else case.before
    start = max(k.shape[2] - num_new - before, 0)
    for i, (keys, values) in enumerate(kept):
        all_keys, all_values = case.expected(k + i, v - i)
        expected = all_keys[:, :, start:], all_values[:, :, start:]
        torch.testing.assert_close((keys, values), expected)


def cat(*texts: Pair) -> Pair:
    keys, values = zip(*texts, strict=True)
    return torch.cat(keys, dim=2), torch.cat(values, dim=2)


def tensors_in(owner: object, known: set[int]) -> Iterator[Tensor]:
    """Yield all tensors that an object holds, but for the table of positions."""
    if id(owner) in known:
        return
    known.add(id(owner))
    if isinstance(owner, Tensor):
        yield owner
    elif isinstance(owner, list | tuple):
        for part in owner:
            yield from tensors_in(part, known)
    elif hasattr(owner, "__dict__"):
        for name, part in vars(owner).items():
            if not (isinstance(owner, RollingLayer) and name == "table"):
                yield from tensors_in(part, known)


def bytes_in(cache: KVCache) -> int:
    """Return the memory that tensors of keys, values, scales or states really take."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in tensors_in(cache, set())
        if tensor.dtype != torch.long  # where in the memory tokens are
    }
    return sum(storages.values())


@each_cache
def test_caches_meet_their_protocols(case: Case) -> None:
    cache = case.empty()
    assert isinstance(cache, Cache)
    assert all(isinstance(layer, Cache) for layer in cache.layers)
    kinds = [isinstance(layer, LayerCache) for layer in cache.layers]
    assert kinds == [not isinstance(layer, StateCache) for layer in cache.layers]


@each_cache
def test_reading_in_pieces_is_reading_at_once(case: Case) -> None:
    for parts in ((8,), (1,) * 8, (2, 1, 5), (5, 3), (6, 1, 1)):
        cache, (k, v) = case.empty(), case.text(S)
        end = 0
        for part in parts:
            start, end = end, end + part
            kept = read(cache, k[:, :, start:end], v[:, :, start:end])
            check(case, kept, k[:, :, :end], v[:, :, :end], part)
            lengths = [c.length for c in (cache, *cache.layers)]
            assert lengths == [end] * (1 + LAYERS)
            sizes = [c.batch_size for c in (cache, *cache.layers)]
            assert sizes == [case.batch_size] * (1 + LAYERS)
            assert cache.nbytes == sum(layer.nbytes for layer in cache.layers)


@each_cache
def test_nbytes_is_the_memory_that_tensors_take(case: Case) -> None:
    cache = case.empty()

    def agrees() -> bool:
        share = 1.0  # a pool has pages that are not this cache's
        if isinstance(cache, PagedCache):
            share = len(cache.table) / len(cache.pool.users)
        return cache.nbytes == bytes_in(cache) * share

    for lengths in ((3, 4), (1, 1)):
        for length in lengths:
            read(cache, *case.text(length))
            assert agrees()
        cache.rewind(cache.earliest or 1)
        assert agrees()
    cache.reset()
    assert agrees()
    released = isinstance(cache.layers[0], PagedLayer | QuantizedLayer)
    assert (cache.nbytes == 0) == released


@each_cache
@pytest.mark.parametrize("past", [7, 8])
def test_rewinding_is_as_if_never_read(case: Case, past: int) -> None:
    """From the middle of a group or a page, and from a full cache."""
    earliest = case.earliest(past)
    for length in range(past + 1):
        cache, fresh = case.empty(), case.empty()
        text, new_text = case.text(past), case.text(S - length)
        read(cache, *text)
        assert [c.earliest for c in (cache, *cache.layers)] == [earliest] * (1 + LAYERS)
        if 0 < length < earliest:
            message = f"holds {past} tokens; it cannot go back to {length}: a "
            with pytest.raises(ValueError, match=message):
                cache.rewind(length)
            length, new_text = past, case.text(S - past)
        else:
            cache.rewind(length)
        assert [layer.length for layer in cache.layers] == [length] * LAYERS
        start = text[0][:, :, :length], text[1][:, :, :length]
        if length:
            read(fresh, *start)
        if length < S:
            read(fresh, *new_text)
            check(case, read(cache, *new_text), *cat(start, new_text), S - length)
        assert (cache.nbytes, cache.length) == (fresh.nbytes, fresh.length)


@each_cache
def test_rewinding_beyond_the_text_is_refused(case: Case) -> None:
    cache = case.empty()
    read(cache, *case.text(5))
    for c in (cache, *cache.layers):
        for length in (-1, 6):
            message = f"holds 5 tokens; it cannot go back to {length}$"
            with pytest.raises(ValueError, match=message):
                c.rewind(length)
    cache.rewind(5)
    assert cache.length == 5


@each_cache
def test_reset_frees_the_pass_and_a_second_run_is_the_first(case: Case) -> None:
    cache, runs = case.empty(), list[list[Tensor]]()
    k, v = case.text(7)
    for _ in range(2):
        for layer in cache.layers:
            assert layer.length == 0
        leaf, values = k.clone().requires_grad_(), v.clone().requires_grad_()
        kept = read(cache, leaf, values)
        total = sum((keys.square().sum() + vals.square().sum()) for keys, vals in kept)
        assert isinstance(total, Tensor)
        runs.append([total, *torch.autograd.grad(total, (leaf, values))])
        graph = weakref.ref(leaf)
        del leaf, values, kept, total
        runs[-1] = [tensor.detach() for tensor in runs[-1]]
        cache.reset()
        assert not any(tensor.requires_grad for tensor in tensors_in(cache, set()))
        assert graph() is None
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)


@each_cache
def test_reset_keeps_no_token(case: Case) -> None:
    cache = case.empty()
    read(cache, *case.text(7))
    cache.reset()
    assert (cache.length, cache.earliest, cache.last_tokens) == (0, 0, None)
    text = case.text(5)
    check(case, read(cache, *text), *text, 5)


def refused(cache: KVCache, text: Pair, message: str, misfit: Pair, case: Case) -> None:
    """Assert that the first layer refuses keys and values, and goes on as before."""
    read(cache, *text)
    with pytest.raises(ValueError, match=message):
        add(cache.layers[0], *misfit)
    assert [layer.length for layer in cache.layers] == [text[0].shape[2]] * LAYERS
    more = case.text(1)
    check(case, read(cache, *more), *cat(text, more), 1)


@each_cache
def test_another_batch_size_is_refused(case: Case) -> None:
    size = case.batch_size
    k, v = case.text(2)
    larger = torch.cat([k, k[:1]]), torch.cat([v, v[:1]])
    message = f"the cache was made for batch_size={size}; the keys have {size + 1}"
    if not isinstance(case.empty().layers[0], LayerCache):
        message = rf"state must be \({size}, 3, 6, 10\); it is \({size + 1}, 3, 6, 10\)"
        state, cache = written(None, larger), case.empty().layers[0]
        assert isinstance(cache, StateCache)
        with pytest.raises(ValueError, match=message):
            cache.keep(state, larger)
        return
    refused(case.empty(), case.text(3), f"^{message}$", larger, case)
    if case is not CASES["int8"] and case is not CASES["int4"]:
        with pytest.raises(ValueError, match=f"^{message}$"):
            add(case.empty().layers[0], *larger)


@with_keys
def test_other_heads_and_widths_are_refused(case: Case) -> None:
    k, v = case.text(1)
    mine = (
        f"was made for {H} heads with keys of {D_K} and values of {case.d_v} features"
    )
    for misfit, theirs in (
        ((k[:, :2], v[:, :2]), f"2, {D_K} and {case.d_v}"),
        ((k[..., :4], v), f"{H}, 4 and {case.d_v}"),
        ((k, torch.cat([v, v[..., :0], k], -1)), f"{H}, {D_K} and {case.d_v + D_K}"),
    ):
        message = f"the cache {mine}; the new ones have {theirs}"
        refused(case.empty(), case.text(3), f"^{message}$", misfit, case)


@with_a_limit
def test_tokens_beyond_the_capacity_are_refused(case: Case) -> None:
    message = "the cache holds 6 of at most 8 tokens: there is no room for 3 more"
    refused(case.empty(), case.text(6), f"^{message}$", case.text(3), case)
