"""A recipe refuses what it cannot mean and survives JSON; rates, worked out by hand."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tested_transformer.training.recipe import Recipe

OUT_OF_RANGE = {
    "must be positive": {
        **{"steps": 0, "batch_size": -3, "seq_len": 0, "accumulate": 0},
        **{"evaluate_every": 0, "patience": 0, "lr": math.nan, "embedding_lr": 0.0},
        **{"head_lr": -1.0, "vector_lr": 0.0, "muon_lr": -1.0, "muon_rounds": 0},
        **{"eps": 0.0, "margin": 0.0},
    },
    "must not be negative": {
        **{"warmup": -1, "weight_decay": -0.1, "clip": -1.0, "balance_weight": -1.0},
        "seed": -1,
    },
    "must be finite": {"lr": math.inf, "weight_decay": math.inf},
    "must lie between 0 and 1": {"decay": 1.5, "final_lr": -0.5},
    "must be at least 0 and less than 1": {"muon_momentum": 1.0},
}
OF_ANOTHER_TYPE = {
    "must be an int": {
        **dict.fromkeys(("steps", "batch_size", "seq_len", "accumulate"), 5.0),
        **dict.fromkeys(("muon_rounds", "warmup", "evaluate_every", "seed")),
    },
    "must be a number": {"lr": "0.1", "clip": None},
    "must be True or False": {"compile": "no", "graph": 1},
}


def test_what_makes_no_recipe_is_named():
    refused: list[tuple[dict[str, Any], str]] = [
        *(
            ({name: value}, f"{name}={value!r} {requirement}")
            for table in (OUT_OF_RANGE, OF_ANOTHER_TYPE)
            for requirement, values in table.items()
            for name, value in values.items()
        ),
        ({"betas": (1.0, 0.9)}, "betas[0]=1.0 must be at least 0 and less than 1"),
        ({"betas": (0.9, None)}, "betas[1]=None must be a number"),
        ({"betas": 0.9}, "betas=0.9 must be two numbers, such as (0.9, 0.99)"),
        ({"betas": (0.9,)}, "betas=(0.9,) must be two numbers, such as (0.9, 0.99)"),
        ({"optimizer": "sgd"}, "optimizer='sgd' must be one of adamw, muon"),
        (
            {"steps": 7, "warmup": 7},
            "warmup=7 must be less than steps=7: for so short a run write warmup=0",
        ),
        (
            {"batch_size": 10, "accumulate": 3},
            "batch_size=10 must be divisible by accumulate=3",
        ),
    ]
    for changes, message in refused:
        of_type = any(message.endswith(requirement) for requirement in OF_ANOTHER_TYPE)
        error = TypeError if of_type else ValueError
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            Recipe(**changes)


def test_none_is_accepted_where_it_means_something():
    names = ("seq_len", "embedding_lr", "head_lr", "vector_lr", "compile")
    assert Recipe(**dict.fromkeys(names)) == Recipe()


def test_presets_take_changes_and_survive_json():
    for preset, optimizer in ((Recipe.plain, "adamw"), (Recipe.fast, "muon")):
        recipe = preset(steps=777, warmup=5, betas=(0.5, 0.25))
        assert (recipe.steps, recipe.warmup, recipe.betas) == (777, 5, (0.5, 0.25))
        assert recipe.optimizer == optimizer
        values = json.loads(json.dumps(recipe.to_dict()))
        assert Recipe.from_dict(values) == recipe
    assert Recipe.plain() == Recipe()


def test_an_unknown_name_in_json_is_named():
    with pytest.raises(ValueError, match=r"^a recipe has no batch, learning$"):
        Recipe.from_dict({"steps": 5, "learning": 1, "batch": 2})


FACTORS = [
    ({"schedule": "constant", "steps": 5, "warmup": 3}, [0.25, 0.5, 0.75, 1, 1]),
    ({"schedule": "linear", "steps": 5, "warmup": 1}, [0.5, 1, 0.75, 0.5, 0.25]),
    ({"schedule": "linear", "steps": 2, "final_lr": 0.2}, [1, 0.6]),
    (
        {"schedule": "trapezoid", "steps": 8, "decay": 0.5, "warmup": 1},
        [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25],
    ),
    # The fall begins no sooner than the rise has ended.
    (
        {"schedule": "trapezoid", "steps": 5, "decay": 1.0, "warmup": 1},
        [0.5, 1, 0.75, 0.5, 0.25],
    ),
    ({"schedule": "trapezoid", "steps": 3, "decay": 0.0}, [1, 1, 1]),
    ({"schedule": "cosine", "steps": 3}, [1, 0.75, 0.25]),
    ({"schedule": "cosine", "steps": 2, "final_lr": 0.1}, [1, 0.55]),
]


def test_the_factors_are_those_worked_out_by_hand():
    for settings, expected in FACTORS:
        recipe = Recipe(**{"warmup": 0, "final_lr": 0.0} | settings)
        factors = [recipe.rate_factor(step) for step in range(recipe.steps)]
        assert factors == pytest.approx(expected, abs=1e-12), settings


@given(
    schedule=st.sampled_from(["cosine", "linear", "trapezoid", "constant"]),
    steps=st.integers(2, 50),
    rise=st.floats(0, 0.9),
    decay=st.floats(0, 1),
    final=st.floats(0, 1),
)
def test_it_rises_then_falls_and_wastes_no_step(schedule, steps, rise, decay, final):
    warmup = int(rise * steps)
    recipe = Recipe(
        steps=steps, schedule=schedule, warmup=warmup, decay=decay, final_lr=final
    )
    factors = [recipe.rate_factor(step) for step in range(steps)]
    assert all(0.0 < factor <= 1.0 for factor in factors)
    assert factors[:warmup] == sorted(factors[:warmup])
    assert factors[warmup] == 1.0
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert min(factors[warmup:]) >= final
