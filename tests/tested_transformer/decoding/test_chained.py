"""Heads in a chain: what each computes, what it may know, and drafts from them."""

import pytest
import torch

from tested_transformer.decoding import (
    ChainDrafter,
    ChainedGPT,
    RandomSource,
)
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.positions import alibi_bias, rotary_table

N, B, T, V, D = 4, 2, 7, 11, 12


def make(num_tokens=N, *, vocab_size=V, shared=False, **changes) -> ChainedGPT:
    torch.manual_seed(0)
    sizes = {"d_model": D, "num_heads": 2, "num_layers": 3, "max_seq_len": 24}
    config = GPTConfig(vocab_size=vocab_size, **{**sizes, **changes})
    gpt = GPT(config).double()
    model = ChainedGPT(gpt, num_tokens=num_tokens, shared=shared).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1, "norm": "rms"},
    {"positions": "alibi", "smear": True, "shared": True},
    {"windows": (5, 4, 3), "tie_head": False},
]


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
    model, tokens = make(positions=positions), torch.randint(V, (B, T))
    logits = model(tokens)
    assert logits.shape == (N, B, T, V)
    for ahead, expected in enumerate(by_hand(model, tokens)):
        torch.testing.assert_close(
            logits[ahead, :, : T - ahead], expected[:, : T - ahead]
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_head_reads_the_token_before_its_own_and_none_that_follow(kind):
    model, tokens = make(**kind), torch.randint(V, (B, T))
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
    assert len(make(1, shared=True).further) == len(make(1).further) == 0
    model, plain = make(shared=True), make()
    (head,) = model.further
    for other in plain.further:
        other.load_state_dict(head.state_dict())
    plain.gpt.load_state_dict(model.gpt.state_dict())
    tokens = torch.randint(V, (B, T))
    torch.testing.assert_close(model(tokens), plain(tokens))


def test_a_head_starts_as_a_copy_of_the_last_block():
    gpt = make(norm_eps=0.1, bias=False).gpt
    (head,) = ChainedGPT(gpt, num_tokens=2).further
    for norm in (head.feature_norm, head.token_norm):
        assert (norm.eps, norm.bias) == (0.1, None)
    for name, weight in gpt.blocks[-1].state_dict().items():
        assert torch.equal(head.block.state_dict()[name], weight)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_draft_is_drawn_from_what_the_heads_say_of_the_text_with_it(kind):
    model = make(**kind)
    drafter = ChainDrafter(model)
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
            logits = model(torch.tensor([[*text, *draft.tokens]]))[:, 0]
        rows = [logits[k, len(text) - 2] for k in range(1, N)]
        torch.testing.assert_close(draft.probabilities, torch.stack(rows).softmax(-1))


def test_what_does_not_fit_is_refused(as_a_caller):
    with pytest.raises(ValueError, match="num_tokens=0 must be positive"):
        make(0)
