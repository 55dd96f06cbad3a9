"""Heads for several tokens: what they guess, what is trained, and drafts from them."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from tested_transformer.decoding import (
    Chance,
    HeadDrafter,
    Sampling,
    SeveralTokenGPT,
    every_outcome,
    generate,
    several_token_loss,
    speculate,
)
from tested_transformer.gpt import GPT, GPTConfig

N, B, T, V = 3, 2, 7, 11


def make(num_tokens=N, *, vocab_size=V, **changes) -> SeveralTokenGPT:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": 24}
    config = GPTConfig(vocab_size=vocab_size, **{**sizes, **changes})
    model = SeveralTokenGPT(config, num_tokens=num_tokens).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1},
    {"positions": "alibi", "smear": True},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_first_head_is_a_gpt_and_each_further_one_has_its_own_last_block(kind):
    model = make(**kind)
    tokens = torch.randint(V, (B, T))
    logits = model.forward_all(tokens)
    assert logits.shape == (N, B, T, V)
    torch.testing.assert_close(logits[0], model(tokens))
    plain = GPT(model.config).double()
    state = model.state_dict()
    for head, block in enumerate(model.further, 1):
        weights = {k: v for k, v in state.items() if not k.startswith("further")}
        last = model.config.num_layers - 1
        weights |= {f"blocks.{last}.{k}": v for k, v in block.state_dict().items()}
        plain.load_state_dict(weights)
        torch.testing.assert_close(logits[head], plain(tokens))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_in_pieces_through_a_cache_it_is_the_same(kind):
    model = make(**kind)
    tokens = torch.randint(V, (B, T))
    cache = model.new_cache(B, further=True)
    pieces = [
        model.forward_all(part, cache=cache) for part in tokens.split([4, 1, 2], 1)
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=2), model.forward_all(tokens))
    assert cache.length == T
    assert len(cache.layers) == model.num_blocks == 3 + N - 1


def test_all_heads_are_on_the_device_and_of_the_type_that_is_asked_for():
    config = make().config
    model = SeveralTokenGPT(config, num_tokens=N, device="meta", dtype=torch.bfloat16)
    weights = {(w.device.type, w.dtype) for w in model.parameters()}
    assert weights == {("meta", torch.bfloat16)}
    torch.manual_seed(0)
    model = SeveralTokenGPT(config, num_tokens=N)
    torch.manual_seed(0)
    half = SeveralTokenGPT(config, num_tokens=N, dtype=torch.float16)
    for name, weight in model.state_dict().items():
        assert torch.equal(half.state_dict()[name], weight.half()), name


def test_the_documented_way_to_a_plain_gpt_and_back_from_weights():
    model, tokens = make(), torch.randint(V, (B, T))
    weights = model.state_dict()
    first = {k: v for k, v in weights.items() if not k.startswith("further.")}
    plain = GPT.from_weights(model.config, first).eval()
    torch.testing.assert_close(plain(tokens), model(tokens))
    with pytest.raises(TypeError) as refused:
        SeveralTokenGPT.from_weights(model.config, weights)
    assert str(refused.value) == (
        "SeveralTokenGPT.from_weights does not know num_tokens: write "
        "model = SeveralTokenGPT(config, num_tokens=...), then "
        "model.load_state_dict(weights)"
    )
    again = SeveralTokenGPT(model.config, num_tokens=N, dtype=torch.float64).eval()
    again.load_state_dict(weights)
    assert torch.equal(again.forward_all(tokens), model.forward_all(tokens))


def test_each_head_is_trained_on_the_token_it_guesses():
    logits = torch.randn(N, B, T, V, dtype=torch.float64)
    targets = torch.randint(V, (B, T))
    losses = several_token_loss(logits, targets)
    for head in range(N):
        pairs = [
            -F.log_softmax(logits[head, b, t], dim=-1)[targets[b, t + head]]
            for b, t in product(range(B), range(T - head))
        ]
        torch.testing.assert_close(losses[head], torch.stack(pairs).mean())


def test_a_gradient_reaches_every_head():
    model = make()
    tokens = torch.randint(V, (B, T + 1))
    several_token_loss(
        model.forward_all(tokens[:, :-1]), tokens[:, 1:]
    ).sum().backward()
    # The sum has a share of every weight; a bias of the keys is none in softmax.
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("num_drafted", [1, 2, 5])
def test_greedily_it_writes_what_generate_writes(kind, num_drafted):
    model, greedy = make(**kind), Sampling(temperature=0.0)
    plain = GPT(model.config).double().eval()
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("further")}
    plain.load_state_dict(own)
    (expected,) = generate(plain, [[3, 1, 4]], max_new_tokens=20, sampling=greedy)
    found = speculate(
        model,
        [3, 1, 4],
        HeadDrafter(probabilities=greedy.probabilities),
        max_new_tokens=20,
        num_drafted=num_drafted,
        probabilities=greedy.probabilities,
    )
    assert found.tokens == expected
    assert generate(model, [[3, 1, 4]], max_new_tokens=20, sampling=greedy) == [
        expected
    ]
    assert found.drafted[0] == 0
    assert max(found.drafted) == min(num_drafted, N - 1)


def test_the_draft_is_the_further_heads_guess_at_the_last_place_that_stands():
    model, greedy = make(), Sampling(temperature=0.0)
    drafter = HeadDrafter(probabilities=greedy.probabilities)
    reader = drafter.reader(model)
    prompt = [3, 1, 4, 1]
    for drafted, kept in (([], 0), ([5, 9], 0), ([5, 9], 1), ([5, 9], 2)):
        reader.read([*prompt, *drafted], len(drafted) + 1)
        text = [*prompt, *drafted[:kept]]
        ahead = model.forward_all(torch.tensor([text]))[1:, 0, -1]
        found = drafter.draft([*text, 6], 2, Chance(0))
        assert found.tokens == ahead.argmax(-1).tolist()


def test_every_text_has_the_targets_probability():
    model, prompt, length, size = make(vocab_size=2), [1, 0, 1], 4, 2

    def run(chance):
        how = {"max_new_tokens": length, "num_drafted": 2, "chance": chance}
        return (*speculate(model, prompt, HeadDrafter(), **how).tokens,)

    found = every_outcome(run)
    for text in product(range(size), repeat=length):
        with torch.no_grad():
            rows = model(torch.tensor([[*prompt, *text]]))[0, 2:-1].softmax(dim=-1)
        expected = torch.stack([rows[i, t] for i, t in enumerate(text)]).prod()
        assert found[text] == pytest.approx(expected.item(), abs=1e-9)


def test_what_does_not_fit_is_refused():
    config = GPTConfig(vocab_size=V, num_layers=1)
    with pytest.raises(ValueError, match="num_layers=1 must be 2 or more"):
        SeveralTokenGPT(config, num_tokens=2)
    with pytest.raises(ValueError, match="num_tokens=0 must be positive"):
        make(0)
    with pytest.raises(ValueError, match="number of heads=3 must lie between 1 and 2"):
        several_token_loss(torch.zeros(3, 1, 2, 5), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(TypeError, match="model must be a SeveralTokenGPT; it is a GPT"):
        speculate(GPT(config), [1], HeadDrafter(), max_new_tokens=2)
    with pytest.raises(ValueError, match="the drafter has no model yet"):
        HeadDrafter().draft([1], 2, Chance(0))


def test_what_heads_cannot_read_is_named(as_a_caller: None) -> None:
    config = GPTConfig(vocab_size=5, max_seq_len=7, d_model=12, num_heads=3)
    model = SeveralTokenGPT(config, num_tokens=3)
    with pytest.raises(ValueError, match="8 tokens are more than max_seq_len=7"):
        model.forward_all(torch.ones(1, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="cache has 4 layers; all heads need 6"):
        model.forward_all(torch.ones(1, 2).long(), cache=model.new_cache())
    with pytest.raises(ValueError, match=r"logits are for .2, 5. tokens, targets for"):
        several_token_loss(torch.rand(3, 2, 5, 11), torch.ones(2, 7).long())


def test_the_head_is_called():
    config = GPTConfig(
        vocab_size=11,
        max_seq_len=7,
        d_model=8,
        num_heads=2,
        num_layers=2,
        tie_head=False,
    )
    model = SeveralTokenGPT(config, num_tokens=3)
    tokens = torch.randint(11, (2, 5))
    expected = 2.0 * model.forward_all(tokens)
    model.head.register_forward_hook(lambda *given: 2.0 * given[2])
    torch.testing.assert_close(model.forward_all(tokens), expected)
