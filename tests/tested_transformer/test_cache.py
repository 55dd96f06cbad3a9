"""The cache of a model: its layers and its tokens go on, go back and start anew as one.

What every cache promises is tested in ``caches/test_contract.py``.
"""

import re
from collections.abc import Callable

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.attentions import StateCache
from tested_transformer.cache import DenseCache, KVCache, dense_layers, length_of
from tested_transformer.caches import (
    PagedCache,
    PagePool,
    quantized_cache,
    rolling_cache,
)
from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: layers, batch, heads, tokens, head width.
LAYERS, B, H, S, D_K = 4, 2, 3, 7, 5


def dense_cache() -> KVCache:
    shape = B, H, S, D_K
    layers = [DenseCache(torch.zeros(shape), torch.zeros(shape)) for _ in range(LAYERS)]
    return KVCache(layers)


def test_its_length_is_that_of_every_layer():
    cache = dense_cache()
    layers = dense_layers(cache)
    assert length_of(None, LAYERS) == length_of(cache, LAYERS) == 0
    for layer in layers:
        assert cache.length == 0  # until the last layer has the tokens, too
        layer.append(torch.rand(B, H, 3, D_K), torch.rand(B, H, 3, D_K))
    assert length_of(cache, LAYERS) == cache.length == 3
    with pytest.raises(ValueError, match=r"^cache has 4 layers, the model 5: "):
        length_of(cache, 5)
    for index, layer in enumerate(layers):
        layer.rewind(2)
        lengths = [2 if i == index else 3 for i in range(LAYERS)]
        with pytest.raises(ValueError, match=re.escape(f"they hold {lengths}. If a")):
            length_of(cache, LAYERS)
        layer.append(torch.rand(B, H, 1, D_K), torch.rand(B, H, 1, D_K))


def test_a_reset_keeps_the_memory():
    cache = dense_cache()
    where = [layer.keys.data_ptr() for layer in dense_layers(cache)]
    for layer in dense_layers(cache):
        layer.append(torch.rand(B, H, S, D_K), torch.rand(B, H, S, D_K))
    cache.reset()
    assert [layer.keys.data_ptr() for layer in dense_layers(cache)] == where


def test_layers_of_unlike_kinds_go_back_together_or_not_at_all():
    state = StateCache(torch.zeros(B, H, D_K, D_K), lambda _, writes: writes[0])
    cache = KVCache([DenseCache(*torch.zeros(2, B, H, S, D_K)), state])
    assert (cache.earliest, cache.batch_size) == (0, B)
    dense_layer = cache.layers[0]
    assert isinstance(dense_layer, DenseCache)
    dense_layer.append(torch.rand(B, H, 4, D_K), torch.rand(B, H, 4, D_K))
    state.keep(torch.rand(B, H, D_K, D_K), (torch.rand(B, H, 4, D_K),))
    assert cache.earliest == 4
    message = "holds 4 tokens; it cannot go back to 3: a StateCache can keep 4 or more"
    with pytest.raises(ValueError, match=message):
        cache.rewind(3)
    assert [layer.length for layer in cache.layers] == [4, 4]
    cache.rewind(0)
    assert [layer.length for layer in cache.layers] == [0, 0]


def test_a_cache_has_layers_and_some_take_dense_ones_only():
    with pytest.raises(ValueError, match=r"^layers is empty: "):
        KVCache([])
    state = StateCache(torch.zeros(B, H, D_K, D_K), lambda _, writes: writes[0])
    cache = KVCache([state])
    with pytest.raises(ValueError, match=re.escape("they have ['StateCache']")):
        dense_layers(cache)


def make(**changes) -> GPT:
    torch.manual_seed(0)
    settings = {"vocab_size": 13, "d_model": 24, "num_heads": 4, "num_layers": 2}
    settings |= {"max_seq_len": 12, "smear": True, "positions": "rotary"}
    model = with_large_weights(GPT(GPTConfig(**(settings | changes))))
    return model.eval().requires_grad_(False)


# Each with room for all tokens, and none of them quantized, so that nothing is lost.
CACHES: dict[str, Callable[[GPT], KVCache]] = {
    "dense": lambda model: model.new_cache(),
    "paged": lambda m: PagedCache(PagePool.for_model(m, num_pages=3, page_size=4)),
    "quantized": lambda model: quantized_cache(model, bits=8, group_size=13),
    "rolling": lambda model: rolling_cache(model, sinks=2, window=10),
}


@pytest.mark.parametrize("new_cache", CACHES.values(), ids=[*CACHES])
def test_a_model_goes_back_with_the_token_before(
    new_cache: Callable[[GPT], KVCache],
) -> None:
    """With smear, a token reads the one before it: none at the start of a text."""
    model, tokens = make(), torch.randint(13, (1, 9))
    full_logits = model(tokens)
    cache = new_cache(model)
    for length in (0, 1, 4, 7):
        model(tokens[:, :length], cache=cache) if length else None
        model((tokens[:, length:8] + 1) % 13, cache=cache)
        cache.rewind(length)
        more = model(tokens[:, length : length + 2], cache=cache)
        torch.testing.assert_close(more, full_logits[:, length : length + 2])
        cache.rewind(0) if length % 2 else cache.reset()


@pytest.mark.parametrize("paged", [False, True])
def test_a_pass_that_a_cache_refuses_changes_nothing(paged: bool) -> None:
    model, tokens = make(), torch.randint(13, (1, 5))
    cache = model.new_cache(max_length=5)
    if paged:
        pool = PagePool.for_model(model, num_pages=3, page_size=4)
        cache = PagedCache(pool, max_length=5)
    model(tokens[:, :4], cache=cache)
    with pytest.raises(ValueError, match="holds 4 of at most 5 tokens: there is no"):
        model(torch.randint(13, (1, 2)), cache=cache)
    last = model(tokens[:, 4:], cache=cache)
    torch.testing.assert_close(last, model(tokens)[:, 4:])


def test_a_cache_takes_the_type_of_its_first_keys_and_keeps_it() -> None:
    """A layer of packed integers does not tell in which type it computes."""
    k, v = torch.rand(2, 3, 4, 5).double(), torch.rand(2, 3, 4, 6).double()

    def empty() -> DenseCache:
        return DenseCache(torch.zeros(2, 3, 9, 5), torch.zeros(2, 3, 9, 6))

    cache = empty()
    keys, values = cache.append(k, v)
    torch.testing.assert_close((keys, values), (k, v), rtol=0, atol=0)
    keys, _ = cache.append(k.float(), v.float())
    assert keys.dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):  # there, types differ by call
        keys, _ = empty().append(k, v)
    assert keys.dtype == torch.float32
