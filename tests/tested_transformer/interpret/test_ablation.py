"""A gate of 0 takes a head away, and nothing else; slopes against differences."""

import re
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.attentions import Differential
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interpret import (
    all_open,
    gate_slopes,
    gated_heads,
    loss_changes,
    mean_instead,
    record_heads,
    shut,
)
from tested_transformer.surgery import prune_heads

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=15, num_heads=3, num_layers=2)
TOKENS = torch.tensor([[1, 5, 2, 12, 0, 7, 7], [4, 4, 3, 9, 10, 11, 6]])


@pytest.fixture
def model() -> GPT:
    return with_large_weights(GPT(CONFIG).double()).eval()


def test_a_shut_head_is_one_whose_columns_are_zero(model: GPT) -> None:
    gates = shut(model, [(1, 2), (0, 0)])
    gates[0][1] = 0.5  # and half a gate is half a head
    with gated_heads(model, gates):
        gated = model(TOKENS)
    with torch.no_grad():
        model.blocks[1].attention.o_proj.weight[:, 10:15] = 0.0
        model.blocks[0].attention.o_proj.weight[:, :5] = 0.0
        model.blocks[0].attention.o_proj.weight[:, 5:10] *= 0.5
    torch.testing.assert_close(gated, model(TOKENS))


def test_a_shut_head_gives_what_stands_in_its_place(model: GPT) -> None:
    outputs = record_heads(model, TOKENS).outputs
    caught: list[torch.Tensor] = []

    def listen(_: object, inputs: tuple[torch.Tensor]) -> None:
        caught.append(inputs[0].unflatten(-1, (3, 5)).transpose(1, 2))

    swapped = [heads.roll(1, dims=0) for heads in outputs]  # another text's
    for instead in (mean_instead(outputs), swapped):
        caught.clear()
        with gated_heads(model, shut(model, [(0, 1)]), instead=instead):
            hook = model.blocks[0].attention.o_proj.register_forward_pre_hook(listen)
            model(TOKENS)
            hook.remove()
        (gated,) = caught
        expected = outputs[0].clone()
        expected[:, 1] = instead[0][:, 1]
        torch.testing.assert_close(gated, expected)


def test_the_mean_is_over_texts_and_positions() -> None:
    outputs = torch.arange(24.0).view(2, 3, 4, 1)
    means = mean_instead([outputs])[0]
    assert means.flatten().tolist() == [7.5, 11.5, 15.5]
    assert means.shape == (1, 3, 1, 1)


def test_sequences_may_have_gates_of_their_own(model: GPT) -> None:
    gates = [gate.repeat(2, 1) for gate in all_open(model)]
    gates[1][0, 2] = 0.0
    with gated_heads(model, gates):
        mixed = model(TOKENS)
    with gated_heads(model, shut(model, [(1, 2)])):
        torch.testing.assert_close(mixed[0], model(TOKENS)[0])
    torch.testing.assert_close(mixed[1], model(TOKENS)[1])


def test_a_gate_has_a_gradient(model: GPT) -> None:
    def loss(gate: torch.Tensor) -> torch.Tensor:
        gates = all_open(model)
        with gated_heads(model, [gate, gates[1]]):
            return model(TOKENS).square().mean()

    gate = torch.tensor([1.0, 0.7, 0.2], dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(loss, gate)


def test_hooks_go_even_if_the_code_inside_fails(model: GPT) -> None:
    before = model(TOKENS)
    with pytest.raises(KeyError), gated_heads(model, shut(model, [(0, 0)])):
        raise KeyError
    assert torch.equal(model(TOKENS), before)


def test_a_head_that_is_not_there_is_named(model: GPT) -> None:
    for layer, head in ((2, 0), (0, 3), (-1, 0), (0, -1)):
        message = f"heads: the model has no head {head} in layer {layer}"
        with pytest.raises(ValueError, match=f"^{message}$"):
            shut(model, [(layer, head)])


def test_heads_in_pairs_have_no_gates_of_their_own() -> None:
    model = GPT(replace(CONFIG, attention=Differential(), d_model=16, num_heads=4))
    message = r"^attention=Differential\(\) of model joins heads in pairs before o_proj"
    with pytest.raises(ValueError, match=message), gated_heads(model, all_open(model)):
        pass
    with pytest.raises(ValueError, match=message):
        loss_changes(model, lambda: model(TOKENS).mean())
    with pytest.raises(ValueError, match=message):
        gate_slopes(model, lambda: model(TOKENS).mean((1, 2)), num_sequences=2)


def test_gates_for_another_model_are_refused(model: GPT) -> None:
    gates = all_open(model)
    message = "gates are for [3] heads; the model has [3, 3]"
    with (
        pytest.raises(ValueError, match=f"^{re.escape(message)}$"),
        gated_heads(model, gates[:1]),
    ):
        pass
    outputs = record_heads(model, TOKENS).outputs
    with (
        pytest.raises(ValueError, match=r"^instead is for 1 layers; the model has 2$"),
        gated_heads(model, gates, instead=outputs[:1]),
    ):
        pass


def losses(model: GPT) -> torch.Tensor:
    logits = model(TOKENS[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, TOKENS[:, 1:], reduction="none").mean(dim=1)


def test_a_change_is_the_loss_of_the_pruned_model_less_that_of_the_whole(
    model: GPT,
) -> None:
    changes = loss_changes(model, lambda: losses(model).mean())
    full_loss = losses(model).mean()
    for layer, head in ((0, 0), (0, 2), (1, 1)):
        pruned = prune_heads(model, [(layer, head)])
        expected = losses(pruned).mean() - full_loss
        torch.testing.assert_close(changes[layer][head], expected.detach())
    assert [len(change) for change in changes] == [3, 3]


def test_several_numbers_change_in_one_pass(model: GPT) -> None:
    together = loss_changes(model, lambda: losses(model))
    assert [tuple(change.shape) for change in together] == [(3, 2), (3, 2)]
    for index in (0, 1):
        alone = loss_changes(model, lambda index=index: losses(model)[index])
        for one, of_both in zip(alone, together, strict=True):
            torch.testing.assert_close(of_both[:, index], one)


def test_a_change_depends_on_what_stands_in_the_place(model: GPT) -> None:
    instead = record_heads(model, TOKENS[:, :-1]).outputs
    for same in loss_changes(model, lambda: losses(model).mean(), instead=instead):
        assert same.abs().max() < 1e-12
    changes = loss_changes(
        model, lambda: losses(model).mean(), instead=mean_instead(instead)
    )
    assert all(change.abs().min() > 1e-6 for change in changes)


def test_a_slope_is_a_small_difference_over_a_small_step(model: GPT) -> None:
    slopes = gate_slopes(model, lambda: losses(model), num_sequences=2)
    assert [tuple(slope.shape) for slope in slopes] == [(2, 3), (2, 3)]
    step = 1e-5
    for layer, head in ((0, 1), (1, 2)):
        ends = []
        for sign in (1, -1):
            gates = all_open(model)
            gates[layer][head] += sign * step
            with torch.no_grad(), gated_heads(model, gates):
                ends.append(losses(model))
        difference = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close(slopes[layer][:, head], difference)
    # Towards what the head writes anyway there is no slope.
    instead = record_heads(model, TOKENS[:, :-1]).outputs
    for flat in gate_slopes(
        model, lambda: losses(model), num_sequences=2, instead=instead
    ):
        assert flat.abs().max() < 1e-12
    assert all(parameter.grad is None for parameter in model.parameters())
