"""Losses without a head, and slopes against differences."""

import torch
import torch.nn.functional as F

from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import (
    all_open,
    gate_slopes,
    gated_heads,
    loss_changes,
    mean_instead,
    prune_heads,
    record_heads,
)

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=15, num_heads=3, num_layers=2)


def setting() -> tuple[GPT, torch.Tensor]:
    model = GPT(CONFIG).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model, torch.randint(13, (2, 8))


def losses(model: GPT, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(dim=1)


def test_a_change_is_the_loss_of_the_pruned_model_less_that_of_the_whole() -> None:
    model, tokens = setting()
    changes = loss_changes(model, lambda: losses(model, tokens).mean())
    whole = losses(model, tokens).mean()
    for layer, head in ((0, 0), (0, 2), (1, 1)):
        pruned = prune_heads(model, [(layer, head)])
        wanted = losses(pruned, tokens).mean() - whole
        torch.testing.assert_close(changes[layer][head], wanted.detach())
    assert [len(each) for each in changes] == [3, 3]


def test_a_change_depends_on_what_stands_in_the_place() -> None:
    model, tokens = setting()
    instead = record_heads(model, tokens[:, :-1]).outputs
    for same in loss_changes(
        model, lambda: losses(model, tokens).mean(), instead=instead
    ):
        assert same.abs().max() < 1e-12
    changes = loss_changes(
        model, lambda: losses(model, tokens).mean(), instead=mean_instead(instead)
    )
    assert all(each.abs().min() > 1e-6 for each in changes)


def test_a_slope_is_a_small_difference_over_a_small_step() -> None:
    model, tokens = setting()
    slopes = gate_slopes(model, lambda: losses(model, tokens), num_sequences=2)
    assert [tuple(each.shape) for each in slopes] == [(2, 3), (2, 3)]
    step = 1e-5
    for layer, head in ((0, 1), (1, 2)):
        ends = []
        for sign in (1, -1):
            gates = all_open(model)
            gates[layer][head] += sign * step
            with torch.no_grad(), gated_heads(model, gates):
                ends.append(losses(model, tokens))
        difference = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close(slopes[layer][:, head], difference)
    assert all(parameter.grad is None for parameter in model.parameters())
