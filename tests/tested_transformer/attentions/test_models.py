"""A GPT of each attention: with a cache and without, saved, drawn anew, refused."""

import re
from dataclasses import asdict, dataclass, fields, replace
from inspect import get_annotations
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tested_transformer.attentions import (
    ATTENTIONS,
    AdjustedSoftmax,
    ChosenBlocks,
    ChosenKeys,
    Compressed,
    DeltaAttention,
    DeltaRule,
    Differential,
    Latent,
    LatentAttention,
    LinearRecurrence,
    attention_named,
    name_of,
)
from tested_transformer.cache import LayerCache
from tested_transformer.checkpoints import load_pretrained, save_checkpoint
from tested_transformer.decoding import (
    Decoder,
    NgramDrafter,
    Sampling,
    Server,
    generate,
    speculate,
)
from tested_transformer.decoding.cache_readers import PagedReader
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interfaces import Attention
from tested_transformer.interpret import record_heads
from tested_transformer.multihead import MultiHeadAttention, Softmax

# Pairwise different: vocabulary, longest sequence, heads, head width, layers, batch.
V, LONGEST, H, D_K, L, B = 13, 23, 6, 4, 3, 2
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=H * D_K, num_heads=H, num_layers=L
)
BLOCKS = {"attention": ChosenBlocks(block_size=5, num_chosen=2)}
# Each with a name, with its defaults; and those that want other settings here.
MODELS: dict[str, dict[str, Any]] = {
    name: {"attention": attention, "positions": attention.positions[0]}
    for name, attention in ATTENTIONS.items()
    if type(attention) is not Softmax
} | {
    "latent": {"attention": Latent(latent_dim=11), "positions": "rotary"},
    "linear": {"attention": LinearRecurrence(), "smear": True},
    "gated_linear": {"attention": LinearRecurrence(gated=True), "positions": "none"},
    "delta": {"attention": DeltaRule(), "positions": "sinusoidal", "bias": False},
    "differential": {"attention": Differential(), "positions": "rotary"},
    "gated": {
        "attention": AdjustedSoftmax(gate="features"),
        "positions": "alibi",
        "num_kv_heads": 2,
    },
    "soft_capped": {"attention": AdjustedSoftmax(soft_cap=1.5), "qk_norm": True},
    "sink": {"attention": AdjustedSoftmax(learned_sink=True), "windows": (3, None, 7)},
    "blocks": BLOCKS,
    "indexer": {"attention": ChosenKeys(keys_per_query=5), "num_kv_heads": 2},
    "indexer, rotary and windows": {
        "attention": ChosenKeys(keys_per_query=3, index_heads=3, index_dim=5),
        "positions": "rotary",
        "windows": (7, None, 11),
    },
    "compressed": {"attention": Compressed(compress=3, window=4)},
    "compressed, chosen": {
        "attention": Compressed(
            compress=2, window=3, overlap=True, entries_per_query=4, index_dim=5
        ),
        "positions": "rotary",
    },
    "latent, windows": {"attention": Latent(), "positions": "rotary", "windows": 5},
    "delta and ALiBi": {
        "attention": DeltaRule(),
        "softmax_every": 2,
        "positions": "alibi",
        "num_layers": 4,
    },
    "linear and rotary": {
        "attention": LinearRecurrence(),
        "softmax_every": 3,
        "positions": "rotary",
    },
    "blocks, open, and softmax": BLOCKS
    | {"softmax_every": 2, "positions": "alibi", "fused": False},
}


def make_model(name: str, **changes: Any) -> GPT:
    torch.manual_seed(0)
    model = GPT(replace(SMALL, **MODELS[name], **changes)).double()
    return with_large_weights(model, 0.5).eval()


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> GPT:
    return make_model(request.param)


def some_tokens(length: int = LONGEST) -> Tensor:
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(3))


def test_each_name_makes_the_layer_of_its_settings() -> None:
    for name, attention in ATTENTIONS.items():
        assert attention_named(name) == attention
        assert name_of(attention) == (name, asdict(attention))
        config = replace(SMALL, attention=attention, positions=attention.positions[0])
        kind = type(attention.make(config.layer_settings(0)))
        layers = [block.attention for block in GPT(config).blocks]
        assert {type(layer) for layer in layers} == {kind}
    assert name_of(AdjustedSoftmax(soft_cap=5.0))[0] == "soft_capped"
    assert name_of(AdjustedSoftmax(soft_cap=5.0, learned_sink=True))[0] == "sink"


def test_what_has_no_name_or_setting_is_named() -> None:
    for call, message in (
        (lambda: attention_named("none"), "attention='none' must be one of softmax, l"),
        (
            lambda: attention_named("softmax", {"latent_dim": 8}),
            "latent_dim=8 does not fit attention='softmax': leave it out",
        ),
        (lambda: name_of(Nameless()), "attention=Nameless() has no name: give it one"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@dataclass(frozen=True)
class Nameless(Softmax):
    pass


def test_settings_are_fields_and_told_and_never_two_of_a_name() -> None:
    # The command line has one flag for all fields of a name, with the text of Args.
    types: dict[str, Any] = {}
    for kind in {type(attention) for attention in ATTENTIONS.values()}:
        known = {field.name: field.type for field in fields(kind)}
        own = {*get_annotations(kind)} - {*get_annotations(Attention)}
        assert own <= {*known}, f"{kind} is no dataclass itself?"
        for name, type_ in known.items():
            assert f"\n        {name}: " in f"{kind.__doc__}", f"Args of {kind}: {name}"
            assert types.setdefault(name, type_) == type_, f"two settings called {name}"


def test_each_last_layer_of_so_many_has_softmax() -> None:
    config = replace(SMALL, num_layers=7, attention=DeltaRule(), softmax_every=3)
    kinds = [type(block.attention) for block in GPT(config).blocks]
    assert kinds == [
        *(DeltaAttention, DeltaAttention, MultiHeadAttention),
        *(DeltaAttention, DeltaAttention, MultiHeadAttention),
        DeltaAttention,
    ]


def test_differential_layers_begin_with_the_shares_of_their_depth() -> None:
    model = GPT(replace(SMALL, attention=Differential()))
    shares = [block.attention.core.first_share for block in model.blocks]
    assert shares == pytest.approx([0.2, 0.3555, 0.4707], abs=1e-4)


# Forms with a loop of their own.
LOOPS = ["linear", "gated_delta", "blocks", "indexer", "compressed, chosen"]
LONG = 37  # more than one chunk of linear attention


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.usefixtures("as_a_caller")
def test_one_program_is_for_every_length(name: str) -> None:
    torch.compiler.reset()
    model = make_model(name, max_seq_len=LONG, num_layers=1)
    length = torch.export.Dim("length", min=1, max=LONG)
    program = torch.export.export(
        model, (some_tokens(7),), dynamic_shapes=({1: length},), strict=True
    )
    # Sizes depend on no numbers, for which torch.compile would leave the graph.
    values = (node.meta.get("val") for node in program.graph.nodes)
    assert not any(map(free_unbacked_symbols, values))
    exported = program.module()
    for t in (1, 2, 3, 5, 16, LONG):
        torch.testing.assert_close(exported(some_tokens(t)), model(some_tokens(t)))


def test_gradients_reach_all_parameters(model: GPT) -> None:
    loss = model.train()(some_tokens()).logsumexp(dim=-1).sum()
    (loss + model.index_loss()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_a_batch_writes_what_each_row_writes_alone(model: GPT) -> None:
    prompts = [[1, 2, 3], [4], [*range(V)]]
    how: dict[str, Any] = {"max_new_tokens": 11, "sampling": Sampling(temperature=0.0)}
    together = generate(model, prompts, **how)  # the longest outgrows the context
    assert together == [generate(model, [prompt], **how)[0] for prompt in prompts]
    assert together == generate(model, prompts, use_cache=False, **how)
    # By hand, for one that does not outgrow it: the likeliest token, again and again.
    context = [1, 2, 3]
    for _ in range(11):
        context.append(int(model(torch.tensor([context]))[0, -1].argmax()))
    assert together[0] == context[3:]


def test_a_checkpoint_keeps_the_form(model: GPT, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, config=model.config, weights=model.state_dict())
    again = load_pretrained(tmp_path).eval()
    assert again.config == model.config
    assert torch.equal(again(some_tokens()), model(some_tokens()))


def test_what_was_drawn_is_drawn_again(model: GPT) -> None:
    config = model.config
    empty = GPT(config, device="meta").to_empty(device="cpu")
    for parameter in empty.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    torch.manual_seed(5)
    empty.reset_parameters()
    usual = GPT(config)
    torch.manual_seed(5)
    usual.reset_parameters()
    assert torch.equal(empty(some_tokens()), usual(some_tokens()))


def test_a_state_takes_the_same_room_at_any_length() -> None:
    delta = GPT(replace(SMALL, attention=DeltaRule()))
    sizes = [delta.new_cache(B, max_length=length).nbytes for length in (1, LONGEST)]
    assert sizes == [L * B * H * D_K * D_K * 4] * 2
    latent = GPT(replace(SMALL, attention=Latent(latent_dim=11), positions="rotary"))
    assert latent.new_cache(B).nbytes == L * B * LONGEST * (11 + D_K) * 4


def test_drafts_are_checked_by_what_can_go_back(model: GPT) -> None:
    drafter, greedy = NgramDrafter(V), Sampling(temperature=0.0)
    prompt, how = [1, 2, 3, 1, 2], {"max_new_tokens": 9}
    written = speculate(
        model, prompt, drafter, probabilities=greedy.probabilities, **how
    )
    assert written.tokens == generate(model, [prompt], sampling=greedy, **how)[0]


def test_what_keys_are_kept_can_be_kept_in_pages(model: GPT) -> None:
    if not all(isinstance(x, LayerCache) for x in model.new_cache().layers):
        with pytest.raises(
            ValueError, match="every layer must keep keys and values in a DenseCache"
        ):
            PagedReader(model, page_size=4)
        return
    prompts = [[1, 2, 3], [4], [1, 2, 3], [*range(V)]]
    how: dict[str, Any] = {"max_new_tokens": 11, "sampling": Sampling(temperature=0.0)}
    paged = PagedReader(model, page_size=4)
    assert generate(paged, prompts, **how) == generate(model, prompts, **how)


def test_the_packed_decoder_says_which_attention_it_does_not_know(model: GPT) -> None:
    message = re.escape(f"not support attention={model.config.attention!r}")
    with pytest.raises(ValueError, match=f"{message}$"):
        Decoder(model)


def test_what_has_no_pages_is_not_served() -> None:
    for attention, message in (
        (ChosenBlocks(), "of model cannot mask the padding of a shorter request"),
        (DeltaRule(), "every layer must keep keys and values in a DenseCache"),
    ):
        model = GPT(replace(SMALL, attention=attention))
        with pytest.raises(ValueError, match=message):
            Server(model, num_pages=2, page_size=4)


def test_heads_without_tables_are_not_recorded() -> None:
    for attention in (DeltaRule(), Differential()):
        model = GPT(replace(SMALL, attention=attention))
        with pytest.raises(ValueError, match="no table of weights for each head"):
            record_heads(model, some_tokens())


LATENT = {"attention": Latent(), "positions": "rotary"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"softmax_every": 2}, "softmax_every=2 does not fit attention=Softmax()"),
        (LATENT | {"softmax_every": 2}, "softmax_every=2 does not fit attention=Laten"),
        (LATENT | {"qk_norm": True}, "qk_norm=True does not fit attention=Latent("),
        (
            {"attention": LinearRecurrence(), "positions": "alibi"},
            "positions='alibi' does not fit attention=LinearRecurrence(gated=False): "
            "choose one of learned, sinusoidal, none",
        ),
        (
            {"attention": DeltaRule(gated=True), "num_kv_heads": 2},
            "num_kv_heads=2 does not fit attention=DeltaRule(gated=True, ",
        ),
        ({"attention": DeltaRule(), "softmax_every": 0}, "softmax_every=0 must be pos"),
        (BLOCKS | {"windows": 5}, "windows=5 does not fit attention=ChosenBlocks("),
        ({"attention": Differential(), "num_heads": 3}, "num_heads=3 must be even"),
        (
            {"attention": AdjustedSoftmax(), "kept_heads": ((0,),) * L},
            "kept_heads=((0,), (0,), (0,)) does not fit attention=AdjustedSoftmax(",
        ),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(SMALL, **changes)


def test_a_name_is_no_attention() -> None:
    with pytest.raises(TypeError, match=r"write ATTENTIONS\['latent'\]$"):
        replace(SMALL, attention="latent")


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_under_autocast_without_a_warning(name: str) -> None:
    """Here a warning is an error: of norms whose weights are of another type, for one.

    Logits are those of single precision, up to the eight bits of a bfloat16.
    """
    torch.manual_seed(0)
    model = GPT(replace(SMALL, **MODELS[name]))
    tokens = torch.randint(V, (B, LONGEST))
    exact = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens)
    assert (rounded.float() - exact).norm() < 0.05 * exact.norm()
    (rounded.float().logsumexp(dim=-1).mean() + model.index_loss()).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_hook_on_what_could_be_absorbed_is_called() -> None:
    layer = LatentAttention(
        d_model=12, num_heads=3, head_dim=4, rotary_dim=2, latent_dim=5
    )
    x = torch.randn(B, 1, 12)
    calls: list[Tensor] = []
    before = layer(x)
    handle = layer.kv_up.register_forward_hook(lambda *io: calls.append(io[2]))
    torch.testing.assert_close(layer(x), before)
    assert len(calls) == 1
    handle.remove()
    torch.testing.assert_close(layer(x), before)
    assert len(calls) == 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("as_a_caller")
def test_it_is_made_and_run_without_numbers(name: str) -> None:
    config = replace(SMALL, **MODELS[name])
    with FakeTensorMode() if name in LOOPS else torch.device("meta"):
        model = GPT(config)
        tokens = torch.zeros(B, LONGEST, dtype=torch.long)
        logits = model(tokens)
        (logits.sum() + model.index_loss()).backward()
        with torch.no_grad():
            cache = model.new_cache(B)
            model(tokens[:, :7], cache=cache)
            next_logits = model(tokens[:, 7:8], cache=cache)
    assert logits.shape == (B, LONGEST, V)
    assert next_logits.shape == (B, 1, V)
    assert cache.length == 8
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == []
