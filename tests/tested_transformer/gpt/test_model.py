"""The model against its formula, written out once more, and against itself."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tested_transformer.gpt import GPT, GPTConfig

# Pairwise different: vocabulary, longest sequence, heads, head width, layers, batch, T.
V, LONGEST, H, D_K, L, B, T = 13, 17, 6, 4, 3, 2, 7
D = H * D_K
SMALL = GPTConfig(
    vocab_size=V, max_seq_len=LONGEST, d_model=D, num_heads=H, num_layers=L
)
# What a GPT can be made of, each setting away from its default at least once.
VARIANTS = {
    "plain": {},
    "rotary, shared keys": {"positions": "rotary", "num_kv_heads": 2},
    "one key, no order": {"positions": "none", "num_kv_heads": 1, "qk_norm": True},
    "as llama": {
        "positions": "rotary",
        "activation": "swiglu",
        "norm": "rms",
        "bias": False,
        "tie_head": False,
        "d_ff": 40,
    },
    "sinusoids, experts": {
        "positions": "sinusoidal",
        "num_experts": 5,
        "experts_per_token": 2,
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
    "open": {"fused": False, "activation": "gelu_tanh"},
}


def make(**changes) -> GPT:
    """Make a model with weights large enough for its parts to matter."""
    model = GPT(replace(SMALL, **changes))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
        else:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return model


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def model(request: pytest.FixtureRequest) -> GPT:
    return make(**request.param)


def some_tokens(length: int = T) -> Tensor:
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(3))


def by_formula(model: GPT, tokens: Tensor) -> Tensor:
    """Work out a plain GPT head by head, from its weights and nothing else."""
    w = dict(model.named_parameters())
    t = tokens.shape[1]
    x = w["token_embedding.weight"][tokens] + w["position_embedding.weight"][:t]

    def norm(x: Tensor, name: str) -> Tensor:
        centered = x - x.mean(-1, keepdim=True)
        variance = centered.square().mean(-1, keepdim=True)
        return (
            centered / (variance + 1e-5).sqrt() * w[name + ".weight"]
            + w[name + ".bias"]
        )

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    for i in range(L):
        block = f"blocks.{i}."
        h = norm(x, block + "attention_norm")
        q, k, v = (linear(h, f"{block}attention.{p}_proj") for p in "qkv")
        heads = []
        for head in range(H):
            own = slice(head * D_K, (head + 1) * D_K)
            scores = q[..., own] @ k[..., own].transpose(1, 2) / math.sqrt(D_K)
            scores = scores + torch.full((t, t), -torch.inf).triu(1)
            heads.append(scores.softmax(-1) @ v[..., own])
        x = x + linear(torch.cat(heads, -1), block + "attention.o_proj")
        h = linear(norm(x, block + "feed_forward_norm"), block + "feed_forward.up")
        h = h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))
        x = x + linear(h, block + "feed_forward.down")
    return norm(x, "norm") @ w["token_embedding.weight"].T


@pytest.mark.parametrize("fused", [True, False])
def test_it_is_its_formula_in_logits_and_gradients(fused: bool):
    model, tokens = make(fused=fused), some_tokens()
    logits, expected = model(tokens), by_formula(model, tokens)
    assert logits.shape == (B, T, V)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    targets = some_tokens(T + 1)[:, 1:].flatten()
    one, other = (
        torch.autograd.grad(
            F.cross_entropy(out.flatten(0, 1), targets), list(model.parameters())
        )
        for out in (logits, expected)
    )
    for gradient, wanted in zip(one, other, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-4)


def test_no_position_reads_a_later_one(model: GPT):
    tokens = some_tokens()
    before = model(tokens)
    for t in range(1, T):
        changed = tokens.clone()
        changed[:, t] = (changed[:, t] + 1) % V
        moved = (model(changed) - before).abs().amax(dim=(0, 2)) > 1e-6
        assert moved.tolist()[: t + 1] == [False] * t + [True]
        torch.testing.assert_close(
            model(tokens[:, :t]), before[:, :t], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("steps", [[T], [3, 4], [1] * T, [4, 1, 2]], ids=str)
def test_reading_with_a_cache_is_reading_at_once(model: GPT, steps: list[int]):
    tokens = some_tokens()
    cache = model.new_cache(B)
    with torch.no_grad():
        parts = [model(part, cache=cache) for part in tokens.split(steps, dim=1)]
        torch.testing.assert_close(
            torch.cat(parts, 1), model(tokens), rtol=1e-4, atol=1e-4
        )
    assert cache.length == T


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

    def keep(_, __, output: tuple[Tensor, Tensor]) -> None:
        recorded.append(output[1])

    for block in model.blocks:
        block.attention.register_forward_hook(keep)
    logits, maps = model(tokens, return_weights=True)
    assert [each.shape for each in maps] == [(B, H, T, T)] * L
    assert all(a is b for a, b in zip(maps, recorded, strict=True))
    for weights in maps:
        torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T))
        assert weights.triu(1).eq(0).all()
    # Taking the weights away from a layer's output moves the logits: they were used.
    (gradient,) = torch.autograd.grad(logits.sum(), maps[0])
    assert gradient.tril().ne(0).any()
    torch.testing.assert_close(logits, make_same(model)(tokens), rtol=1e-4, atol=1e-4)


def make_same(model: GPT) -> GPT:
    """Make the model once more, with its weights and without its hooks."""
    same = GPT(model.config)
    same.load_state_dict(model.state_dict())
    return same


@pytest.mark.parametrize("name", VARIANTS)
def test_open_and_fused_agree(name: str):
    opened = make(**(VARIANTS[name] | {"fused": False}))
    fused = GPT(replace(opened.config, fused=True))
    fused.load_state_dict(opened.state_dict())
    tokens = some_tokens()
    torch.testing.assert_close(fused(tokens), opened(tokens), rtol=1e-4, atol=1e-4)


def test_alibi_reaches_the_scores_of_every_layer():
    model = make(positions="alibi", fused=False)
    plain = GPT(replace(model.config, positions="none"))
    plain.load_state_dict(model.state_dict())
    tokens = some_tokens()
    # The first layer reads the same x with and without: its scores differ by the bias.
    (with_bias, *_), (without, *_) = (
        m(tokens, return_weights=True)[1] for m in (model, plain)
    )
    slopes = [1.0 * (8 / LONGEST) ** (head / (H - 1)) for head in range(H)]
    for head, slope in enumerate(slopes):
        for t in range(1, T):
            row = (with_bias / without)[:, head, t, : t + 1].log()
            steps = (row - row[:, t:]) / slope
            expected = torch.arange(-t, 1.0).expand(B, -1)
            torch.testing.assert_close(steps, expected, rtol=1e-3, atol=1e-3)


def test_smear_adds_a_share_of_the_token_before():
    model = make(smear=True, positions="none")
    tokens = some_tokens()
    seen: list[Tensor] = []
    model.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(tokens)
    rows = model.token_embedding.weight[tokens]
    torch.testing.assert_close(seen[0][:, 0], rows[:, 0])
    torch.testing.assert_close(seen[0][:, 1:], rows[:, 1:] + model.smear * rows[:, :-1])
    fresh = GPT(model.config)
    assert fresh.smear.eq(0).all()


def test_parameters_are_counted_by_hand():
    # Embeddings, then in each block two norms, four projections and two matrices
    # with their biases, then the last norm.
    block = 4 * D + 4 * (D * D + D) + (D * 4 * D + 4 * D) + (4 * D * D + D)
    assert GPT(SMALL).num_parameters() == V * D + LONGEST * D + L * block + 2 * D
    untied = GPT(replace(SMALL, tie_head=False))
    assert untied.num_parameters() == GPT(SMALL).num_parameters() + V * D

    expert = (D * 4 * D + 4 * D) + (4 * D * D + D)
    mixed = GPT(replace(SMALL, num_experts=5, experts_per_token=2))
    assert mixed.num_parameters() == GPT(SMALL).num_parameters() + L * (
        4 * expert + 5 * D
    )
    assert mixed.num_parameters(active=True) == mixed.num_parameters() - L * 3 * expert


def test_weights_start_small_and_smaller_where_a_block_adds():
    model = GPT(replace(SMALL, d_model=96, num_heads=3, tie_head=False))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all(), name
        elif parameter.ndim == 1:
            assert parameter.eq(1).all(), name
        else:
            adds = name.endswith(("o_proj.weight", "down.weight"))
            wanted = 0.02 / math.sqrt(2 * L) if adds else 0.02
            assert parameter.std().item() == pytest.approx(wanted, rel=0.05), name


def test_with_zeros_it_starts_without_an_opinion():
    model = GPT(replace(SMALL, zero_init=True, tie_head=False))
    assert model(some_tokens()).eq(0).all()
    tied = GPT(replace(SMALL, zero_init=True))
    x = tied.token_embedding.weight[some_tokens()] + tied.position_embedding.weight[:T]
    torch.testing.assert_close(tied(some_tokens()), tied.norm(x) @ tied.head_weight.T)


def test_dropout_stops_in_eval():
    model = make(dropout=0.5)
    tokens = some_tokens()
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    torch.testing.assert_close(model(tokens), make_same_without_dropout(model)(tokens))


def make_same_without_dropout(model: GPT) -> GPT:
    same = GPT(replace(model.config, dropout=0.0))
    same.load_state_dict(model.state_dict())
    return same


def test_balance_is_the_mean_of_the_layers_and_nothing_without_experts():
    mixed = make(num_experts=5)
    mixed(some_tokens())
    losses = [block.feed_forward.balance_loss for block in mixed.blocks]
    torch.testing.assert_close(mixed.balance_loss(), sum(losses) / L)
    plain = make()
    plain(some_tokens())
    assert float(plain.balance_loss()) == 0.0


@pytest.mark.usefixtures("as_a_caller")
def test_it_compiles_whole():
    torch.compiler.reset()
    model, tokens = make(positions="rotary"), some_tokens()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(tokens), model(tokens))


def test_new_cache_fits_the_model():
    model = make(num_kv_heads=2)
    cache = model.new_cache(5, max_length=11)
    assert [layer.keys.shape for layer in cache.layers] == [(5, 2, 11, D_K)] * L
    assert model.new_cache().max_length == LONGEST
    assert model.bfloat16().new_cache().layers[0].keys.dtype == torch.bfloat16
    message = "max_length=18 must not be beyond max_seq_len=17"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model.new_cache(max_length=18)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 0}, "vocab_size=0 must be positive"),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"d_model": 65}, "d_model=65 must be divisible by num_heads=6"),
        ({"num_kv_heads": 4}, "num_kv_heads=4 must divide num_heads=6"),
        (
            {"positions": "relative"},
            "positions='relative' must be one of "
            "learned, sinusoidal, rotary, alibi, none",
        ),
        ({"norm": "batch"}, "norm='batch' must be one of layer, rms"),
        (
            {"activation": "tanh"},
            "activation='tanh' must be one of "
            "gelu, gelu_tanh, relu, relu2, silu, swiglu",
        ),
        ({"dropout": -0.1}, "dropout=-0.1 must lie between 0 and 1"),
        ({"d_ff": 0}, "d_model=24 and d_ff=0 must be positive"),
        ({"num_experts": -1}, "num_experts=-1 must not be negative"),
        (
            {"num_experts": 2, "experts_per_token": 3},
            "experts_per_token=3 must lie between 1 and num_experts=2",
        ),
        (
            {"positions": "rotary", "d_model": 18},
            "head_dim=3 must be even for rotary positions",
        ),
        (
            {"positions": "sinusoidal", "d_model": 15, "num_heads": 3},
            "d_model=15 must be even for sinusoids",
        ),
    ],
)
def test_bad_settings_are_named(change, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(SMALL, **change)


@pytest.mark.usefixtures("as_a_caller")
def test_bad_tokens_are_named():
    model = make()
    with pytest.raises(ValueError, match=r"^tokens must be \(B, T\); they are \(7,\)$"):
        model(some_tokens()[0])
    with pytest.raises(ValueError, match=r"^18 tokens are more than max_seq_len=17$"):
        model(some_tokens(18))
    cache = model.new_cache(B)
    model(some_tokens(12), cache=cache)
    message = "6 tokens after 12 in the cache are more than max_seq_len=17"
    with pytest.raises(ValueError, match=f"^{message}$"):
        model(some_tokens(6), cache=cache)
    message = (
        "tokens hold ids from 0 to 13; "
        "they must be at least 0 and less than vocab_size=13"
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        model(torch.tensor([[0, 13]]))
