"""What is put into a cache comes out of it, in order, and nothing else does."""

import re

import pytest
import torch

from tested_transformer.cache import KVCache, length_of

# Pairwise different: layers, batch, heads, room, head width.
LAYERS, B, H, S, D_K = 4, 2, 3, 7, 5
SIZES = {
    "num_layers": LAYERS,
    "batch_size": B,
    "num_kv_heads": H,
    "max_length": S,
    "head_dim": D_K,
}


def test_it_gives_back_all_that_it_was_given():
    cache = KVCache(**SIZES)
    k, v = torch.randn(2, LAYERS, B, H, S, D_K)
    for start, end in ((0, 4), (4, 5), (5, 7)):
        for index, layer in enumerate(cache.layers):
            assert cache.length == start  # until the last layer has it too
            keys, values = layer.append(
                k[index, :, :, start:end], v[index, :, :, start:end]
            )
            assert torch.equal(keys, k[index, :, :, :end])
            assert torch.equal(values, v[index, :, :, :end])
        assert cache.length == end


def test_its_length_is_that_of_every_layer():
    cache = KVCache(**SIZES)
    assert length_of(None, LAYERS) == length_of(cache, LAYERS) == 0
    for layer in cache.layers:
        layer.length = 3
    assert length_of(cache, LAYERS) == 3
    with pytest.raises(ValueError, match=r"^cache has 4 layers, the model 5: "):
        length_of(cache, 5)
    for index in range(LAYERS):
        cache.layers[index].length = 2
        lengths = [2 if each == index else 3 for each in range(LAYERS)]
        with pytest.raises(ValueError, match=re.escape(f"they hold {lengths}. If a")):
            length_of(cache, LAYERS)
        cache.layers[index].length = 3


def test_layers_do_not_meet():
    cache = KVCache(**SIZES)
    ones = torch.ones(B, H, 2, D_K)
    cache.layers[1].append(ones, 2 * ones)
    assert [layer.length for layer in cache.layers] == [0, 2, 0, 0]
    assert [float(layer.keys.sum()) for layer in cache.layers] == [
        0,
        ones.numel(),
        0,
        0,
    ]
    assert float(cache.layers[1].values.sum()) == 2 * ones.numel()


def test_after_a_reset_the_old_is_gone():
    cache = KVCache(**SIZES)
    old, new = torch.randn(B, H, S, D_K), torch.randn(B, H, 2, D_K)
    for layer in cache.layers:
        layer.append(old, old)
    memory = cache.layers[0].keys.data_ptr()
    cache.last_tokens = torch.zeros(B, dtype=torch.long)
    cache.reset()
    assert cache.last_tokens is None
    assert cache.length == 0
    keys, values = cache.layers[0].append(new, new)
    assert torch.equal(keys, new)
    assert torch.equal(values, new)
    assert keys.data_ptr() == memory


def test_after_a_reset_the_memory_holds_no_earlier_pass():
    cache = KVCache(**SIZES)
    for _ in range(2):
        memory = [layer.keys.data_ptr() for layer in cache.layers]
        cache.reset()
        for layer in cache.layers:
            assert layer.keys.grad_fn is layer.values.grad_fn is None
        assert [layer.keys.data_ptr() for layer in cache.layers] == memory
        new = torch.randn(B, H, S, D_K, requires_grad=True)
        for layer in cache.layers:
            keys, values = layer.append(new, 2 * new)
            (slope,) = torch.autograd.grad((keys + values).sum(), new)
            assert torch.equal(slope, torch.full_like(new, 3))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_its_bytes_by_the_formula(dtype: torch.dtype, size: int):
    cache = KVCache(**SIZES, dtype=dtype)
    # Two, keys and values, of each layer, head, token and feature.
    assert cache.nbytes == 2 * 4 * 2 * 3 * 7 * 5 * size
    assert cache.layers[0].keys.dtype == dtype


def test_it_sets_aside_what_it_says_and_nothing_more():
    cache = KVCache(**SIZES)
    memory = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for layer in cache.layers
        for tensor in (layer.keys, layer.values)
    }
    assert sum(memory.values()) == cache.nbytes
    assert (cache.batch_size, cache.max_length) == (B, S)


def test_a_full_cache_says_so_and_keeps_what_it_has():
    cache = KVCache(**SIZES)
    layer = cache.layers[0]
    kept = torch.randn(B, H, 5, D_K)
    layer.append(kept, kept)
    more = torch.randn(B, H, 3, D_K)
    message = "the cache holds 5 of at most 7 tokens: there is no room for 3 more"
    with pytest.raises(ValueError, match=f"^{message}$"):
        layer.append(more, more)
    assert layer.length == 5
    assert torch.equal(layer.keys[:, :, :5], kept)


def test_another_batch_is_refused():
    one = torch.randn(1, H, 1, D_K)
    with pytest.raises(
        ValueError, match=r"^the cache was made for batch_size=2; the keys have 1$"
    ):
        KVCache(**SIZES).layers[0].append(one, one)


@pytest.mark.parametrize("name", SIZES)
def test_sizes_must_be_positive(name: str):
    with pytest.raises(ValueError, match=f"^{name}=0 must be positive$"):
        KVCache(**(SIZES | {name: 0}))


@pytest.mark.parametrize("name", SIZES)
def test_a_size_of_one_will_do(name: str):
    cache = KVCache(**(SIZES | {name: 1}))
    assert cache.nbytes == 2 * 4 * 2 * 3 * 7 * 5 * 4 // SIZES[name]


def test_each_layer_may_have_a_number_of_heads_of_its_own():
    cache = KVCache(**(SIZES | {"num_layers": 2, "num_kv_heads": [3, 1]}))
    assert [layer.keys.shape[1] for layer in cache.layers] == [3, 1]
    assert [layer.values.shape[1] for layer in cache.layers] == [3, 1]
    one = KVCache(**(SIZES | {"num_layers": 1, "num_kv_heads": 1})).nbytes
    assert cache.nbytes == 4 * one
    message = "^num_kv_heads has 2 layers; num_layers=3$"
    with pytest.raises(ValueError, match=message):
        KVCache(**(SIZES | {"num_layers": 3, "num_kv_heads": [3, 1]}))
    with pytest.raises(ValueError, match=r"^num_kv_heads=0 must be positive$"):
        KVCache(**(SIZES | {"num_layers": 2, "num_kv_heads": [3, 0]}))


@pytest.mark.parametrize("value_dim", [0, 1, 9])
def test_values_may_have_a_width_of_their_own(value_dim: int):
    cache = KVCache(**SIZES, value_dim=value_dim)
    assert cache.nbytes == 4 * 2 * 3 * 7 * (5 + value_dim) * 4
    k, v = torch.randn(B, H, 2, D_K), torch.randn(B, H, 2, value_dim)
    keys, values = cache.layers[0].append(k, v)
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    with pytest.raises(ValueError, match=r"^value_dim=-1 must not be negative$"):
        KVCache(**SIZES, value_dim=-1)


def test_it_lies_where_it_is_wanted():
    cache = KVCache(**SIZES, dtype=torch.float16, device="meta")
    for layer in cache.layers:
        assert layer.keys.device.type == layer.values.device.type == "meta"
        assert layer.keys.dtype == layer.values.dtype == torch.float16


def test_at_first_it_is_empty_and_of_the_default_type():
    cache = KVCache(**SIZES)
    assert cache.length == 0
    assert cache.last_tokens is None
    for layer in cache.layers:
        assert layer.length == 0
        assert layer.keys.dtype == layer.values.dtype == torch.float32
        assert layer.keys.device.type == "cpu"
        assert layer.keys.eq(0).all()
        assert layer.values.eq(0).all()
