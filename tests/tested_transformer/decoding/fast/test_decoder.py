"""The decoder against the model itself, in everything a GPT can be made of."""

from dataclasses import fields, replace

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor

from tested_transformer.decoding import Sampling, generate
from tested_transformer.decoding.fast.decoder import Decoder
from tested_transformer.decoding.fast.packing import _rms_norm
from tested_transformer.decoding.readers import CachedReader, WholeReader
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.layers import ACTIVATIONS, GATED
from tested_transformer.positions import POSITIONS
from tested_transformer.replay import Replay

# Pairwise different: vocabulary, longest sequence, heads, head width, layers.
V, LONGEST, H, D_K, L = 13, 71, 6, 4, 2
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=H * D_K, num_heads=H, num_layers=L
)
# Each setting away from its default at least once, and those that meet in a step.
ROTARY = {"positions": "rotary"}
LLAMA = {**ROTARY, "activation": "swiglu", "norm": "rms", "bias": False}
SLOWED = {"rotary_rates": (0.3, 0.002), "rotary_attention_factor": 1.3}
QWEN = {"norm_eps": 0.01, "qkv_bias": True, "qk_norm": "heads", "head_dim": 6}
OLMO = {"activation": "swiglu_clamped", "norm_place": "after", "qk_norm": "projection"}
GEMMA = {"activation": "geglu_tanh", "norm_place": "both", "embedding_scale": 3.0}
VARIANTS = {
    "plain": {},
    "sinusoids, no bias": {"positions": "sinusoidal", "bias": False},
    "rotary, slowed": {**ROTARY, "rotary_base": 100.0, **SLOWED},
    "rotary, normed, shared": {**ROTARY, "qk_norm": True, "num_kv_heads": 2},
    "alibi": {"positions": "alibi"},
    "alibi, shared": {"positions": "alibi", "num_kv_heads": 2},
    "one key": {"positions": "none", "num_kv_heads": 1, "smear": True},
    "gated, biased": {"activation": "swiglu", "smear": True, "dropout": 0.3},
    "rms, biased": {"norm": "rms", "activation": "relu2", "qk_norm": True},
    "gelu_tanh": {"activation": "gelu_tanh", "zero_init": True, "fused": False},
    "silu": {"activation": "silu"},
    "relu": {"activation": "relu"},
    "as llama": {**LLAMA, "tie_head": False, "d_ff": 40},
    "as qwen": {**LLAMA, **QWEN, "num_kv_heads": 2},
    "as olmo": {**ROTARY, "norm": "rms", **OLMO, "num_kv_heads": 2},
    "as gemma": {**GEMMA, "logit_cap": 2.0},
}


def make(**changes) -> GPT:
    return with_large_weights(GPT(replace(SMALL, **changes)))


def some_tokens(*lengths: int) -> list[list[int]]:
    return [torch.randint(V, (length,)).tolist() for length in lengths]


def read_on(reader, contexts: list[list[int]], steps: Tensor) -> Tensor:
    """Read contexts, then steps (B, T); give all logits, (B, T + 1, V)."""
    logits = [reader.read(contexts)]
    logits += [reader.step(tokens) for tokens in steps.T]
    return torch.stack(logits, dim=1)


def check_against_whole_passes(reader, model: GPT, lengths: tuple[int, ...]) -> None:
    contexts, steps = some_tokens(*lengths), torch.randint(V, (len(lengths), 7))
    got = read_on(reader, contexts, steps)
    model.eval()
    for row, context in enumerate(contexts):
        tokens = torch.tensor([context + steps[row].tolist()])
        alone = model(tokens)[0, len(context) - 1 :]
        torch.testing.assert_close(got[row], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_the_model(name):
    """Of several lengths and alone, across the first block of keys."""
    model = make(**VARIANTS[name])
    decoder = Decoder(model)
    for lengths in ((2, 60, 5), (61,), (3, 7), (5, 2)):
        check_against_whole_passes(decoder, model, lengths)


@pytest.mark.parametrize(
    "changes",
    [{"positions": "rotary", "num_experts": 3}, {"positions": "alibi", "smear": True}],
    ids=str,
)
def test_so_are_the_other_readers(changes):
    model = make(**changes)
    for make_reader in (CachedReader, WholeReader):
        check_against_whole_passes(make_reader(model), model, (2, 11, 5))


def test_every_setting_has_been_away_from_its_default():
    variants = VARIANTS.values()
    free = {"vocab_size", "max_seq_len", "d_model", "num_heads", "num_layers"}
    refused = {"num_experts", "experts_per_token", "kept_heads", "windows"}
    refused |= {"attention", "softmax_every", "router_bias"}
    refused |= {"rotary_layers", "local_rotary_base"}  # which needs windows
    names = {field.name for field in fields(GPTConfig)} - free - refused
    assert names == {name for variant in variants for name in variant}
    for name, known in (
        ("positions", POSITIONS),
        ("activation", (*ACTIVATIONS, *GATED)),
    ):
        tried = {variant.get(name, getattr(SMALL, name)) for variant in variants}
        assert tried == {*known}


def test_other_types_of_numbers():
    contexts, steps = some_tokens(5), torch.randint(V, (1, 3))
    for dtype, positions, digits in (
        (torch.bfloat16, "rotary", {"rtol": 0.1, "atol": 0.3}),
        (torch.float32, "rotary", {"rtol": 1e-4, "atol": 1e-4}),
        (torch.float64, "sinusoidal", {}),
    ):
        model = make(positions=positions, norm="rms", qk_norm=True).to(dtype)
        decoder, expected = Decoder(model), read_on(WholeReader(model), contexts, steps)
        got = read_on(decoder, contexts, steps)
        assert got.dtype == dtype
        torch.testing.assert_close(got, expected, **digits)
        with torch.autocast("cpu", torch.bfloat16):  # which changes nothing
            assert torch.equal(read_on(decoder, contexts, steps), got)
            assert torch.is_autocast_enabled("cpu")


def test_a_full_context_says_so():
    decoder = Decoder(make())
    decoder.read(some_tokens(LONGEST))
    message = "the context of max_seq_len=71 tokens is full: read the text again"
    with pytest.raises(ValueError, match=f"^{message}$"):
        decoder.step(torch.tensor([1]))
    with pytest.raises(ValueError, match=r"^a CUDA graph needs a GPU; the model is on"):
        decoder.capture()


def test_what_it_reads_lies_where_the_model_does():
    decoder = Decoder(make().to("meta"))
    logits = decoder.read([[1, 2, 3], [4]])
    assert {logits.device.type, decoder.last.device.type} == {"meta"}
    assert decoder.step(decoder.last).shape == (2, V)


def test_an_rms_norm_is_as_exact_as_its_numbers():
    for dtype in (torch.float16, torch.bfloat16):
        # In these the square of 300 is infinite, and a sum of 4096 ones is 4096.
        # The root of a sum of squares may be too long for the type, too.
        norm = _rms_norm(torch.ones(4096, dtype=dtype), 1e-5)
        rows = torch.tensor([1.0, 300.0, 6e4], dtype=dtype)[:, None].expand(3, 4096)
        torch.testing.assert_close(norm(rows), torch.ones(3, 4096, dtype=dtype))
    # Rows so short that what is added below the root is most of it.
    rows = 1e-3 * torch.randn(3, 8, dtype=torch.float64)
    exact = torch.nn.functional.rms_norm(rows, (8,), eps=1e-5)
    norm = _rms_norm(torch.ones(8, dtype=torch.float64), 1e-5)
    torch.testing.assert_close(norm(rows), exact, rtol=1e-12, atol=0)


def test_a_change_of_weights_needs_a_new_one():
    model = make(positions="rotary", norm="rms", activation="swiglu")
    contexts, steps = some_tokens(5), torch.randint(V, (1, 2))
    decoder = Decoder(model)
    before = read_on(decoder, contexts, steps)
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    decoder.read(contexts)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-0.5)
    after = [decoder.step(tokens) for tokens in steps.T]
    torch.testing.assert_close(torch.stack(after, 1), before[:, 1:])
    # The old one fits the model again when the model has its old weights again.
    model.load_state_dict(state)
    torch.testing.assert_close(read_on(decoder, contexts, steps), before)


def test_it_reads_without_dropout_and_leaves_the_model_as_it_was():
    model = make(dropout=0.5)
    model.blocks[0].eval()
    training = [module.training for module in model.modules()]
    contexts = some_tokens(7)
    for make_reader in (Decoder, CachedReader, WholeReader):
        first, second = (make_reader(model).read(contexts) for _ in range(2))
        assert torch.equal(first, second)
        assert [module.training for module in model.modules()] == training


@pytest.mark.usefixtures("as_a_caller")
def test_a_step_compiles_without_breaks_for_sizes_that_stay(monkeypatch):
    """After it was used, too, and in ``generate`` in place of its model."""
    torch.compiler.reset()
    graphs: list[torch.fx.GraphModule] = []
    options: list[dict[str, object]] = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    def compile_it(step, **settings):
        options.append(settings)
        return compiler(step, **settings | {"backend": count})

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", compile_it)
    model = make(**VARIANTS["rotary, normed, shared"])
    decoder = Decoder(model)
    check_against_whole_passes(decoder, model, (3, 5))
    decoder.compile()
    # Graphs of CUDA are for a GPU.
    assert options == [{"dynamic": False, "backend": "inductor", "mode": None}]
    for _ in range(2):
        check_against_whole_passes(decoder, model, (61,))
        assert len(graphs) == 1
    check_against_whole_passes(decoder, model, (4, 3, 7))
    settings = {"max_new_tokens": 9, "sampling": Sampling(temperature=0.0)}
    contexts = some_tokens(3, 7, 1)
    expected = generate(model, contexts, use_cache=False, **settings)
    assert generate(decoder, contexts, **settings) == expected


@pytest.mark.parametrize("name", ["rotary, normed, shared", "alibi", "gated, biased"])
def test_a_recorded_step_is_the_step(name, recordings):
    """Of several lengths and alone; a text of the same size is not recorded again."""
    model = make(**VARIANTS[name])
    decoder = Decoder(model)
    decoder._fix(Replay)
    for lengths in ((2, 60, 5), (3, 7), (5, 2), (4,), (63,)):
        check_against_whole_passes(decoder, model, lengths)
    assert len(recordings) == 3
    decoder.read(some_tokens(3, 7))  # which takes a cache of another size
    check_against_whole_passes(decoder, model, (9,))
    settings = {"max_new_tokens": 2 * LONGEST, "seed": 3}
    contexts = some_tokens(3, 7, 1)
    expected = generate(model, contexts, **settings)
    assert generate(decoder, contexts, **settings) == expected
