"""Settings, block and model: against the formula, and the model against itself."""

import math
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from tests.tested_transformer.comparing import assert_alike
from tests.tested_transformer.large_weights import with_large_weights
from torch import Tensor, nn

from tested_transformer.attentions import DeltaRule, Latent
from tested_transformer.decoding import generate
from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.masks import sliding_window_mask
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.positions import alibi_bias, sinusoidal_positions

# Pairwise different: vocabulary, longest sequence, heads, head width, layers, batch, T.
V, LONGEST, H, D_K, L, B, T = 13, 17, 6, 4, 3, 2, 7
D = H * D_K
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=D, num_heads=H, num_layers=L
)
TODAY = {"positions": "rotary", "norm": "rms", "bias": False}
# What a GPT can be made of, each setting away from its default at least once.
VARIANTS = {
    "plain": {},
    "one key, no order": {"positions": "none", "num_kv_heads": 1, "qk_norm": True},
    "as llama": TODAY
    | {"num_kv_heads": 2, "activation": "swiglu", "tie_head": False, "d_ff": 40},
    "sinusoids, experts": {
        "positions": "sinusoidal",
        "num_experts": 5,
        "experts_per_token": 3,
        "activation": "relu2",
    },
    "as the fast recipe": {
        "positions": "alibi",
        "smear": True,
        "qk_norm": True,
        "activation": "relu2",
        "bias": False,
        "tie_head": False,
    },
    "windows, slowed pairs": {
        "positions": "rotary",
        "rotary_rates": (0.5, 0.03),
        "rotary_attention_factor": 1.2,
        "windows": (2, None, 4),
    },
    "windows, alibi, open": {
        "positions": "alibi",
        "windows": (3, None, 5),
        "activation": "gelu_tanh",
        "fused": False,
    },
    "as gemma": TODAY
    | {
        "head_dim": 10,
        "num_kv_heads": 2,
        "rotary_base": 100.0,
        "local_rotary_base": 5.0,
        "windows": (2, None, 4),
        "norm_place": "both",
        "norm_eps": 0.1,
        "qkv_bias": True,
        "qk_norm": "heads",
        "activation": "geglu_tanh",
        "embedding_scale": 3.0,
        "logit_cap": 5.0,
    },
    "as olmo, with experts": TODAY
    | {
        "norm_place": "after",
        "qk_norm": "projection",
        "num_experts": 5,
        "router_bias": True,
        "activation": "swiglu_clamped",
    },
}


def make(**changes) -> GPT:
    return with_large_weights(GPT(replace(SMALL, **changes)))


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def model(request: pytest.FixtureRequest) -> GPT:
    return make(**request.param)


def some_tokens(length: int = T) -> Tensor:
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(3))


def read_by_blocks(model: GPT, tokens: Tensor) -> Tensor:
    """Return what the first block of a model reads."""
    reads: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: reads.append(args[0]))
    model(tokens)
    return reads[0]


def with_more(**more: Tensor) -> Callable[..., tuple]:
    """Return a hook that gives a block or its attention more arguments."""
    return lambda _, args, options: (args, options | more)


@torch.no_grad()
def test_reading_with_a_cache_is_reading_at_once(model: GPT):
    """So no position reads a later one."""
    tokens, cache = some_tokens(), model.new_cache(B)
    full_logits = model(tokens)
    for steps in ([1] * T, [4, 1, 2]):
        cache.reset()
        parts = [model(part, cache=cache) for part in tokens.split(steps, dim=1)]
        torch.testing.assert_close(
            torch.cat(parts, 1), full_logits, rtol=1e-4, atol=1e-4
        )
        assert cache.length == T
    last = model(tokens, last_only=True)
    torch.testing.assert_close(last, full_logits[:, -1:], rtol=1e-5, atol=1e-5)


def test_padding_on_the_left_changes_nothing(model: GPT):
    tokens, padding = some_tokens(), 4
    padded = torch.cat([torch.zeros(B, padding, dtype=torch.long), tokens], dim=1)
    # The first sequence is padded, the second reads all that is there.
    positions = torch.stack(
        [torch.arange(-padding, T).clamp(min=0), torch.arange(T + padding)]
    )
    mask = torch.ones(B, 1, 1, T + padding, dtype=torch.bool)
    mask[0, ..., :padding] = False
    output = model(padded, positions=positions, mask=mask)
    for alone, row in (
        (model(tokens[:1]), output[:1, padding:]),
        (model(padded[1:]), output[1:]),
    ):
        torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-4)


def test_weights_are_those_of_the_pass_itself(model: GPT):
    tokens = some_tokens()
    recorded: list[Tensor] = []
    for block in model.blocks:
        block.attention.register_forward_hook(lambda *io: recorded.append(io[2][1]))
    logits, maps = model(tokens, return_weights=True)
    assert [weights.shape for weights in maps] == [(B, H, T, T)] * L
    assert all(a is b for a, b in zip(maps, recorded, strict=True))
    # Taking the weights away from a layer's output moves the logits: they were used.
    (gradient,) = torch.autograd.grad(logits.sum(), maps[0])
    assert gradient.tril().ne(0).any()
    # Without hooks and, if it may be, fused.
    twin = GPT.from_weights(model.config, model.state_dict())
    torch.testing.assert_close(logits, twin(tokens), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_every_setting_reaches_the_model(model: GPT):
    """Each goes back to its default alone, and the model is another one."""
    tokens = some_tokens()
    for setting in fields(GPTConfig):
        # Neither changes what is computed.
        if setting.name in ("max_seq_len", "fused"):
            continue
        if getattr(model.config, setting.name) == setting.default:
            continue
        try:
            config = replace(model.config, **{setting.name: setting.default})
            other = GPT(config)
            other.load_state_dict(model.state_dict())
        except (TypeError, ValueError, RuntimeError):  # other parameters, or none
            continue
        assert not torch.allclose(other(tokens), model(tokens)), setting.name


def test_dropout_and_norms_are_the_same_in_every_part():
    model = make(dropout=0.25, norm="rms", norm_eps=0.125, norm_place="both")
    kinds: dict[type[nn.Module], list[nn.Module]] = {}
    for module in model.modules():
        kinds.setdefault(type(module), []).append(module)
    assert {module.p for module in kinds[nn.Dropout]} == {0.25}
    assert {block.attention.dropout for block in model.blocks} == {0.25}
    assert [module.eps for module in kinds[nn.RMSNorm]] == [0.125] * (4 * L + 1)
    assert nn.LayerNorm not in kinds


@torch.no_grad()
def test_a_layer_with_a_window_rotates_by_the_local_base():
    local = make(positions="rotary", windows=LONGEST, local_rotary_base=5.0)
    usual = make(positions="rotary", windows=LONGEST, rotary_base=5.0)
    usual.load_state_dict(local.state_dict())
    assert torch.equal(local(some_tokens()), usual(some_tokens()))


def test_alibi_is_a_bias_of_the_scores_of_every_layer():
    model, tokens = make(positions="alibi", fused=False), some_tokens()
    assert not any(block.attention.fused for block in model.blocks)
    plain = GPT(replace(model.config, positions="none"))
    plain.load_state_dict(model.state_dict())
    slopes = [(8 / LONGEST) ** (head / (H - 1)) for head in range(H)]
    hook = with_more(score_bias=alibi_bias(torch.tensor(slopes), T))
    for block in plain.blocks:
        block.attention.register_forward_pre_hook(hook, with_kwargs=True)
    torch.testing.assert_close(model(tokens), plain(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_are_added_to_the_tokens(positions: str):
    model, tokens = make(positions=positions), some_tokens()
    table = sinusoidal_positions(LONGEST, D)
    if positions == "learned":
        table = model.position_embedding.weight
    expected = model.token_embedding.weight[tokens] + table[:T]
    torch.testing.assert_close(read_by_blocks(model, tokens), expected)


def test_smear_adds_a_share_of_the_token_before():
    model, tokens = make(smear=True, positions="none"), some_tokens()
    expected = model.token_embedding.weight[tokens]
    before = torch.nn.functional.pad(expected[:, :-1], (0, 0, 1, 0))
    expected = expected + model.smear * before
    torch.testing.assert_close(read_by_blocks(model, tokens), expected)
    assert GPT(model.config).smear.eq(0).all()
    cache = model.new_cache(B)
    model(tokens, cache=cache)
    with pytest.raises(ValueError, match=rf"made for batch_size={B}; the keys have 1$"):
        model(tokens[:1, :1], cache=cache)
    assert cache.length == T


def test_parameters_are_counted_by_hand():
    def count(*, active: bool = False, **changes: object) -> int:
        return GPT(replace(SMALL, **changes)).num_parameters(active=active)

    # Embeddings, then in each block two norms, four projections and two matrices
    # with their biases, then the last norm.
    block = 4 * D + 4 * (D * D + D) + (D * 4 * D + 4 * D) + (4 * D * D + D)
    usual = V * D + LONGEST * D + L * block + 2 * D
    assert count() == usual
    without_bias = L * (2 * D + 4 * D * D + 8 * D * D) + D
    assert count(bias=False) == V * D + LONGEST * D + without_bias
    assert count(tie_head=False) == usual + V * D

    expert = (D * 4 * D + 4 * D) + (4 * D * D + D)
    experts = {"num_experts": 5, "experts_per_token": 2}
    mixed = usual + L * (4 * expert + 5 * D)
    assert count(**experts) == mixed
    assert count(**experts, active=True) == mixed - L * 3 * expert
    assert count(**experts, router_bias=True) == mixed + L * 5


def test_weights_start_small_and_smaller_where_a_block_adds():
    model = GPT(replace(SMALL, d_model=96, num_heads=3, tie_head=False))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all(), name
        elif parameter.ndim == 1:
            assert parameter.eq(1).all(), name
        else:
            adds = name.endswith(("o_proj.weight", "down.weight"))
            expected = 0.02 / math.sqrt(2 * L) if adds else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_with_zeros_it_starts_without_an_opinion():
    model = GPT(replace(SMALL, zero_init=True, tie_head=False))
    assert model(some_tokens()).eq(0).all()
    tied = GPT(replace(SMALL, zero_init=True))
    x = tied.token_embedding.weight[some_tokens()] + tied.position_embedding.weight[:T]
    torch.testing.assert_close(tied(some_tokens()), tied.norm(x) @ tied.head_weight.T)


def test_dropout_stops_in_eval():
    model, tokens = make(dropout=0.5), some_tokens()
    assert not torch.equal(model(tokens), model(tokens))
    plain = GPT.from_weights(replace(model.config, dropout=0.0), model.state_dict())
    torch.testing.assert_close(model.eval()(tokens), plain(tokens))


def test_balance_is_the_mean_of_the_layers_and_nothing_without_experts():
    mixed = make(num_experts=5)
    mixed(some_tokens())
    losses = [block.feed_forward.balance_loss for block in mixed.blocks]
    torch.testing.assert_close(mixed.balance_loss(), sum(losses) / L)
    plain = make()
    plain(some_tokens())
    assert float(plain.balance_loss()) == 0.0


def test_new_cache_fits_the_model():
    model = make(num_kv_heads=2)
    cache = model.new_cache(5, max_length=11)
    assert [layer.keys.shape for layer in cache.layers] == [(5, 2, 11, D_K)] * L
    assert model.new_cache().layers[0].keys.shape[2] == LONGEST
    assert model.bfloat16().new_cache().layers[0].keys.dtype == torch.bfloat16
    message = "max_length=18 must lie between 1 and max_seq_len=17"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.new_cache(max_length=18)


@pytest.mark.usefixtures("as_a_caller")
def test_more_tokens_than_fit_are_named():
    model = make()
    cache = model.new_cache(B)
    model(some_tokens(12), cache=cache)
    message = "6 tokens after 12 in the cache are more than max_seq_len=17"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model(some_tokens(6), cache=cache)


def test_after_a_pass_that_broke_off_a_cache_is_refused_until_its_reset():
    model, tokens = make(), some_tokens(4)
    cache = model.new_cache(B)
    with torch.no_grad():
        right = model(tokens)
        model(tokens[:, :3], cache=cache)
        # The first layer stores its keys before it compares the mask with them.
        short = torch.ones(1, 3, dtype=torch.bool)
        with pytest.raises(ValueError, match=r"^mask is \(1, 3\)"):
            model(tokens[:, 3:], cache=cache, mask=short)
        message = r"they hold \[4, 3, 3\]\. .* write cache\.reset\(\)"
        with pytest.raises(ValueError, match=message):
            model(tokens[:, 3:], cache=cache)
        cache.reset()
        torch.testing.assert_close(model(tokens, cache=cache), right)


def test_windows_are_masks_in_their_layers_outputs_and_gradients():
    model, tokens = make(windows=(2, None, 4), positions="alibi"), some_tokens()
    output, weights = model(tokens), dict(model.named_parameters())
    plain = GPT(replace(model.config, windows=None))
    for block, window in zip(plain.blocks, (2, None, 4), strict=True):
        hook = with_more(mask=sliding_window_mask(T, window=window or T))
        block.register_forward_pre_hook(hook, with_kwargs=True)
    expected = torch.func.functional_call(plain, weights, (tokens,))
    assert_alike(output, expected, [*weights.values()], close=1e-4)


def test_a_window_for_all_is_one_for_each():
    assert [replace(SMALL, windows=5).window_of(i) for i in range(L)] == [5] * L
    assert replace(SMALL, windows=[5, None, 2]).windows == (5, None, 2)
    one, tokens = make(windows=3), some_tokens()
    per_layer = GPT.from_weights(replace(SMALL, windows=(3, 3, 3)), one.state_dict())
    assert torch.equal(one(tokens), per_layer(tokens))


def test_the_last_logits_come_with_all_weights_and_after_a_cache():
    model, tokens = make(), some_tokens()
    logits, maps = model(tokens, last_only=True, return_weights=True)
    full_logits, expected = model(tokens, return_weights=True)
    torch.testing.assert_close(logits, full_logits[:, -1:])
    assert all(map(torch.equal, maps, expected))
    cache = model.new_cache(B)
    with torch.no_grad():
        model(tokens[:, :4], cache=cache, last_only=True)
        last = model(tokens[:, 4:], cache=cache, last_only=True)
    torch.testing.assert_close(last, full_logits[:, -1:])


@pytest.mark.parametrize("name", VARIANTS)
def test_a_model_from_meta_is_as_good_as_new(name: str):
    config = replace(SMALL, **VARIANTS[name])
    with torch.device("meta"):
        model = GPT(config)
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.detach().fill_(math.nan)  # as memory may hold anything
    fresh = GPT(config)
    for candidate in (model, fresh):
        torch.manual_seed(5)
        candidate.reset_parameters()
    assert model.balance_loss() == 0
    assert model(some_tokens()).isfinite().all()
    # Weights, norms, biases, smear and tables of positions are those of a new model.
    tensors, fresh_tensors = (
        dict(candidate.named_parameters()) | dict(candidate.named_buffers())
        for candidate in (model, fresh)
    )
    assert tensors.keys() == fresh_tensors.keys()
    assert all(torch.equal(tensors[name], fresh_tensors[name]) for name in tensors)


def test_it_is_made_where_and_as_it_is_asked_to_be():
    config = replace(SMALL, positions="rotary", smear=True, num_experts=3)
    model = GPT(config, device="meta", dtype=torch.bfloat16)
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
    torch.manual_seed(3)
    double = GPT(config, device="cpu", dtype=torch.double)
    torch.manual_seed(3)
    same = GPT(config).double()
    assert torch.equal(double(some_tokens()), same(some_tokens()))
    assert double(some_tokens()).dtype == torch.double
    with torch.device("meta"):  # what is told goes before what is assumed
        model = GPT(config, device="cpu")
        twin = GPT.from_weights(config, model.state_dict())
    assert torch.equal(twin(some_tokens()), model(some_tokens()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.double])
def test_a_model_of_weights_has_copies_of_them(dtype: torch.dtype):
    model = make(positions="alibi", smear=True).to(dtype)
    chance = torch.get_rng_state()
    twin = GPT.from_weights(model.config, model.state_dict())
    assert torch.equal(torch.get_rng_state(), chance)
    tokens = some_tokens()
    assert torch.equal(twin(tokens), model(tokens))
    assert {tensor.dtype for tensor in (*twin.parameters(), *twin.buffers())} == {dtype}
    before = model(tokens)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(model(tokens), before)
    assert all(parameter.requires_grad for parameter in twin.parameters())
    elsewhere = {"device": "meta", "dtype": torch.float16}
    moved = GPT.from_weights(model.config, model.state_dict(), **elsewhere)
    kinds = {(t.device.type, t.dtype) for t in (*moved.parameters(), *moved.buffers())}
    assert kinds == {("meta", torch.float16)}
    with pytest.raises(RuntimeError, match="smear"):
        GPT.from_weights(replace(model.config, smear=False), model.state_dict())


@pytest.mark.parametrize(("norm", "num_experts"), [("layer", 4), ("rms", 0)])
def test_a_block_adds_what_its_parts_find(norm: str, num_experts: int):
    block = DecoderBlock(d_model=12, num_heads=3, norm=norm, num_experts=num_experts)
    x = torch.randn(B, T, 12)
    attended, weights = block.attention(
        block.attention_norm(x), causal=True, return_weights=True
    )
    middle = x + attended
    expected = middle + block.feed_forward(block.feed_forward_norm(middle))
    torch.testing.assert_close(block(x), expected)
    output, recorded = block(x, return_weights=True)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(recorded, weights)


def test_a_block_attends_with_a_layer_or_makes_one_but_not_both():
    layer = MultiHeadAttention(d_model=12, num_heads=3)
    assert DecoderBlock(d_model=12, attention=layer).attention is layer
    with pytest.raises(ValueError, match=r"num_heads=4 is given, but attention has"):
        DecoderBlock(d_model=12, num_heads=4, attention=layer)
    with pytest.raises(ValueError, match=r"num_heads or attention must be given"):
        DecoderBlock(d_model=12)


def test_in_a_block_dropout_acts_on_what_is_added_and_never_on_what_passes():
    block = DecoderBlock(d_model=12, num_heads=3, dropout=1.0)
    x = torch.randn(B, T, 12)
    assert torch.equal(block(x), x)
    assert not torch.allclose(block.eval()(x), x)


@pytest.mark.parametrize(
    "settings",
    [
        VARIANTS["sinusoids, experts"],
        VARIANTS["as llama"],
        VARIANTS["as gemma"],
        {"attention": Latent(latent_dim=11), "positions": "rotary"},
        {"attention": DeltaRule(gated=True)},
    ],
)
def test_other_modules_may_stand_in_for_every_layer(
    settings: dict, replaced: Callable[[GPT], tuple[GPT, GPT]]
):
    changed, plain = replaced(make(**settings).double().eval())
    tokens, cache = some_tokens(), changed.new_cache(B)
    expected = plain(tokens)
    parts = [changed(part, cache=cache) for part in tokens.split([3, 1, T - 4], dim=1)]
    for output, expected_logits in (
        (changed(tokens), expected),
        (torch.cat(parts, dim=1), expected),
        (changed(tokens, last_only=True), expected[:, -1:]),
    ):
        torch.testing.assert_close(output, expected_logits, rtol=1e-8, atol=1e-8)
    written, expected_tokens = (
        generate(candidate, [[1, 2, 3], [4]], max_new_tokens=5, seed=1)
        for candidate in (changed, plain)
    )
    assert written == expected_tokens
    changed(tokens).sum().backward()
    trained = [(n, p) for n, p in changed.named_parameters() if p.requires_grad]
    assert [name for name, parameter in trained if parameter.grad is None] == []


def test_hooks_on_every_module_are_called(model: GPT):
    calls: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList):
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    model(some_tokens())
    named = {n for n, m in model.named_modules() if type(m) is not torch.nn.ModuleList}
    assert named - {*calls} == set()


def test_what_a_hook_on_the_head_returns_is_the_logits():
    model, tokens = make(tie_head=False), some_tokens()
    expected = model(tokens)
    expected[..., 5] = -torch.inf
    model.head.register_forward_hook(
        lambda *io: io[2].index_fill(-1, torch.tensor(5), -torch.inf)
    )
    torch.testing.assert_close(model(tokens), expected)
    # The packed weights of the fast decoder know no hook.
    answers = generate(model.eval(), [[1], [2]], max_new_tokens=11, seed=1)
    assert 5 not in {*answers[0], *answers[1]}


def test_a_head_without_a_matrix_has_none():
    model = make(tie_head=False)
    assert model.head_weight is model.head.weight
    model.head = torch.nn.Sequential(model.head)
    with pytest.raises(TypeError, match=r"^head is a Sequential, which has no matrix"):
        print(model.head_weight)


@pytest.mark.usefixtures("as_a_caller")
def test_one_exported_program_is_for_every_length():
    longest = 130  # so long that a CPU would look for keys that hardly matter
    model = make(
        **VARIANTS["as the fast recipe"], windows=(3, None, 5), max_seq_len=longest
    ).eval()
    length = torch.export.Dim("length", min=1, max=longest)
    program = torch.export.export(
        model, (some_tokens(longest),), dynamic_shapes=({1: length},)
    )
    for t in (1, 2, 3, T, longest):
        tokens = some_tokens(t)
        torch.testing.assert_close(program.module()(tokens), model(tokens))
    # What speeds up a CPU is no part of the program, and has no counterpart in ONNX.
    names = {str(node.target) for node in program.graph.nodes}
    assert not [name for name in names if "amax" in name or "norm.Scalar" in name]


def test_a_layer_that_does_not_rotate_has_no_positions():
    rotary, tokens = make(positions="rotary"), some_tokens()
    plain = make(positions="none")
    still = make(positions="rotary", rotary_layers=(False,) * L)
    mixed = make(positions="rotary", rotary_layers=(False, *[True] * (L - 1)))
    for model in (plain, still, mixed):
        model.load_state_dict(rotary.state_dict())
    assert torch.equal(still(tokens), plain(tokens))
    output = mixed(tokens)
    assert not torch.allclose(output, rotary(tokens), atol=1e-3)
    assert not torch.allclose(output, plain(tokens), atol=1e-3)
    cache = mixed.new_cache(len(tokens))
    parts = [mixed(part, cache=cache) for part in tokens.split([2, 3, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), output)
