"""What contenders do is counted, trained and evaluated alike."""

from typing import Any

import pytest
import torch
from benchmarks.contenders import SMALL, Size, continued, formula
from benchmarks.cost import counted_operations
from benchmarks.loss import whole_loss
from benchmarks.nanogpt import documented_seconds
from benchmarks.ours import FAST, Ours, scatter
from benchmarks.train import batches_of, training_step
from benchmarks.worth import CHOICES, conclude
from torch import Tensor

from tested_transformer.gpt import GPTConfig
from tested_transformer.training import Recipe

TINY = Size(vocab_size=7, context=5, width=8, heads=2, layers=3, batch=2)


def test_beyond_the_context_the_last_half_is_read_anew() -> None:
    read: list[tuple[list[int], int]] = []

    def generate(tokens: list[int], count: int) -> list[int]:
        read.append((tokens, count))
        return [tokens[-1] + 1 + i for i in range(count)]

    assert continued(generate, [0, 1], 9, 6) == list(range(2, 11))
    assert read == [([0, 1], 4), ([3, 4, 5], 3), ([6, 7, 8], 2)]


def test_operations_are_counted_as_the_formula_says() -> None:
    tokens = torch.randint(7, (50,))
    assert counted_operations(TINY, tokens) == formula(TINY)
    # By hand: 10 tokens; 3 layers of 12 * 64 numbers, 7 * 8 in the head.
    matrices = 3 * 12 * 64 + 56
    assert formula(TINY) == 3 * 10 * (2 * matrices + 3 * 4 * 5 * 8)


def test_ours_has_as_many_parameters_as_nanogpt() -> None:
    # 65 tokens and 64 positions, 4 blocks of 12 matrices and 2 norms, 1 norm.
    expected = (65 + 64) * 128 + 4 * (12 * 128**2 + 2 * 128) + 128
    assert Ours().model(SMALL).num_parameters() == expected == 804_096


def test_batches_are_windows_and_the_tokens_after_them() -> None:
    batches = batches_of(torch.arange(30), TINY, 3)
    assert len(batches) == 3
    for inputs, targets in batches:
        assert inputs.shape == targets.shape == (2, 5)
        assert torch.equal(inputs + 1, targets)
        assert (inputs.diff(dim=1) == 1).all()
    (shortest,) = batches_of(torch.arange(6), TINY, 1)
    assert torch.equal(shortest[0], torch.arange(5).expand(2, 5))


def test_a_training_step_trains() -> None:
    torch.manual_seed(0)
    contender, tokens = Ours(), torch.arange(7).repeat(9)
    step = training_step(
        contender, contender.model(TINY), batches_of(tokens, TINY, 4), fused=True
    )
    losses = [step() for _ in range(9)]
    assert losses[-1] < losses[0] - 0.03


def test_the_cache_must_not_change_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    contender = Ours()
    model = scatter(contender.model(TINY))
    assert contender.same_tokens(model, [3], 13)
    honest = Ours.generate

    def wrong(*arguments: Any, cached: bool, temperature: float) -> list[int]:
        tokens = honest(*arguments, cached=cached, temperature=temperature)
        return [*tokens[:-1], tokens[-1] ^ 1] if cached and not temperature else tokens

    monkeypatch.setattr(Ours, "generate", wrong)
    assert not contender.same_tokens(model, [3], 13)


def test_scattered_models_guess_unevenly_and_alike() -> None:
    options, tokens = {"zero_init": True, "tie_head": False}, torch.arange(5)[None]
    assert Ours(options).model(TINY)(tokens).abs().max() == 0
    torch.manual_seed(0)
    first = scatter(Ours(options).model(TINY))
    torch.manual_seed(0)
    second = scatter(Ours(options).model(TINY))
    assert first(tokens).std() > 0.01
    assert torch.equal(first(tokens), second(tokens))


def test_the_whole_loss_predicts_every_token_once() -> None:
    seen: list[tuple[int, ...]] = []

    def logits(x: Tensor) -> Tensor:
        seen.append(tuple(x.shape))
        # As sure as can be that 1 comes after 0 and 2 after 1; of the rest, nothing.
        return torch.eye(3).roll(1, dims=1)[x] * 100.0

    # 0 1 2 0 1 2 0 0: only the last token is a surprise, and costs 100.
    tokens = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
    assert whole_loss(logits, tokens, context=3, batch=5) == pytest.approx(100 / 7)
    assert seen == [(2, 3), (1, 1)]


def test_nanogpts_own_times_are_read() -> None:
    printed = "number of parameters: 0.80M\nstep 0: train loss 4.2, val loss 4.2\n"
    for i in range(252):
        took = 900.0 if i in (0, 250) else 20.0 if i < 126 else 40.0
        printed += f"iter {i}: loss 3.1000, time {took:.2f}ms, mfu 0.10%\n"
    # 250 plain steps, half of them 20 ms; two that evaluate count as a median one.
    total, median = documented_seconds(printed, steps=252)
    assert median == pytest.approx(0.030)
    assert total == pytest.approx(125 * 0.020 + 125 * 0.040 + 2 * 0.030)
    with pytest.raises(ValueError, match="printed no time for step 252 of 300"):
        documented_seconds(printed, steps=300)


def test_what_a_choice_is_worth_is_compared_seed_by_seed() -> None:
    compared = conclude(
        {"all": [2.0, 1.0], "without": [2.25, 1.75], "no gain": [1.9, 1.0]}
    )
    assert {compared["all"][key] for key in ("worth", "least", "most")} == {0.0}
    assert compared["without"] == {
        "losses": [2.25, 1.75],
        "mean": 2.0,
        "worth": 0.5,
        "least": 0.25,
        "most": 0.75,
    }
    assert compared["no gain"]["worth"] == -0.05


def test_every_choice_undone_is_another_model_or_another_recipe() -> None:
    recommended, *others = CHOICES.values()
    assert (recommended.model, recommended.recipe) == ({}, {})
    for choice in others:
        changes_model = any(FAST.get(k, 0) != v for k, v in choice.model.items())
        recipe = Recipe.fast(**choice.recipe)
        assert changes_model != (recipe != Recipe.fast())
        GPTConfig(vocab_size=7, **{**FAST, **choice.model})
