"""Heads for several tokens: their predictions, their training, and drafts from them."""

import pytest
import torch
import torch.nn.functional as F

from tested_transformer.decoding import (
    ChainedGPT,
    HeadDrafter,
    MultiTokenGPT,
    RandomSource,
    Sampling,
    multi_token_loss,
)
from tested_transformer.gpt import GPT, GPTConfig

N, B, T, V = 3, 2, 7, 11


def make(num_tokens=N, *, vocab_size=V, **changes) -> MultiTokenGPT:
    torch.manual_seed(0)
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 3, "max_seq_len": 24}
    config = GPTConfig(vocab_size=vocab_size, **{**sizes, **changes})
    model = MultiTokenGPT(GPT(config).double(), num_tokens=num_tokens).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


KINDS = [
    {},
    {"positions": "rotary", "num_kv_heads": 1},
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
    model, tokens = kind(make().gpt, num_tokens=N), torch.randint(V, (B, T + 1))
    multi_token_loss(model(tokens[:, :-1]), tokens[:, 1:]).sum().backward()
    # The sum has a share of every weight; a bias of the keys is none in softmax.
    for name, parameter in model.named_parameters():
        if not name.endswith("k_proj.bias"):
            assert parameter.grad.abs().sum() > 0, name


def test_the_draft_is_the_further_heads_prediction_at_the_last_accepted_token():
    model, greedy = make(), Sampling(temperature=0.0)
    drafter = HeadDrafter(model, probabilities=greedy.probabilities)
    reader = drafter.reader(model.gpt)
    prompt = [3, 1, 4, 1]
    assert drafter.draft([*prompt, 6], 2, RandomSource(0)).tokens == []
    for drafted, kept in (([], 0), ([5, 9], 0), ([5, 9], 1), ([5, 9], 2)):
        reader.read([*prompt, *drafted], len(drafted) + 1)
        text = [*prompt, *drafted[:kept]]
        ahead = model(torch.tensor([text]))[1:, 0, -1]
        draft = drafter.draft([*text, 6], 2, RandomSource(0))
        assert draft.tokens == ahead.argmax(-1).tolist()


def test_what_does_not_fit_is_refused(as_a_caller):
    model, loss = make(), multi_token_loss
    one_layer = GPT(GPTConfig(vocab_size=V, num_layers=1))
    cache, two = model.gpt.new_cache(), torch.ones(1, 2, dtype=torch.long)
    for call, message in (
        (lambda: MultiTokenGPT(one_layer, num_tokens=2), "num_layers=1 must be 2 or m"),
        (lambda: make(0), "num_tokens=0 must be positive"),
        (lambda: model(two.expand(25, 2).T), "25 tokens are more than max_seq_len=24"),
        (lambda: model(two, cache=cache), "cache has 3 layers; all heads need 5"),
        (lambda: loss(torch.ones(3, 1, 2, 5), two), "number of heads=3 must lie betwe"),
        (lambda: loss(torch.ones(3, 1, 5, 9), two), "logits are for .1, 5. tokens, ta"),
    ):
        with pytest.raises(ValueError, match=f"^(the )?{message}"):
            call()
