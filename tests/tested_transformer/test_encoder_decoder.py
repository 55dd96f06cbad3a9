"""The original transformer: PyTorch's layers and stacks are the oracle."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer import causal_mask, padding_mask
from tested_transformer.cache import KVCache, dense_layers
from tested_transformer.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderConfig,
    translate,
)

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


# Settings.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 9, "num_heads": 3}, r"^d_model=9 must be even for sinusoids$"),
        ({"d_model": 10, "num_heads": 3}, r"^d_model=10 must be divisible by num_h"),
        ({"norm": "batch"}, r"^norm='batch' must be one of layer, rms$"),
        ({"activation": "tan"}, r"^activation='tan' must be one of gelu,"),
        ({"dropout": 1.5}, r"^dropout=1.5 must lie between 0 and 1$"),
        *(
            ({name: 0}, f"^{name}=0 must be positive$")
            for name in ("vocab_size", "max_seq_len", "d_ff")
        ),
        ({"num_encoder_layers": 0}, r"^num_encoder_layers=0 must be positive$"),
        ({"num_decoder_layers": 0}, r"^num_decoder_layers=0 must be positive$"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **settings)


# The model.


def make(**settings: object) -> EncoderDecoder:
    return EncoderDecoder(replace(CONFIG, **settings)).double()


def sequences() -> tuple[Tensor, Tensor]:
    return torch.randint(V, (B, S)), torch.randint(V, (B, T))


class Stacks(nn.Module):
    """PyTorch's stacks, which read what an embedding and a table of positions say."""

    def __init__(self, *, norm_first: bool) -> None:
        super().__init__()
        layer = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        norms = [nn.LayerNorm(D) if norm_first else None for _ in range(2)]
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, H, D_FF, **layer),
            2,
            norm=norms[0],
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(D, H, D_FF, **layer), 3, norm=norms[1]
        )

    def forward(self, source: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
        padding = ~SOURCE_MASK[:, 0, 0]
        return self.decoder(
            target,
            self.encoder(source, src_key_padding_mask=padding),
            tgt_mask=~causal_mask(T),
            tgt_key_padding_mask=~target_mask[:, 0, 0],
            memory_key_padding_mask=padding,
        )


PARTS = {
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
    "self_attn": "attention",
    "multihead_attn": "cross_attention",
    "out_proj": "o_proj",
    "norm1": "add_attention.norm",
}
NORMS = {
    "encoder": {"norm2": "add_feed_forward.norm"},
    "decoder": {"norm2": "add_cross_attention.norm", "norm3": "add_feed_forward.norm"},
}


def by_their_name(ours: nn.Module, name: str) -> Tensor:
    """Return the parameter of ours that has this name in PyTorch's stacks."""
    stack, rest = name.split(".", 1)
    if rest.startswith("norm."):
        return ours.get_parameter(f"{stack}_{rest}")
    parts = PARTS | NORMS[stack]
    path = [parts.get(part, part) for part in rest.removeprefix("layers.").split(".")]
    *module, kind = [stack, *path]
    if not kind.startswith("in_proj_"):
        return ours.get_parameter(".".join([*module, kind]))
    kind = kind.removeprefix("in_proj_")
    names = (".".join([*module, f"{letter}_proj", kind]) for letter in "qkv")
    return torch.cat([ours.get_parameter(name) for name in names])


@pytest.mark.parametrize(("norm_first", "fused"), [(False, True), (True, False)])
def test_it_is_the_stacks_of_torch_outputs_and_gradients(norm_first: bool, fused: bool):
    ours = with_large_weights(make(norm_first=norm_first, fused=fused))
    theirs = Stacks(norm_first=norm_first).double()
    named = {name: by_their_name(ours, name) for name, _ in theirs.named_parameters()}

    source, target = sequences()
    # A token of the target, too, where the causal mask does not hide it.
    mask = torch.ones(B, 1, 1, T, dtype=torch.bool)
    mask[1, ..., 1] = False
    read, written = (
        ours.token_embedding(tokens) * D**0.5 + ours.position_table[: tokens.shape[1]]
        for tokens in (source, target)
    )
    ends = torch.func.functional_call(theirs, named, (read, written, mask))
    expected = ends @ ours.token_embedding.weight.T
    logits = ours(source, target, source_mask=SOURCE_MASK, target_mask=mask)
    assert_alike(logits, expected, [*ours.parameters()])


@pytest.mark.parametrize(("norm_first", "fused"), [(False, False), (True, True)])
def test_stepwise_is_chunked_is_the_whole(norm_first: bool, fused: bool):
    model = make(fused=fused, norm_first=norm_first)
    source, target = sequences()
    full_logits = model(source, target, source_mask=SOURCE_MASK)
    context = model.encode(source, mask=SOURCE_MASK)
    for sizes in ([1] * T, [2, 3], [T]):
        cache = model.new_cache(B)
        with torch.no_grad():
            pieces = [
                model.decode(piece, context, context_mask=SOURCE_MASK, cache=cache)
                for piece in target.split(sizes, dim=1)
            ]
        torch.testing.assert_close(torch.cat(pieces, dim=1), full_logits)
        assert cache.length == T


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


def test_at_the_start_a_scaled_embedding_is_as_long_as_a_position():
    model = make(vocab_size=1000, d_model=48)
    lengths = model.token_embedding.weight.norm(dim=-1).mean()
    assert 0.9 < lengths < 1.1
    assert 0.5 < lengths * 48**0.5 / model.position_table.norm(dim=-1).mean() < 2


def test_settings_reach_the_embedding_and_every_block():
    model = make(dropout=1.0, bias=False, fused=False)
    for block in (*model.encoder, *model.decoder):
        attention, add = block.attention, block.add_attention
        assert (attention.dropout, add.dropout.p, attention.fused) == (1.0, 1.0, False)
        assert attention.q_proj.bias is None
    model.encoder = nn.ModuleList()
    assert not model.encode(torch.randint(V, (B, S))).any()
    model = make(activation="swiglu", norm="rms", norm_first=True, bias=False)
    for block in (*model.encoder, *model.decoder):
        assert block.feed_forward.gate.weight.shape == (D_FF, D)
        assert block.add_attention.norm_first
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())
    names = [*make(norm_first=True, bias=False).state_dict()]
    assert not any("bias" in name or "position" in name for name in names)


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
    with pytest.raises(ValueError, match=r"^source tokens must be \(B, T\) and not"):
        model.encode(source[0])
    with pytest.raises(ValueError, match=r"^target tokens hold ids from 0 to 13; the"):
        model(source, torch.tensor([[0, 13]] * B))
    cache = model.new_cache(B)
    context = model.encode(source)
    model.decode(torch.zeros(B, 9, dtype=torch.long), context, cache=cache)
    message = "5 target tokens after 9 in the cache are more than max_seq_len=11"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.decode(target, context, cache=cache)


def test_after_a_pass_that_broke_off_a_cache_is_refused():
    model = EncoderDecoder(CONFIG)
    target, context = torch.zeros(B, T, dtype=torch.long), torch.randn(B, S, D)
    cache = model.new_cache(B)
    with pytest.raises(ValueError, match=r"^cache has 1 layers, the model 3: make it"):
        model.decode(target, context, cache=KVCache(cache.layers[:1]))
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
    fresh = EncoderDecoder(CONFIG)
    for candidate in (model, fresh):
        torch.manual_seed(5)
        candidate.reset_parameters()
    read = sequences()
    assert torch.equal(model(*read), fresh(*read))
    assert model(*read).isfinite().all()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all(), name
        elif "norm" in name:
            assert parameter.eq(1).all(), name


def test_it_is_made_where_and_as_it_is_asked_to_be():
    model = EncoderDecoder(CONFIG, device="meta", dtype=torch.bfloat16)
    for tensor in (*model.parameters(), *model.buffers()):
        assert (tensor.device.type, tensor.dtype) == ("meta", torch.bfloat16)
    double = EncoderDecoder(CONFIG, dtype=torch.double)
    assert double(*sequences()).dtype == torch.double


# Translation: what greedy choice gives, and where it stops.

BOS, EOS = 1, 2
LENGTHS = (5, 4, 2)
MASK = padding_mask(torch.tensor(LENGTHS))


@pytest.fixture
def model() -> EncoderDecoder:
    return EncoderDecoder(
        EncoderDecoderConfig(vocab_size=V, max_seq_len=7, d_model=12, num_heads=3)
    ).double()


def some_sources() -> Tensor:
    return torch.randint(3, V, (3, 5))


def by_hand(model: EncoderDecoder, source: Tensor, longest: int) -> list[int]:
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
    full_translation = translate(model, source, bos=BOS, eos=EOS)
    short = translate(model, source, bos=BOS, eos=EOS, max_length=1)
    assert torch.equal(short, full_translation[:, :1])
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
    for length in (0, 8):
        message = f"^max_length={length} must lie between 1 and max_seq_len=7$"
        with pytest.raises(ValueError, match=message):
            translate(model, some_sources(), bos=BOS, eos=EOS, max_length=length)


def test_other_modules_may_stand_in_for_every_layer(
    replaced: Callable[[EncoderDecoder], tuple[EncoderDecoder, EncoderDecoder]],
):
    changed, plain = replaced(EncoderDecoder(CONFIG).double())
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    torch.testing.assert_close(
        changed(source, target), plain(source, target), rtol=1e-8, atol=1e-8
    )
    written, expected = (
        translate(candidate, source, bos=1, eos=2, max_length=9)
        for candidate in (changed, plain)
    )
    assert torch.equal(written, expected)


def test_it_is_made_and_run_without_numbers():
    with torch.device("meta"):
        model = EncoderDecoder(CONFIG)
        source = torch.zeros(B, S, dtype=torch.long)
        logits = model(source, torch.zeros(B, T, dtype=torch.long))
        logits.sum().backward()
    assert logits.shape == (B, T, V)


@pytest.mark.usefixtures("as_a_caller")
def test_one_exported_program_translates_between_any_lengths():
    model = make().eval()
    source, target = (torch.export.Dim(name, min=1, max=11) for name in "st")
    inputs = torch.randint(V, (B, T)), torch.randint(V, (B, T))
    program = torch.export.export(
        model, inputs, dynamic_shapes=({1: source}, {1: target})
    ).module()
    for s, t in ((T, T), (S, T), (1, 1), (1, 11), (11, 2)):
        inputs = torch.randint(V, (B, s)), torch.randint(V, (B, t))
        torch.testing.assert_close(program(*inputs), model(*inputs))
