"""A rolling cache against the open attention, and that against one token at a time."""

from dataclasses import replace

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor

from tested_transformer.attention import attention_with_weights
from tested_transformer.caches import (
    RollingLayer,
    rolling_cache,
    sink_attention,
    sink_mask,
    stream_logits,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import merge_heads, split_heads
from tested_transformer.positions import alibi_bias, rotary_table, rotate
from tested_transformer.rotary_scaling import (
    plain_rates,
    yarn_attention_factor,
    yarn_rates,
)
from tested_transformer.surgery import stretched

# Pairwise different: batch, heads, head width, tokens.
B, H, D_K, T = 2, 3, 8, 19
SIZES = [
    (0, 1, True),
    (0, 5, False),
    (1, 4, True),
    (2, 3, False),
    (4, 1, True),
    (3, 30, True),
]


def one_by_one(q, k, v, *, sinks, window, rotary=False, slopes=None):
    """Attend from each token to what is kept then, set side by side: the oracle."""
    outputs: list[Tensor] = []
    for t in range(q.shape[2]):
        kept = [s for s in range(t + 1) if s < sinks or s > t - window]
        query, keys, values = q[:, :, t : t + 1], k[:, :, kept], v[:, :, kept]
        if rotary:
            table = rotary_table(torch.arange(len(kept)), q.shape[-1])
            query, keys = rotate(query, table[:, -1:]), rotate(keys, table)
        bias = None if slopes is None else alibi_bias(slopes, 1, len(kept))
        output, _ = attention_with_weights(query, keys, values, score_bias=bias)
        outputs.append(output)
    return torch.cat(outputs, dim=2)


@pytest.mark.parametrize(("sinks", "window", "rotary"), SIZES)
def test_a_whole_text_at_once_is_token_by_token(sinks, window, rotary):
    q, k = torch.randn(2, B, H, T, D_K, requires_grad=True)
    v = torch.randn(B, H, T, 5, requires_grad=True)
    rates = plain_rates(D_K) if rotary else None
    output, weights = sink_attention(q, k, v, sinks=sinks, window=window, rates=rates)
    expected = one_by_one(q, k, v, sinks=sinks, window=window, rotary=rotary)
    assert_alike(output, expected, (q, k, v))
    assert weights.shape == (B, H, T, T)
    mask = sink_mask(T, sinks=sinks, window=window)
    assert torch.equal(weights > 0, mask.expand_as(weights))
    assert torch.equal(sink_mask(2, T, sinks=sinks, window=window), mask[-2:])


def new_layer(heads: int, sinks: int, window: int, *, rotary: bool) -> RollingLayer:
    room = torch.full((2, B, heads, sinks + window, D_K), torch.nan)
    table = rotary_table(torch.arange(sinks + window), D_K) if rotary else None
    return RollingLayer(room[0], room[1], sinks=sinks, table=table)


def make(positions: str, **choices) -> GPT:
    config = GPTConfig(
        vocab_size=11,
        max_seq_len=T,
        d_model=H * D_K,
        num_heads=H,
        num_layers=2,
        positions=positions,
    )
    return with_large_weights(GPT(replace(config, **choices))).requires_grad_(False)


def open_logits(model: GPT, tokens: Tensor, attend) -> Tensor:
    """Return what a GPT guesses whose heads attend by a function of q, k and v."""
    x = model.token_embedding(tokens)
    for block in model.blocks:
        layer, y = block.attention, block.attention_norm(x)
        q = split_heads(layer.q_proj(y), layer.num_heads)
        k, v = (
            split_heads(part(y), layer.num_kv_heads).repeat_interleave(
                layer.num_heads // layer.num_kv_heads, dim=1
            )
            for part in (layer.k_proj, layer.v_proj)
        )
        x = x + layer.o_proj(merge_heads(attend(q, k, v)))
        x = x + block.feed_forward(block.feed_forward_norm(x))
    return model.norm(x) @ model.head_weight.T


def test_layers_with_a_window_roll_by_the_rates_of_their_base():
    local = make("rotary", windows=T, local_rotary_base=5.0)
    usual = replace(local.config, rotary_base=5.0, local_rotary_base=None)
    tokens = torch.randint(11, (B, 2 * T))
    local_logits, usual_logits = (
        stream_logits(
            model, tokens, rolling_cache(model, sinks=2, window=5, batch_size=B)
        )
        for model in (local, GPT.from_weights(usual, local.state_dict()))
    )
    torch.testing.assert_close(local_logits, usual_logits)


def test_layers_that_do_not_rotate_roll_without_positions():
    still, bare = make("rotary", rotary_layers=(False, False)), make("none")
    bare.load_state_dict(still.state_dict())
    tokens = torch.randint(11, (B, 2 * T))
    still_logits, bare_logits = (
        stream_logits(
            model, tokens, rolling_cache(model, sinks=2, window=5, batch_size=B)
        )
        for model in (still, bare)
    )
    assert torch.equal(still_logits, bare_logits)


@pytest.mark.parametrize(
    ("positions", "sinks", "window", "kv_heads"),
    [
        ("rotary", 0, 5, 3),
        ("rotary", 4, 15, 1),
        ("alibi", 2, 3, 1),
        ("alibi", 0, 5, 3),
        ("none", 2, 3, 3),
    ],
)
def test_a_model_reads_on_as_in_the_open(positions, sinks, window, kv_heads):
    model = make(positions, num_kv_heads=kv_heads)
    tokens = torch.randint(11, (B, 3 * T))  # longer than max_seq_len
    cache = rolling_cache(model, sinks=sinks, window=window, batch_size=B)
    got = stream_logits(model, tokens, cache)
    slopes = model.slopes if positions == "alibi" else None
    how = {"sinks": sinks, "window": window, "slopes": slopes}
    expected = open_logits(
        model,
        tokens,
        lambda q, k, v: one_by_one(q, k, v, **how, rotary=positions == "rotary"),
    )
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_it_takes_no_more_memory_however_long_the_text():
    model = make("rotary", num_kv_heads=1)
    cache = rolling_cache(model, sinks=2, window=5, batch_size=B)
    assert cache.nbytes == 2 * 2 * B * 1 * 7 * D_K * 4
    layers = [layer for layer in cache.layers if isinstance(layer, RollingLayer)]
    where = [layer.keys.data_ptr() for layer in layers]
    stream_logits(model, torch.randint(11, (B, 100)), cache)
    assert [layer.keys.data_ptr() for layer in layers] == where
    assert cache.length == 6  # the place of the next token
    keys, values = layers[0].append(*torch.randn(2, B, 1, 1, D_K))
    assert keys.shape == values.shape == (B, 1, 7, D_K)


def test_keys_scaled_by_yarn_are_turned_back_exactly():
    rates = yarn_rates(D_K, factor=4.0, trained_length=T)
    scale = yarn_attention_factor(4.0)
    model = stretched(make("rotary"), T, rates, attention_factor=scale)
    cache = rolling_cache(model, sinks=2, window=3, batch_size=B)
    with torch.no_grad():
        got = stream_logits(model, torch.randint(11, (B, 1)).expand(B, 30), cache)
    # The same token over and over: once the cache is full of it, nothing changes.
    torch.testing.assert_close(got[:, -1], got[:, -2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("positions", "sizes", "message"),
    [
        ("learned", (1, 2), "positions='learned' of model must be 'rotary', 'alibi'"),
        ("sinusoidal", (1, 2), "positions='sinusoidal' of model must be 'rotary', "),
        ("rotary", (-1, 2), "sinks=-1 must not be negative"),
        ("rotary", (1, 0), "window=0 must be positive"),
        ("rotary", (4, 16), "max_length=20 must lie between 1 and max_seq_len=19"),
    ],
)
def test_sizes_that_do_not_fit_a_model_are_refused(
    positions: str, sizes: tuple[int, int], message: str
):
    sinks, window = sizes
    with pytest.raises(ValueError, match=message):
        rolling_cache(make(positions), sinks=sinks, window=window)


def test_what_does_not_fit_is_refused(as_a_caller: None):
    with pytest.raises(ValueError, match="windows=5 of model must not be smaller th"):
        rolling_cache(make("rotary", windows=5), sinks=1, window=5)
    with pytest.raises(ValueError, match="4 tokens do not fit a rolling cache of 3 wi"):
        new_layer(1, 1, 2, rotary=False).append(*torch.randn(2, B, 1, 4, D_K))
    with pytest.raises(ValueError, match="window=0 must be positive"):
        sink_mask(3, sinks=0, window=0)
    with pytest.raises(ValueError, match=r"cache must come from rolling_cache$"):
        stream_logits(make("none"), torch.tensor([[3, 1]]), make("none").new_cache())
    for shape in ((3,), (2, 0)):
        with pytest.raises(ValueError, match=r"tokens must be \(B, T\) and not empty"):
            stream_logits(
                make("none"),
                torch.zeros(shape, dtype=torch.long),
                rolling_cache(make("none"), sinks=1, window=5),
            )
    qkv = torch.rand(3, 2, 3, 7, 4)
    with pytest.raises(ValueError, match="rates has 3 numbers; it must have 2"):
        sink_attention(*qkv, sinks=1, window=2, rates=plain_rates(6))


@pytest.mark.parametrize("length", [4, 9])
def test_a_full_cache_goes_back_to_nothing_or_to_where_it_is(length: int) -> None:
    """From the moment it is full: then the next token takes the place of another."""
    model = make("rotary", smear=True)
    tokens = torch.randint(11, (B, 13))
    cache, fresh = (rolling_cache(model, sinks=1, window=3, batch_size=B) for _ in "ab")
    stream_logits(model, tokens[:, :length], cache)
    assert (cache.length, cache.earliest) == (3, 3)
    message = "holds 3 tokens; it cannot go back to 2: a RollingLayer can keep 3 or"
    with pytest.raises(ValueError, match=message):
        cache.rewind(2)
    cache.rewind(3)
    full_logits = stream_logits(model, tokens, fresh)
    with pytest.raises(ValueError, match="2 tokens do not fit a rolling cache of 4 wi"):
        model(tokens[:, :2], cache=cache)
    rest = stream_logits(model, tokens[:, length:], cache)
    torch.testing.assert_close(rest, full_logits[:, length:])
    cache.rewind(0)
    torch.testing.assert_close(stream_logits(model, tokens, cache), full_logits)
