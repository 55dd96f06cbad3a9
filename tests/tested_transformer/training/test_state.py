"""What is kept of a run: through tensors and JSON, and into new optimizers."""

import json
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tested_transformer.gpt import GPT
from tested_transformer.training.optimizers import make_optimizers
from tested_transformer.training.progress import Validation
from tested_transformer.training.recipe import Recipe
from tested_transformer.training.state import (
    TrainingState,
    optimizer_tensors,
    restore_optimizers,
)


def a_state() -> TrainingState:
    return TrainingState(
        step=3,
        seconds=1.5,
        losses=[2.5, 2.0, 0.1],
        validations=[Validation(2, 2.25, 2.5, 2.5, 1e-7)],
        optimizer={
            "a.weight/exp_avg": torch.ones(2, 3),
            "a.weight/step": torch.ones(()),
        },
        scaler={"scale": 2.0},
        weights={"a.weight": torch.zeros(2, 3)},
        saved_step=3,
    )


def test_it_is_tensors_and_json_and_comes_back():
    state = a_state()
    tensors, values = state.state_tensors(), state.state_json()
    assert sorted(tensors) == [
        "losses",
        "optimizer/a.weight/exp_avg",
        "optimizer/a.weight/step",
    ]
    back = TrainingState.from_state(tensors, json.loads(json.dumps(values)))
    # The weights are the model's, and are kept with it.
    assert back.weights == {}
    back.weights = state.weights
    assert back == state


@pytest.mark.parametrize("name", ["step", "seconds", "validations", "scaler", "losses"])
def test_what_is_missing_is_named(name: str):
    tensors, values = a_state().state_tensors(), a_state().state_json()
    tensors.pop(name, None)
    values.pop(name, None)
    with pytest.raises(ValueError, match=f"^the training state lacks {name}$"):
        TrainingState.from_state(tensors, values)


def test_a_loss_too_few_is_seen():
    tensors, values = a_state().state_tensors(), a_state().state_json()
    tensors["losses"] = tensors["losses"][:-1]
    with pytest.raises(ValueError, match=r"^step=3 does not go with 2 losses$"):
        TrainingState.from_state(tensors, values)


def steps_of(
    model: GPT, optimizers: list[torch.optim.Optimizer], seeds: list[int]
) -> None:
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_new_optimizers_go_on_where_others_were(
    optimizer: str, make_model: Callable[..., GPT]
):
    recipe = Recipe(optimizer=optimizer)
    model = make_model()
    optimizers = make_optimizers(model, recipe)
    steps_of(model, optimizers, [1, 2])
    kept = {name: x.clone() for name, x in optimizer_tensors(model, optimizers).items()}
    weights = {name: x.clone() for name, x in model.state_dict().items()}
    steps_of(model, optimizers, [3, 4])

    other = make_model()
    other.load_state_dict(weights)
    others = make_optimizers(other, recipe)
    given = {name: x.clone() for name, x in kept.items()}
    restore_optimizers(other, others, given)
    steps_of(other, others, [3, 4])
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    # What was given was copied, not taken.
    for name, tensor in kept.items():
        assert torch.equal(given[name], tensor)


def test_another_optimizers_memory_is_refused(make_model: Callable[..., GPT]):
    model = make_model()
    muon = make_optimizers(model, Recipe(optimizer="muon"))
    adamw = make_optimizers(model, Recipe())
    steps_of(model, muon, [1])
    # Twelve matrices with three entries each on one side, one on the other.
    message = (
        "the training state is of another model or optimizer: 48 entries differ, "
        "blocks.0.attention.k_proj.weight/exp_avg among them"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        restore_optimizers(model, adamw, optimizer_tensors(model, muon))


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("norm.weight/exp_avg", torch.zeros(3), "(12,)"),
        ("norm.weight/step", torch.zeros(1), "()"),
    ],
)
def test_a_tensor_of_another_shape_is_refused(
    name: str, tensor: Tensor, shape: str, make_model: Callable[..., GPT]
):
    model = make_model()
    optimizers = make_optimizers(model, Recipe())
    steps_of(model, optimizers, [1])
    tensors = optimizer_tensors(model, optimizers) | {name: tensor}
    message = f"{name} of the training state is {tuple(tensor.shape)}, not {shape}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        restore_optimizers(model, make_optimizers(model, Recipe()), tensors)
