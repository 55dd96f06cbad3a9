"""Two stacks and what passes between them: who reads what, and that nothing leaks."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tested_transformer import causal_mask, padding_mask
from tested_transformer.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from tested_transformer.experts import count_parameters

B, S, T, V = 2, 7, 5, 13
CONFIG = EncoderDecoderConfig(
    vocab_size=V,
    max_seq_len=11,
    d_model=12,
    num_heads=3,
    num_encoder_layers=2,
    num_decoder_layers=3,
    d_ff=17,
)
SOURCE_MASK = padding_mask(torch.tensor([7, 4]))


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
    assert (cache.batch_size, cache.max_length, len(cache.layers)) == (4, 5, 3)
    assert cache.layers[0].keys.shape == (4, 3, 5, 4)
    assert cache.layers[0].keys.dtype == torch.double
    assert model.new_cache().max_length == 11


def test_tokens_that_do_not_fit_are_named(as_a_caller: None):
    model = make()
    source, target = sequences()
    with pytest.raises(
        ValueError, match=r"^source must be \(batch, length\), not empty; it is \(7,\)$"
    ):
        model.encode(source[0])
    with pytest.raises(
        ValueError,
        match=r"^target is 12 tokens long, which is more than max_seq_len=11$",
    ):
        model(source, torch.zeros(B, 12, dtype=torch.long))
    with pytest.raises(
        ValueError,
        match=r"^target holds ids from 0 to 13; they must be at least 0 and less than "
        r"vocab_size=13$",
    ):
        model(source, torch.tensor([[0, 13]] * B))
    cache = model.new_cache(B)
    context = model.encode(source)
    model.decode(torch.zeros(B, 9, dtype=torch.long), context, cache=cache)
    with pytest.raises(ValueError, match=r"^target is 14 tokens long, which is more"):
        model.decode(target, context, cache=cache)
