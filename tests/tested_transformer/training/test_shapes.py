"""What ``train`` passes on has the shapes that it is said to have."""

import torch

from tested_transformer.training import Recipe, train


def test_shapes_are_what_they_are_said_to_be(make_model, tokens):
    model = make_model(num_experts=3)
    recipe = Recipe(
        steps=2, batch_size=6, seq_len=5, warmup=1, optimizer="muon", precision="fp32"
    )
    state = train(model, tokens.to(torch.uint8), recipe, validation=tokens[:20])
    assert state.step == 2
