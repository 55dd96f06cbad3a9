"""Chosen blocks: gathered = masked = FlexAttention, and all blocks = attention."""

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from tested_transformer.attention import attention_with_weights
from tested_transformer.attentions import (
    ChosenBlocks,
    attention_in_blocks,
    choose_blocks,
    chosen_mask,
    flex_blocks,
)
from tested_transformer.flex import blockwise_attention
from tested_transformer.multihead import MultiHeadAttention

B, H, H_KV, T, S, D_K, D_V, D = 2, 6, 3, 13, 17, 5, 4, 11


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def drawn(t: int = T) -> list[Tensor]:
    shapes = (B, H, t, D_K), (B, H_KV, S, D_K), (B, H_KV, S, D_V)
    return [rand(*shape).requires_grad_() for shape in shapes]


def make_layer(num_chosen: int = 2, dropout: float = 0.0) -> MultiHeadAttention:
    return MultiHeadAttention(
        d_model=D,
        num_heads=H,
        head_dim=4,
        num_kv_heads=H_KV,
        dropout=dropout,
        bias=False,
        core=ChosenBlocks(block_size=3, num_chosen=num_chosen),
    ).double()


def test_the_best_blocks_are_those_of_a_loop() -> None:
    q, k, _ = (tensor.detach() for tensor in drawn())
    chosen = choose_blocks(q, k, block_size=3, num_chosen=3)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                own = (S - T + t) // 3
                keys = k[b, h // (H // H_KV)]
                score = [
                    sum(float(q[b, h, t] @ keys[s]) for s in range(3 * n, 3 * n + 3))
                    for n in range(own)
                ]
                best = sorted(range(own), key=lambda n, s=score: -s[n])[:2]
                expected = [own, *best, *[-1] * (2 - len(best))]
                assert chosen[b, h, t].tolist() == expected


@pytest.mark.parametrize(
    ("size", "count", "t"),
    [(3, 2, T), (3, 2, 1), (3, 4, S), (4, 1, T), (17, 1, S), (50, 2, 1)],
)
def test_gathered_is_masked(size: int, count: int, t: int) -> None:
    inputs = q, k, v = drawn(t)
    chosen = choose_blocks(q, k, block_size=size, num_chosen=count)
    mask = chosen_mask(chosen, num_keys=S, block_size=size)
    expected, weights = attention_with_weights(q, k, v, mask=mask)
    output = attention_in_blocks(q, k, v, chosen, block_size=size)
    assert_alike(output, expected, inputs, close=1e-11)
    # No query reads more than it chose, and each reads itself.
    assert (weights > 0).sum(dim=-1).max() <= size * count
    assert (weights.diagonal(offset=S - t, dim1=-2, dim2=-1) > 0).all()


def test_with_all_blocks_it_is_causal_attention() -> None:
    q, k, v = drawn()
    chosen = choose_blocks(q, k, block_size=3, num_chosen=6)
    expected, _ = attention_with_weights(q, k, v, causal=True)
    output = attention_in_blocks(q, k, v, chosen, block_size=3)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
    layer = make_layer(num_chosen=6)
    plain = MultiHeadAttention(
        d_model=D, num_heads=H, head_dim=4, num_kv_heads=H_KV, bias=False
    ).double()
    plain.load_state_dict(layer.state_dict())
    x = rand(B, T, D)
    torch.testing.assert_close(layer(x, causal=True), plain(x, causal=True))


@pytest.mark.parametrize(
    ("t", "s", "size", "count"),
    [
        (256, 300, 32, 2),  # blocks smaller than a tile
        (300, 300, 48, 3),  # blocks that two tiles share
        (130, 515, 200, 2),  # blocks larger than a tile, and a tile of two queries
        (512, 512, 128, 4),  # all blocks, so that whole tiles are read
        (1, 300, 32, 2),
        (384, 384, 1000, 1),  # one block
    ],
)
def test_flex_attention_gets_the_tiles_that_asking_about_every_pair_gives(
    t: int, s: int, size: int, count: int
) -> None:
    q, k = torch.randn(2, 6, t, 8), torch.randn(2, 3, s, 8)
    chosen = choose_blocks(q, k, block_size=size, num_chosen=count)
    mask = chosen_mask(chosen, num_keys=s, block_size=size)
    blocks = flex_blocks(chosen, num_keys=s, block_size=size)
    expected = create_block_mask(
        lambda b, h, t, s: mask[b, h, t, s], 2, 6, t, s, device="cpu"
    )
    assert blocks.shape == expected.shape
    # Everything but the mask itself: counts and numbers of tiles, forward and backward.
    for a, b in zip(blocks.as_tuple()[:-1], expected.as_tuple()[:-1], strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


def test_flex_attention_gets_tiles_without_a_table_of_pairs() -> None:
    chosen = (torch.arange(1024) // 128)[None, None, :, None]
    with torch.profiler.profile(profile_memory=True) as record:
        flex_blocks(chosen, num_keys=1024, block_size=128)
    assert max(event.cpu_memory_usage for event in record.events()) < 1024 * 1024


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_told_the_same() -> None:
    q, k, v = torch.randn(1, 4, 256, 16), *torch.randn(2, 1, 2, 300, 16)
    chosen = choose_blocks(q, k, block_size=32, num_chosen=2)
    mask = flex_blocks(chosen, num_keys=300, block_size=32)
    output = blockwise_attention(q, k, v, block_mask=mask)
    expected = attention_in_blocks(q, k, v, chosen, block_size=32)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


def test_a_mask_hides_keys_of_chosen_blocks() -> None:
    layer, x = make_layer(), rand(B, T, D)
    mask = torch.rand(T, T) < 0.5
    _, weights = layer(x, causal=True, mask=mask, return_weights=True)
    assert not weights[..., ~mask].any()
    assert weights[..., mask].any()
    output, _ = layer(x, causal=True, mask=mask, return_weights=True)
    torch.testing.assert_close(layer(x, causal=True, mask=mask), output)


def test_what_does_not_fit() -> None:
    q, k, _ = drawn()
    with pytest.raises(ValueError, match="block_size=0 must be positive"):
        choose_blocks(q, k, block_size=0, num_chosen=2)
    with pytest.raises(ValueError, match="num_chosen=0 must be positive"):
        make_layer(num_chosen=0)
    with pytest.raises(ValueError, match="13 queries must not be more than 12 keys"):
        choose_blocks(q, k[:, :, :12], block_size=3, num_chosen=2)
    with pytest.raises(ValueError, match="causal=False is refused"):
        make_layer()(rand(B, T, D))


def test_a_choice_that_does_not_fit_is_named(as_a_caller: None) -> None:
    q, k = torch.rand(2, 6, 7, 4), torch.rand(2, 3, 7, 4)
    chosen = choose_blocks(q, k, block_size=2, num_chosen=3)
    with pytest.raises(ValueError, match=r"chosen must be .2, 6, 7. with one more"):
        attention_in_blocks(q, k, k, chosen[:, :, :5], block_size=2)
    with pytest.raises(ValueError, match="chosen has block 3; 7 keys with block_size="):
        attention_in_blocks(q, k, k, chosen, block_size=3)
    with pytest.raises(ValueError, match="block_size=0 must be positive"):
        chosen_mask(chosen, num_keys=7, block_size=0)
    with pytest.raises(ValueError, match="; 5 keys with block_size=2 have"):
        chosen_mask(chosen, num_keys=5, block_size=2)
    with pytest.raises(ValueError, match="q and k must be equally wide"):
        choose_blocks(q, k[..., :3], block_size=2, num_chosen=3)
