"""The models that are compared differ in their attention alone."""

import pytest
import torch
from benchmarks.latent import KINDS, make_model

from tested_transformer.gpt import GPT
from transformer_book import load_record


def kept(model: GPT) -> int:
    """Return how many numbers the first layer leaves in a cache for one token."""
    attention = model.blocks[0].attention
    widths = {name: part.weight for name, part in attention.named_modules() if name}
    if "kv_down" in widths:
        return widths["kv_down"].shape[0]
    return widths["k_proj"].shape[0] + widths["v_proj"].shape[0]


@pytest.mark.parametrize("kind", KINDS)
def test_each_keeps_what_the_record_says(kind: str) -> None:
    model = make_model(kind, 40)
    recorded = load_record("latent")["results"]["kinds"][kind]
    assert recorded["numbers a token and layer"] == kept(model)
    vocabulary = load_record("latent")["results"]["size"]["characters"]
    assert recorded["parameters"] == make_model(kind, vocabulary).num_parameters()
    assert model(torch.randint(40, (2, 7))).shape == (2, 7, 40)
