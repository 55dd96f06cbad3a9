"""The pieces of a run that ``train`` puts together, with shapes checked."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tested_transformer.gpt import GPT
from tested_transformer.training import Recipe, World, train
from tested_transformer.training.run import Run

RECIPE = Recipe(
    steps=7, batch_size=6, seq_len=5, warmup=1, evaluate_every=3, precision="fp32"
)


def test_shapes_are_what_they_are_said_to_be(
    make_model: Callable[..., GPT], tokens: Tensor
):
    model = make_model(num_experts=3)
    recipe = replace(RECIPE, optimizer="muon", steps=2)
    state = train(model, tokens.to(torch.uint8), recipe, validation=tokens[:20])
    assert state.step == 2


def test_losses_are_read_many_at_a_time_where_reading_is_waiting(
    make_model: Callable[..., GPT], tokens: Tensor, monkeypatch: pytest.MonkeyPatch
):
    read: list[int] = []
    read_losses = Run.read_losses

    def count(run: Run) -> None:
        read.append(len(run.unread))
        read_losses(run)

    def slow_to_read(run: Run, *args: object, **settings: object) -> None:
        start(run, *args, **settings)
        run.read_every = 4

    start = Run.__init__
    expected = train(make_model(), tokens, RECIPE)
    monkeypatch.setattr(Run, "read_losses", count)
    monkeypatch.setattr(Run, "__init__", slow_to_read)
    reports, saved = [], []
    state = train(
        make_model(),
        tokens,
        RECIPE,
        validation=tokens[:50],
        on_step=reports.append,
        save=lambda state: saved.append((state.step, len(state.losses))),
        save_every=5,
    )
    # At 3 and 6 it is evaluated, at 4 it is time, at 5 and 7 it is saved.
    assert read == [3, 1, 1, 1, 1]
    assert state.losses == expected.losses
    assert saved == [(5, 5), (7, 7)]
    assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6, 7]
    assert [r.step for r in reports if r.validation] == [3, 6, 7]


def test_each_step_process_and_seed_draws_its_own_dropout(
    make_model: Callable[..., GPT], tokens: Tensor
):
    run = Run(make_model(), tokens, RECIPE)
    numbers = set()
    for seed in range(3):
        for rank in range(3):
            for step in range(50):
                run.recipe = replace(RECIPE, seed=seed)
                run.world, run.step = World(rank, 3), step
                numbers.add(run._number_of_step() % 2**32)
    # PyTorch's generator on the CPU takes 32 bits of a seed.
    assert len(numbers) == 3 * 3 * 50


@pytest.mark.parametrize("changes", [{"batch_size": 9}, {"accumulate": 2}])
def test_a_batch_is_shared_out_evenly_or_not_at_all(
    changes: dict, make_model: Callable[..., GPT], tokens: Tensor
):
    recipe = replace(RECIPE, **changes)
    world = World(rank=1, size=2)
    message = (
        rf"^batch_size={recipe.batch_size} must be divisible by "
        rf"accumulate={recipe.accumulate} times 2 processes$"
    )
    with pytest.raises(ValueError, match=message):
        Run(make_model(), tokens, recipe, world=world)


def test_float16_is_not_sharded(make_model: Callable[..., GPT], tokens: Tensor):
    recipe = replace(RECIPE, precision="fp16")
    message = r"^shard=True does not go with precision='fp16'$"
    with pytest.raises(ValueError, match=message):
        Run(make_model(), tokens, recipe, shard=True)
