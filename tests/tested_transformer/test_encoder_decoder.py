"""The original transformer: PyTorch's layers and stacks are the oracle."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tested_transformer import causal_mask, padding_mask
from tested_transformer.cache import dense_layers
from tested_transformer.encoder_decoder import (
    AttentionMaps,
    CrossDecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    EncoderDecoderConfig,
    translate,
)
from tested_transformer.experts import count_parameters

# Pairwise different: batch, source, target, vocabulary, width, heads, feed-forward.
B, S, T, V, D, H, D_FF = 2, 7, 5, 13, 12, 3, 17
CONFIG = EncoderDecoderConfig(
    vocab_size=V,
    max_seq_len=11,
    d_model=D,
    num_heads=H,
    num_encoder_layers=2,
    num_decoder_layers=3,
    d_ff=D_FF,
)
SOURCE_MASK = padding_mask(torch.tensor([7, 4]))
TARGET_MASK = padding_mask(torch.tensor([5, 4]))


# Settings.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocab_size": 0}, r"^vocab_size=0 must be positive$"),
        ({"max_seq_len": 0}, r"^max_seq_len=0 must be positive$"),
        ({"num_encoder_layers": 0}, r"^num_encoder_layers=0 must be positive$"),
        ({"num_decoder_layers": -1}, r"^num_decoder_layers=-1 must be positive$"),
        ({"d_model": 9, "num_heads": 3}, r"^d_model=9 must be even for sinusoids$"),
        ({"d_model": 0}, r"^d_model=0 must be positive$"),
        ({"num_heads": 0}, r"^num_heads=0 must be positive$"),
        (
            {"d_model": 10, "num_heads": 3},
            r"^d_model=10 must be divisible by num_heads=3$",
        ),
        ({"norm": "batch"}, r"^norm='batch' must be one of layer, rms$"),
        ({"activation": "tan"}, r"^activation='tan' must be one of gelu,"),
        ({"dropout": 1.5}, r"^dropout=1.5 must lie between 0 and 1$"),
        ({"d_ff": 0}, r"^d_ff=0 must be positive$"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        EncoderDecoderConfig(**{"vocab_size": 11, **settings})


# The block of the encoder.


def encoder_like_torch(
    theirs: nn.TransformerEncoderLayer, *, fused: bool = True
) -> EncoderBlock:
    """Make the block that computes what PyTorch's layer does."""
    block = EncoderBlock(
        d_model=D, num_heads=H, d_ff=D_FF, norm_first=theirs.norm_first, fused=fused
    ).to(torch.double)
    weights = {}
    for part in ("weight", "bias"):
        inputs = getattr(theirs.self_attn, f"in_proj_{part}").chunk(3)
        for name, rows in zip("qkv", inputs, strict=True):
            weights[f"attention.{name}_proj.{part}"] = rows
        weights |= {
            f"attention.o_proj.{part}": getattr(theirs.self_attn.out_proj, part),
            f"feed_forward.up.{part}": getattr(theirs.linear1, part),
            f"feed_forward.down.{part}": getattr(theirs.linear2, part),
            f"add_attention.norm.{part}": getattr(theirs.norm1, part),
            f"add_feed_forward.norm.{part}": getattr(theirs.norm2, part),
        }
    block.load_state_dict(weights)
    return block


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_block_is_the_layer_of_torch_outputs_and_gradients(
    norm_first: bool, fused: bool
):
    theirs = nn.TransformerEncoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    ).to(torch.double)
    for parameter in theirs.parameters():  # norms and biases too, which start alike
        nn.init.normal_(parameter, std=0.5)
    ours = encoder_like_torch(theirs, fused=fused)
    mine = torch.randn(B, S, D, dtype=torch.double, requires_grad=True)
    yours = mine.detach().clone().requires_grad_()
    output = ours(mine, mask=SOURCE_MASK)
    expected = theirs(yours, src_key_padding_mask=~SOURCE_MASK[:, 0, 0])
    torch.testing.assert_close(output, expected)
    towards = torch.randn_like(output)
    output.backward(towards)
    expected.backward(towards)
    torch.testing.assert_close(mine.grad, yours.grad)
    torch.testing.assert_close(
        ours.feed_forward.up.weight.grad, theirs.linear1.weight.grad
    )
    torch.testing.assert_close(
        ours.add_attention.norm.weight.grad, theirs.norm1.weight.grad
    )
    grads = [getattr(ours.attention, f"{name}_proj").weight.grad for name in "qkv"]
    torch.testing.assert_close(torch.cat(grads), theirs.self_attn.in_proj_weight.grad)


def test_an_encoder_block_returns_the_weights_of_its_own_pass():
    block = EncoderBlock(d_model=D, num_heads=H)
    x = torch.randn(B, S, D)
    output, weights = block(x, mask=SOURCE_MASK, return_weights=True)
    torch.testing.assert_close(output, block(x, mask=SOURCE_MASK))
    _, expected = block.attention(x, mask=SOURCE_MASK, return_weights=True)
    torch.testing.assert_close(weights, expected)
    assert weights.shape == (B, H, S, S)
    assert not weights[1, :, :, 4:].any()


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_position_reads_every_other(norm_first: bool):
    block = EncoderBlock(d_model=D, num_heads=H, norm_first=norm_first)
    slopes = torch.autograd.functional.jacobian(block, torch.randn(1, S, D))
    assert (slopes[0, :, :, 0].abs().amax(dim=(1, 3)) > 0).all()


def test_settings_reach_the_parts_of_an_encoder_block():
    block = EncoderBlock(
        d_model=D,
        num_heads=H,
        d_ff=7,
        activation="swiglu",
        norm="rms",
        norm_first=True,
        bias=False,
        dropout=0.25,
        fused=False,
    )
    assert (block.attention.fused, block.attention.dropout) == (False, 0.25)
    assert block.feed_forward.gate.weight.shape == (7, D)
    assert all(not name.endswith("bias") for name in block.state_dict())
    for add in (block.add_attention, block.add_feed_forward):
        assert (add.dropout.p, add.norm_first) == (0.25, True)
        assert isinstance(add.norm, nn.RMSNorm)
    # By hand: four matrices of 144, two norms of 12, three matrices of 84.
    assert count_parameters(block) == 576 + 24 + 252


# The block of the decoder.


def decoder_like_torch(
    theirs: nn.TransformerDecoderLayer, *, fused: bool = True
) -> CrossDecoderBlock:
    """Make the block that computes what PyTorch's layer does."""
    block = CrossDecoderBlock(
        d_model=D, num_heads=H, d_ff=D_FF, norm_first=theirs.norm_first, fused=fused
    ).to(torch.double)
    attentions = {
        "attention": theirs.self_attn,
        "cross_attention": theirs.multihead_attn,
    }
    modules = {
        "feed_forward.up": theirs.linear1,
        "feed_forward.down": theirs.linear2,
        "add_attention.norm": theirs.norm1,
        "add_cross_attention.norm": theirs.norm2,
        "add_feed_forward.norm": theirs.norm3,
    }
    weights = {}
    for part in ("weight", "bias"):
        for home, attention in attentions.items():
            inputs = getattr(attention, f"in_proj_{part}").chunk(3)
            for name, rows in zip("qkv", inputs, strict=True):
                weights[f"{home}.{name}_proj.{part}"] = rows
            weights[f"{home}.o_proj.{part}"] = getattr(attention.out_proj, part)
        for home, module in modules.items():
            weights[f"{home}.{part}"] = getattr(module, part)
    block.load_state_dict(weights)
    return block


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoder_block_is_the_layer_of_torch_outputs_and_gradients(
    norm_first: bool, fused: bool
):
    theirs = nn.TransformerDecoderLayer(
        D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    ).to(torch.double)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = decoder_like_torch(theirs, fused=fused)
    mine = [
        torch.randn(B, length, D, dtype=torch.double, requires_grad=True)
        for length in (T, S)
    ]
    yours = [tensor.detach().clone().requires_grad_() for tensor in mine]
    output = ours(mine[0], context=mine[1], mask=TARGET_MASK, context_mask=SOURCE_MASK)
    expected = theirs(
        *yours,
        tgt_mask=~causal_mask(T),
        tgt_key_padding_mask=~TARGET_MASK[:, 0, 0],
        memory_key_padding_mask=~SOURCE_MASK[:, 0, 0],
    )
    torch.testing.assert_close(output, expected)
    towards = torch.randn_like(output)
    output.backward(towards)
    expected.backward(towards)
    for my_input, your_input in zip(mine, yours, strict=True):
        torch.testing.assert_close(my_input.grad, your_input.grad)
    for my_part, your_part in (
        (ours.attention, theirs.self_attn),
        (ours.cross_attention, theirs.multihead_attn),
    ):
        grads = [getattr(my_part, f"{name}_proj").weight.grad for name in "qkv"]
        torch.testing.assert_close(torch.cat(grads), your_part.in_proj_weight.grad)
    torch.testing.assert_close(
        ours.feed_forward.down.weight.grad, theirs.linear2.weight.grad
    )


def test_it_returns_the_weights_of_both_attentions():
    block = CrossDecoderBlock(d_model=D, num_heads=H)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    masks = {"mask": TARGET_MASK, "context_mask": SOURCE_MASK}
    output, own, cross = block(x, context=context, **masks, return_weights=True)
    torch.testing.assert_close(output, block(x, context=context, **masks))
    assert (own.shape, cross.shape) == ((B, H, T, T), (B, H, T, S))
    assert torch.equal(own > 0, (causal_mask(T) & TARGET_MASK).expand_as(own))
    assert torch.equal(cross > 0, SOURCE_MASK.expand_as(cross))


def test_the_past_is_read_and_the_future_is_not_and_all_of_the_context_is():
    block = CrossDecoderBlock(d_model=D, num_heads=H)

    def run(x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return block(x, context=context)

    inputs = torch.randn(1, T, D), torch.randn(1, S, D)
    own, cross = torch.autograd.functional.jacobian(run, inputs)
    read = own[0, :, :, 0].abs().amax(dim=(1, 3)) > 0
    assert torch.equal(read, causal_mask(T))
    assert (cross[0, :, :, 0].abs().amax(dim=(1, 3)) > 0).all()


@pytest.mark.parametrize("norm_first", [False, True])
def test_in_a_decoder_block_a_cache_gives_what_a_whole_pass_gives(norm_first: bool):
    block = CrossDecoderBlock(d_model=D, num_heads=H, norm_first=norm_first)
    x, context = torch.randn(B, T, D), torch.randn(B, S, D)
    whole = block(x, context=context)
    cache = block.attention.new_cache(B, T)
    with torch.no_grad():
        pieces = [block(piece, context=context, cache=cache) for piece in x.split(2, 1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole)


def test_settings_reach_the_parts_of_a_decoder_block():
    block = CrossDecoderBlock(
        d_model=D,
        num_heads=H,
        d_context=5,
        d_ff=7,
        activation="swiglu",
        norm="rms",
        norm_first=True,
        bias=False,
        dropout=0.25,
        fused=False,
    )
    assert block(torch.randn(B, T, D), context=torch.randn(B, S, 5)).shape == (B, T, D)
    for attention in (block.attention, block.cross_attention):
        assert (attention.fused, attention.dropout) == (False, 0.25)
    adds = (block.add_attention, block.add_cross_attention, block.add_feed_forward)
    for add in adds:
        assert (add.dropout.p, add.norm_first) == (0.25, True)
        assert isinstance(add.norm, nn.RMSNorm)
    assert all(not name.endswith("bias") for name in block.state_dict())
    # By hand: four matrices of 144; two of 144 and two of 60; three norms; three of 84.
    assert count_parameters(block) == 576 + 408 + 36 + 252


# The model.


def make(**settings: object) -> EncoderDecoder:
    return EncoderDecoder(replace(CONFIG, **settings)).double()


def sequences() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(V, (B, S)), torch.randint(V, (B, T))


def test_its_parameters_are_those_counted_by_hand():
    # Attention 4 * (144 + 12) = 624, feed-forward 12 * 17 * 2 + 17 + 12 = 437, norm 24.
    encoder = 2 * (624 + 437 + 2 * 24)
    decoder = 3 * (2 * 624 + 437 + 3 * 24)
    assert count_parameters(make()) == V * 12 + encoder + decoder
    # Pre-norm has one norm more at the end of each stack.
    assert count_parameters(make(norm_first=True)) == count_parameters(make()) + 2 * 24


@pytest.mark.parametrize("norm_first", [False, True])
def test_it_is_the_stacks_of_torch(norm_first: bool):
    ours = make(norm_first=norm_first)
    layer = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    theirs = nn.ModuleDict(
        {
            "encoder": nn.TransformerEncoder(
                nn.TransformerEncoderLayer(12, 3, 17, **layer),
                2,
                norm=nn.LayerNorm(12) if norm_first else None,
                enable_nested_tensor=False,
            ),
            "decoder": nn.TransformerDecoder(
                nn.TransformerDecoderLayer(12, 3, 17, **layer),
                3,
                norm=nn.LayerNorm(12) if norm_first else None,
            ),
        }
    ).double()
    for parameter in theirs.parameters():  # its layers start as copies of one
        nn.init.normal_(parameter, std=0.3)
    names = {
        "linear1": "feed_forward.up",
        "linear2": "feed_forward.down",
        "self_attn.out_proj": "attention.o_proj",
        "multihead_attn.out_proj": "cross_attention.o_proj",
    }
    norms = {
        "encoder": {"norm1": "attention", "norm2": "feed_forward"},
        "decoder": {
            "norm1": "attention",
            "norm2": "cross_attention",
            "norm3": "feed_forward",
        },
    }
    weights = ours.state_dict()
    for name, tensor in theirs.state_dict().items():
        stack, kind, *rest = name.split(".")
        if kind == "norm":
            weights[f"{stack}_norm.{rest[0]}"] = tensor
            continue
        layer, *middle, last = rest
        part, home = ".".join(middle), f"{stack}.{layer}"
        if last.startswith("in_proj"):
            part = {"self_attn": "attention"}.get(part, "cross_attention")
            for each, rows in zip("qkv", tensor.chunk(3), strict=True):
                weights[f"{home}.{part}.{each}_proj.{last[8:]}"] = rows
        elif part in names:
            weights[f"{home}.{names[part]}.{last}"] = tensor
        else:
            weights[f"{home}.add_{norms[stack][part]}.norm.{last}"] = tensor
    ours.load_state_dict(weights)

    source, target = sequences()
    logits = ours(source, target, source_mask=SOURCE_MASK)
    scale, table = 12**0.5, ours.position_table.double()
    context = theirs["encoder"](
        ours.token_embedding(source) * scale + table[:S],
        src_key_padding_mask=~SOURCE_MASK[:, 0, 0],
    )
    ends = theirs["decoder"](
        ours.token_embedding(target) * scale + table[:T],
        context,
        tgt_mask=~causal_mask(T),
        memory_key_padding_mask=~SOURCE_MASK[:, 0, 0],
    )
    torch.testing.assert_close(logits, ends @ ours.token_embedding.weight.T)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_stepwise_is_chunked_is_the_whole(fused: bool, norm_first: bool):
    model = make(fused=fused, norm_first=norm_first)
    source, target = sequences()
    whole = model(source, target, source_mask=SOURCE_MASK)
    context = model.encode(source, mask=SOURCE_MASK)
    for sizes in ([1] * T, [2, 3], [T]):
        cache = model.new_cache(B)
        with torch.no_grad():
            pieces = [
                model.decode(piece, context, context_mask=SOURCE_MASK, cache=cache)
                for piece in target.split(sizes, dim=1)
            ]
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole)
        assert cache.length == T


def test_the_target_does_not_leak_and_the_source_is_read_whole():
    model = make()
    source, target = sequences()
    before = model(source, target)
    for s in range(T):
        changed = target.clone()
        changed[:, s] = (changed[:, s] + 1) % V
        moved = (model(source, changed) - before).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [t >= s for t in range(T)]
    for s in range(S):
        changed = source.clone()
        changed[:, s] = (changed[:, s] + 1) % V
        assert ((model(changed, target) - before).abs().amax(dim=2) > 1e-9).all()
        read = model.encode(changed) - model.encode(source)
        assert (read.abs().amax(dim=2) > 1e-9).all()


def test_what_stands_in_the_padding_changes_nothing():
    model = make()
    source, target = sequences()
    other = torch.where(SOURCE_MASK[:, 0, 0], source, (source + 1) % V)
    assert not torch.equal(source, other)
    one = model(source, target, source_mask=SOURCE_MASK)
    torch.testing.assert_close(one, model(other, target, source_mask=SOURCE_MASK))
    alone = model(source[1:, :4], target[1:])
    torch.testing.assert_close(one[1:], alone)
    assert not torch.allclose(one, model(other, target))


def test_padding_before_the_target_is_hidden_by_its_mask():
    model = make()
    source, target = sequences()
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[1, ..., 1] = False
    changed = target.clone()
    changed[1, 1] = (changed[1, 1] + 1) % V
    one, other = (model(source, t, target_mask=mask) for t in (target, changed))
    torch.testing.assert_close(one[:, [0, 2, 3, 4]], other[:, [0, 2, 3, 4]])
    assert not torch.allclose(one, model(source, target))


def test_the_weights_are_those_of_the_pass():
    model = make()
    source, target = sequences()
    logits, maps = model(source, target, source_mask=SOURCE_MASK, return_weights=True)
    torch.testing.assert_close(logits, model(source, target, source_mask=SOURCE_MASK))
    assert [weights.shape for weights in maps.encoder] == [(B, 3, S, S)] * 2
    assert [weights.shape for weights in maps.decoder] == [(B, 3, T, T)] * 3
    assert [weights.shape for weights in maps.cross] == [(B, 3, T, S)] * 3
    for weights in (*maps.encoder, *maps.cross):
        assert torch.equal(weights > 0, SOURCE_MASK.expand_as(weights))
    for weights in maps.decoder:
        assert torch.equal(weights > 0, causal_mask(T).expand_as(weights))


def test_one_embedding_serves_three_times_and_is_scaled_twice():
    model = make(num_encoder_layers=1, num_decoder_layers=1)
    model.encoder = model.decoder = nn.ModuleList()
    tokens = torch.tensor([[3, 8]])
    x = model.token_embedding.weight[[3, 8]] * 12**0.5 + model.position_table[:2]
    torch.testing.assert_close(model.encode(tokens)[0], x)
    logits = model.decode(tokens, model.encode(tokens))
    torch.testing.assert_close(logits[0], x @ model.token_embedding.weight.T)


def test_at_the_start_a_scaled_embedding_is_as_long_as_a_position():
    model = make(vocab_size=1000, d_model=48)
    lengths = model.token_embedding.weight.norm(dim=-1).mean()
    assert 0.9 < lengths < 1.1
    assert 0.5 < lengths * 48**0.5 / model.position_table.norm(dim=-1).mean() < 2
    biases = [p for name, p in model.named_parameters() if name.endswith("_proj.bias")]
    assert len(biases) == 2 * 4 + 3 * 8
    assert not any(bias.any() for bias in biases)


def test_dropout_is_for_training():
    model = make(dropout=0.5)
    source, target = sequences()
    assert not torch.allclose(model(source, target), model(source, target))
    model.eval()
    torch.testing.assert_close(model(source, target), model(source, target))


def test_dropout_reaches_the_embedding_and_every_block():
    model = make(dropout=1.0)
    model.encoder = nn.ModuleList()
    assert not model.encode(torch.randint(V, (B, S))).any()
    for block in model.decoder:
        assert (block.attention.dropout, block.add_attention.dropout.p) == (1.0, 1.0)


def test_a_cache_is_as_long_as_it_is_asked_to_be():
    model = make()
    cache = model.new_cache(4, max_length=5)
    assert (cache.batch_size, len(cache.layers)) == (4, 3)
    keys = dense_layers(cache)[0].keys
    assert (keys.shape, keys.dtype) == ((4, 3, 5, 4), torch.double)
    assert dense_layers(model.new_cache())[0].keys.shape[2] == 11
    with pytest.raises(ValueError, match=r"^batch_size=0 must be positive$"):
        model.new_cache(0)


def test_tokens_that_do_not_fit_are_named(as_a_caller: None):
    model = make()
    source, target = sequences()
    with pytest.raises(
        ValueError,
        match=r"^source tokens must be \(B, T\) and not empty; their shape is \(7,\)$",
    ):
        model.encode(source[0])
    with pytest.raises(
        ValueError,
        match=r"^12 target tokens are more than max_seq_len=11$",
    ):
        model(source, torch.zeros(B, 12, dtype=torch.long))
    with pytest.raises(
        ValueError,
        match=r"^target tokens hold ids from 0 to 13; they must be at least 0 and less "
        r"than vocab_size=13$",
    ):
        model(source, torch.tensor([[0, 13]] * B))
    cache = model.new_cache(B)
    context = model.encode(source)
    model.decode(torch.zeros(B, 9, dtype=torch.long), context, cache=cache)
    message = "5 target tokens after 9 in the cache are more than max_seq_len=11"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.decode(target, context, cache=cache)


@pytest.mark.parametrize("num_layers", [1, 4])
def test_the_cache_of_another_model_is_refused(num_layers: int):
    other = EncoderDecoder(replace(CONFIG, num_decoder_layers=num_layers))
    target, context = torch.zeros(B, T, dtype=torch.long), torch.randn(B, S, D)
    message = f"^cache has {num_layers} layers, the model 3: make it with the model's"
    with pytest.raises(ValueError, match=message):
        EncoderDecoder(CONFIG).decode(target, context, cache=other.new_cache(B))


def test_after_a_pass_that_broke_off_a_cache_is_refused():
    model = EncoderDecoder(CONFIG)
    target, context = torch.zeros(B, T, dtype=torch.long), torch.randn(B, S, D)
    cache = model.new_cache(B)
    short = torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^mask is \(1, 3\)"):
        model.decode(target, context, context_mask=short, cache=cache)
    with pytest.raises(ValueError, match=r"they hold \[5, 0, 0\]"):
        model.decode(target, context, cache=cache)


def test_a_model_from_meta_is_as_good_as_new():
    with torch.device("meta"):
        model = EncoderDecoder(CONFIG)
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.detach().fill_(torch.nan)
    torch.manual_seed(5)
    model.reset_parameters()
    torch.manual_seed(5)
    fresh = EncoderDecoder(CONFIG)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model(*sequences_of(3)), fresh(*sequences_of(3)))
    assert model(*sequences_of(3)).isfinite().all()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()


def sequences_of(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return sequences()


def test_it_is_made_where_and_as_it_is_asked_to_be():
    model = EncoderDecoder(CONFIG, device="meta", dtype=torch.bfloat16)
    tensors = [*model.parameters(), *model.buffers()]
    assert {(each.device.type, each.dtype) for each in tensors} == {
        ("meta", torch.bfloat16)
    }
    double = EncoderDecoder(CONFIG, dtype=torch.double)
    assert double(*sequences()).dtype == torch.double


def test_each_half_leaves_its_weights_where_it_is_told_to():
    model = make()
    source, target = sequences()
    maps = AttentionMaps([], [], [])
    context = model.encode(source, mask=SOURCE_MASK, maps=maps)
    assert (len(maps.encoder), len(maps.decoder), len(maps.cross)) == (2, 0, 0)
    model.decode(target, context, context_mask=SOURCE_MASK, maps=maps)
    _, expected = model(source, target, source_mask=SOURCE_MASK, return_weights=True)
    for one, other in zip(maps, expected, strict=True):
        assert all(map(torch.equal, one, other))


# Translation: what greedy choice gives, and where it stops.

BOS, EOS = 1, 2
LENGTHS = (5, 4, 2)
MASK = padding_mask(torch.tensor(LENGTHS))


@pytest.fixture
def model() -> EncoderDecoder:
    return EncoderDecoder(
        EncoderDecoderConfig(vocab_size=V, max_seq_len=7, d_model=12, num_heads=3)
    ).double()


def some_sources() -> torch.Tensor:
    return torch.randint(3, V, (3, 5))


def by_hand(model: EncoderDecoder, source: torch.Tensor, longest: int) -> list[int]:
    """Run the whole model anew for each token of one sentence."""
    written = [BOS]
    while len(written) <= longest and EOS not in written:
        logits = model(source[None], torch.tensor([written]))
        written.append(int(logits[0, -1].argmax()))
    return written[1:]


def test_each_sentence_is_what_the_whole_model_writes_for_it_alone(
    model: EncoderDecoder,
):
    # Tokens that are likely by themselves, so that sentences end at different times.
    lengths = set()
    for seed in range(5):
        torch.manual_seed(seed)
        model.reset_parameters()
        source = some_sources()
        written = translate(model, source, source_mask=MASK, bos=BOS, eos=EOS)
        for row, tokens, length in zip(written, source, LENGTHS, strict=True):
            expected = by_hand(model, tokens[:length], 7)
            lengths.add(len(expected))
            filled = expected + [EOS] * (written.shape[1] - len(expected))
            assert row.tolist() == filled
    assert len(lengths) > 1


def test_it_stops_at_the_length_it_is_given(model: EncoderDecoder):
    source = some_sources()
    whole = translate(model, source, bos=BOS, eos=EOS)
    short = translate(model, source, bos=BOS, eos=EOS, max_length=1)
    assert torch.equal(short, whole[:, :1])
    assert not short.requires_grad


def test_it_writes_without_dropout_and_goes_on_to_train(model: EncoderDecoder):
    source = some_sources()
    expected = translate(model, source, bos=BOS, eos=EOS)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9
    model.train()
    assert torch.equal(translate(model, source, bos=BOS, eos=EOS), expected)
    assert model.training


def test_the_encoder_runs_once(model: EncoderDecoder):
    calls = []
    model.encoder[0].register_forward_hook(lambda *_: calls.append(1))
    translate(model, some_sources(), bos=BOS, eos=EOS)
    assert len(calls) == 1


def test_a_length_that_does_not_fit_is_named(model: EncoderDecoder):
    source = some_sources()
    for max_length in (0, 8):
        with pytest.raises(
            ValueError,
            match=rf"^max_length={max_length} must lie between 1 and max_seq_len=7$",
        ):
            translate(model, source, bos=BOS, eos=EOS, max_length=max_length)


def test_what_a_model_says_after_the_end_is_not_kept(
    model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch
):
    script = torch.tensor([[EOS, 5, 6], [7, EOS, 8], [9, 10, EOS]])
    steps = iter(script.unbind(dim=1))

    def decode(target: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        return torch.nn.functional.one_hot(next(steps), V)[:, None].double()

    monkeypatch.setattr(model, "decode", decode)
    written = translate(model, some_sources(), bos=BOS, eos=EOS)
    assert written.tolist() == [[EOS, EOS, EOS], [7, EOS, EOS], [9, 10, EOS]]


def test_other_modules_may_stand_in_for_every_layer(
    replaced: Callable[[EncoderDecoder], tuple[EncoderDecoder, EncoderDecoder]],
):
    other, plain = replaced(EncoderDecoder(CONFIG).double())
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    torch.testing.assert_close(
        other(source, target), plain(source, target), rtol=1e-8, atol=1e-8
    )
    written, expected = (
        translate(each, source, bos=1, eos=2, max_length=9) for each in (other, plain)
    )
    assert torch.equal(written, expected)


@pytest.mark.parametrize("where", ["meta", "fake"])
def test_it_is_made_and_run_without_numbers(where: str):
    with torch.device("meta") if where == "meta" else FakeTensorMode():
        model = EncoderDecoder(CONFIG)
        source = torch.zeros(B, S, dtype=torch.long)
        logits = model(source, torch.zeros(B, T, dtype=torch.long))
        logits.sum().backward()
    assert logits.shape == (B, T, V)
