"""Heads for several tokens, side by side and in a chain: predictions and drafts."""

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.decoding import (
    ChainDrafter,
    ChainedGPT,
    HeadDrafter,
    MultiTokenGPT,
    RandomSource,
    Sampling,
    multi_token_loss,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.positions import alibi_bias, rotary_table

N, B, T, V = 4, 2, 7, 11


def make(model=MultiTokenGPT, num_tokens=N, *, shared=None, **changes):
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": 24}
    gpt = GPT(GPTConfig(vocab_size=V, **{**sizes, **changes})).double()
    how = {} if shared is None else {"shared": shared}
    return with_large_weights(model(gpt, num_tokens=num_tokens, **how)).eval()


KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "norm": "rms"},
    {"positions": "alibi", "smear": True},
    {"windows": (5, 4, 3), "tie_head": False},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_head_is_a_gpt_with_a_last_block_of_its_own(kind):
    model = make(**kind)
    tokens = torch.randint(V, (B, T))
    logits = model(tokens)
    assert logits.shape == (N, B, T, V)
    torch.testing.assert_close(logits[0], model.gpt(tokens))
    last = model.gpt.config.num_layers - 1
    for head, block in enumerate(model.further, 1):
        weights = model.gpt.state_dict()
        weights |= {f"blocks.{last}.{k}": v for k, v in block.state_dict().items()}
        plain = GPT.from_weights(model.gpt.config, weights)
        torch.testing.assert_close(logits[head], plain(tokens))
    cache = model.new_cache(B)
    pieces = [model(part, cache=cache) for part in tokens.split([4, 1, 2], 1)]
    torch.testing.assert_close(torch.cat(pieces, dim=2), logits)
    assert (cache.length, len(cache.layers)) == (T, 3 + N - 1)
    if "windows" not in kind:
        small = model.new_cache(5, max_length=9)
        assert small.nbytes * B * 24 == cache.nbytes * 5 * 9
    if "tie_head" in kind:
        model.gpt.head.register_forward_hook(lambda *call: 2.0 * call[2])
        torch.testing.assert_close(model(tokens), 2.0 * logits)


def test_heads_start_as_copies_of_the_last_block_and_are_saved_with_the_model():
    trained, tokens = make(), torch.randint(V, (B, T))
    gpt = GPT.from_weights(trained.gpt.config, trained.gpt.state_dict()).eval()
    model = MultiTokenGPT(gpt, num_tokens=N)
    assert model.gpt is gpt
    logits = model(tokens)
    assert torch.equal(logits, logits[:1].expand_as(logits))
    own = {id(parameter) for parameter in gpt.parameters()}
    assert not own & {id(parameter) for parameter in model.further.parameters()}
    model.load_state_dict(trained.state_dict())
    assert torch.equal(model(tokens), trained(tokens))


def test_each_head_is_trained_on_the_token_it_predicts():
    logits = torch.randn(N, B, T, V, dtype=torch.float64)
    targets = torch.randint(V, (B, T))
    for head, loss in enumerate(multi_token_loss(logits, targets)):
        guesses, truth = logits[head, :, : T - head], targets[:, head:]
        expected = F.cross_entropy(guesses.flatten(0, 1), truth.flatten())
        torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("kind", [MultiTokenGPT, ChainedGPT])
def test_a_gradient_reaches_every_head(kind):
    model, tokens = make(kind), torch.randint(V, (B, T + 1))
    multi_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).sum().backward()
    # The sum has a share of every weight; a bias of the keys is none in softmax.
    for name, parameter in model.named_parameters():
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (MultiTokenGPT, {}),
        *((ChainedGPT, changes) for changes in (*KINDS, {"shared": True})),
    ],
    ids=str,
)
def test_a_draft_is_drawn_from_what_the_heads_say_of_the_text_with_it(kind, changes):
    model = make(kind, **changes)
    drawn_from = Sampling(temperature=0.7, top_k=5).probabilities
    maker = ChainDrafter if kind is ChainedGPT else HeadDrafter
    drafter = maker(model, probabilities=drawn_from)
    reader = drafter.reader(model.gpt)
    prompt = [3, 1, 4, 1]
    assert drafter.draft([6], 2, RandomSource(0)).tokens == []
    assert drafter.draft([*prompt, 6], 2, RandomSource(0)).tokens == []
    for drafted, kept in (([], 0), ([5, 9], 0), ([5, 9], 1), ([5, 9], 2)):
        reader.read([*prompt, *drafted], len(drafted) + 1)
        text = [*prompt, *drafted[:kept], 6]
        draft = drafter.draft(text, 9, RandomSource(0))
        assert len(draft.tokens) == N - 1
        with torch.no_grad():
            logits = model(torch.tensor([[*text, *draft.tokens]]))[1:, 0, len(text) - 2]
        torch.testing.assert_close(draft.probabilities, drawn_from(logits))


# In a chain.


@torch.no_grad()
def by_hand(model, tokens):
    """Position by position, as in section 2.2 of the report."""
    gpt, seen = model.gpt, []
    with gpt.norm.register_forward_pre_hook(lambda _, inputs: seen.extend(inputs)):
        guesses, (x,) = [gpt(tokens)], seen
    for k, head in enumerate(model.further, 1):
        length, options = tokens.shape[1] - k, {}
        if gpt.config.positions == "rotary":
            options["rotary"] = rotary_table(torch.arange(length), 6).double()
        if gpt.config.positions == "alibi":
            options["score_bias"] = alibi_bias(gpt.slopes, length, length)
        pairs = [
            torch.cat([head.feature_norm(x[:, i]), head.token_norm(embedded)], dim=-1)
            for i in range(length)
            for embedded in [gpt.token_embedding(tokens[:, i + k])]
        ]
        x = head.block(torch.stack(pairs, 1) @ head.projection.weight.T, **options)
        guesses.append(gpt.norm(x) @ gpt.token_embedding.weight.T)
    return guesses


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
def test_each_head_computes_what_the_report_says(positions):
    model, tokens = make(ChainedGPT, positions=positions), torch.randint(V, (B, T))
    logits = model(tokens)
    assert logits.shape == (N, B, T, V)
    for ahead, expected in enumerate(by_hand(model, tokens)):
        torch.testing.assert_close(
            logits[ahead, :, : T - ahead], expected[:, : T - ahead]
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_head_reads_the_token_before_its_own_and_none_that_follow(kind):
    model, tokens = make(ChainedGPT, **kind), torch.randint(V, (B, T))
    logits = model(tokens)
    torch.testing.assert_close(logits[0], model.gpt(tokens))
    for at in range(1, T):
        changed = tokens.clone()
        changed[:, at] = (changed[:, at] + 1) % V
        differs = (model(changed) != logits).any(-1).any(1)
        for ahead in range(N):
            first = at - ahead  # the first position to know the token
            assert not differs[ahead, : max(first, 0)].any()
            if first >= 0:
                assert differs[ahead, first]


def test_one_head_may_be_used_again_and_again():
    assert (
        len(make(ChainedGPT, 1, shared=True).further)
        == len(make(ChainedGPT, 1).further)
        == 0
    )
    model, plain = make(ChainedGPT, shared=True), make(ChainedGPT)
    (head,) = model.further
    for further_head in plain.further:
        further_head.load_state_dict(head.state_dict())
    plain.gpt.load_state_dict(model.gpt.state_dict())
    tokens = torch.randint(V, (B, T))
    torch.testing.assert_close(model(tokens), plain(tokens))


def test_a_head_starts_as_a_copy_of_the_last_block():
    gpt = make(ChainedGPT, norm_eps=0.1, bias=False).gpt
    (head,) = ChainedGPT(gpt, num_tokens=2).further
    for norm in (head.feature_norm, head.token_norm):
        assert (norm.eps, norm.bias) == (0.1, None)
    for name, weight in gpt.blocks[-1].state_dict().items():
        assert torch.equal(head.block.state_dict()[name], weight)


def test_what_does_not_fit_is_refused(as_a_caller):
    model, loss = make(), multi_token_loss
    one_layer = GPT(GPTConfig(vocab_size=V, num_layers=1))
    cache, two = model.gpt.new_cache(), torch.ones(1, 2, dtype=torch.long)
    for call, message in (
        (lambda: MultiTokenGPT(one_layer, num_tokens=2), "num_layers=1 must be 2 or m"),
        (lambda: make(num_tokens=0), "num_tokens=0 must be positive"),
        (lambda: make(ChainedGPT, 0), "num_tokens=0 must be positive"),
        (lambda: model(two.expand(25, 2).T), "25 tokens are more than max_seq_len=24"),
        (lambda: model(two, cache=cache), "cache has 3 layers; all heads need 6"),
        (lambda: loss(torch.ones(3, 1, 2, 5), two), "number of heads=3 must lie betwe"),
        (lambda: loss(torch.ones(3, 1, 5, 9), two), "logits are for .1, 5. tokens, ta"),
    ):
        with pytest.raises(ValueError, match=f"^(the )?{message}"):
            call()
