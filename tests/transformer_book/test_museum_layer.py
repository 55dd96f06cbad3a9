"""With no step exchanged, the museum's layer is the library's."""

from dataclasses import replace

import pytest
import torch

from attention_check import EXHIBITS, Steps
from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.masks import padding_mask
from tested_transformer.multihead import MultiHeadAttention
from transformer_book.museum import ExchangeableAttention, with_steps

B, T, D, HEADS = 2, 5, 24, 6


@pytest.mark.parametrize(
    ("kv_heads", "causal", "padded"),
    [(6, False, False), (3, True, False), (1, False, True), (3, True, True)],
)
def test_the_right_steps_are_the_librarys(kv_heads, causal, padded):
    sizes = {"d_model": D, "num_heads": HEADS, "num_kv_heads": kv_heads}
    library = MultiHeadAttention(**sizes, fused=False).double()
    steps = ExchangeableAttention(**sizes).double()
    state = {name.replace("_proj", ""): w for name, w in library.state_dict().items()}
    steps.load_state_dict(state)
    mask = padding_mask(torch.tensor([T, 3])) if padded else None
    x = torch.randn(B, T, D, dtype=torch.double, requires_grad=True)
    direction = torch.randn(B, T, D, dtype=torch.double)
    results = []
    for layer in (library, steps):
        output, weights = layer(x, mask=mask, causal=causal, return_weights=True)
        slopes = torch.autograd.grad(output, [x, *layer.parameters()], direction)
        results.append([output, weights, *slopes])
        torch.testing.assert_close(layer(x, mask=mask, causal=causal), output)
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(expected, actual)


def test_an_exhibit_keeps_every_shape():
    layer = ExchangeableAttention(d_model=20, num_heads=4, num_kv_heads=2)
    x = torch.randn(3, 7, 20)
    for name, exhibit in EXHIBITS.items():
        layer.steps = exhibit.steps
        output, weights = layer(x, causal=True, return_weights=True)
        assert output.shape == x.shape, name
        assert weights is None or weights.shape == (3, 4, 7, 7), name


def test_a_gpt_of_right_steps_is_the_gpt():
    config = GPTConfig(
        vocab_size=11, max_seq_len=7, d_model=12, num_heads=4, num_layers=2
    )
    model = GPT(replace(config, num_kv_heads=2)).double()
    with torch.no_grad():  # to the last digit, of which single precision has no room
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    copy = with_steps(model, Steps())
    for before, after in zip(model.parameters(), copy.parameters(), strict=True):
        assert torch.equal(before, after)
    tokens = torch.randint(11, (3, 7))
    torch.testing.assert_close(copy(tokens), model(tokens))
    assert type(model.blocks[0].attention) is MultiHeadAttention
    cache = copy.new_cache(3)
    with torch.no_grad():
        pieces = [copy(piece, cache=cache) for piece in tokens.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens))

    changed = with_steps(copy, Steps(mix=lambda layer, heads: heads))
    assert not torch.allclose(changed(tokens), model(tokens))


def test_a_gpt_that_does_more_is_refused():
    for setting in (
        {"positions": "rotary"},
        {"positions": "alibi"},
        {"qk_norm": True},
        {"attention": AdjustedSoftmax(soft_cap=5.0)},
    ):
        model = GPT(GPTConfig(vocab_size=5, d_model=8, num_heads=2, **setting))
        with pytest.raises(ValueError, match=r"ha(ve|s) no counterpart in the steps"):
            with_steps(model, Steps())
