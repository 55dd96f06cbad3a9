"""What is kept of a run, through tensors and JSON."""

import json

import pytest
import torch

from tested_transformer.training.state import TrainingState, Validation


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
        precision="bf16",
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


def test_what_is_missing_is_named():
    for name in ("step", "seconds", "validations", "scaler", "losses"):
        tensors, values = a_state().state_tensors(), a_state().state_json()
        tensors.pop(name, None)
        values.pop(name, None)
        with pytest.raises(ValueError, match=f"^the training state lacks {name}$"):
            TrainingState.from_state(tensors, values)
    tensors, values = a_state().state_tensors(), a_state().state_json()
    tensors["losses"] = tensors["losses"][:-1]
    with pytest.raises(ValueError, match=r"^step=3 must equal the number of losses"):
        TrainingState.from_state(tensors, values)
