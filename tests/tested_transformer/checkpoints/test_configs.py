"""Settings as JSON: attention by its name, and defaults for what a file lacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from tested_transformer.attentions import AdjustedSoftmax, ChosenBlocks, Latent
from tested_transformer.checkpoints import CheckpointError
from tested_transformer.checkpoints.configs import describe_config, read_config
from tested_transformer.gpt import GPTConfig
from tested_transformer.interfaces import Attention
from tested_transformer.multihead import Softmax

SIZES: dict[str, Any] = {"vocab_size": 11, "max_seq_len": 9, "d_model": 12}
SIZES |= {"num_heads": 2, "num_layers": 2, "positions": "rotary"}
PATH = Path("checkpoint.json")


def test_attention_is_written_with_its_name_and_settings():
    attentions: list[tuple[Attention, str, dict[str, Any]]] = [
        (Softmax(), "softmax", {}),
        (Latent(latent_dim=5), "latent", {"latent_dim": 5}),
        (AdjustedSoftmax(soft_cap=5.0), "soft_capped", {"soft_cap": 5.0}),
        (ChosenBlocks(block_size=2), "blocks", {"block_size": 2, "num_chosen": 3}),
    ]
    for attention, name, settings in attentions:
        config = GPTConfig(**SIZES, attention=attention)
        described = json.loads(json.dumps(describe_config(config)))
        assert described["attention"] == name
        assert described["attention_settings"].items() >= settings.items()
        assert read_config(described, PATH) == config
    assert read_config(SIZES, PATH) == GPTConfig(**SIZES)


def test_settings_in_tuples_come_back():
    for changes in (
        {"windows": (2, None), "kept_heads": ((0,), (0, 1))},
        {"rotary_rates": (0.1, 1 / 3, 0.0)},
    ):
        config = GPTConfig(**SIZES, **changes)
        again = read_config(json.loads(json.dumps(describe_config(config))), PATH)
        assert (again, hash(again)) == (config, hash(config))


def test_settings_that_once_were_fields_are_read():
    once = {"latent_dim": 5, "soft_cap": None, "block_size": None, "num_chosen": None}
    expected = GPTConfig(**SIZES, attention=Latent(latent_dim=5))
    assert read_config(SIZES | once | {"attention": "latent"}, PATH) == expected


def test_what_no_model_has_is_refused_with_the_file():
    changes: dict[str, Any]
    for changes, message in (
        ({"attention": "none"}, ".*attention='none' must be one of softmax, latent"),
        ({"attention_settings": {"x": 1}}, ".*x=1 does not fit attention='softmax'"),
        ({"attention": {"name": "latent"}}, ".*unhashable type"),
        ({"width": 3, "depth": 2}, "config has depth, width, which this library does"),
        ({"num_heads": 5}, ".*d_model=12 must be divisible by num_heads=5"),
    ):
        with pytest.raises(CheckpointError, match=rf"^checkpoint\.json: {message}"):
            read_config(SIZES | changes, PATH)
