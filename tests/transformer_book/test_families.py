"""What works on the families of today, tried on tiny models of each."""

import pytest

from tested_transformer.checkpoints import FAMILIES
from transformer_book import families

NO_WINDOWS = "packed decoder", "int8 matrices", "rolling cache"
WITHOUT = {
    "smollm3": NO_WINDOWS[:2],
    "mistral": NO_WINDOWS,
    "mixtral": NO_WINDOWS[:2],
    "qwen3_moe": NO_WINDOWS[:2],
    "olmo2": ("pruned heads",),
    "gemma2": (*NO_WINDOWS, "pruned heads"),
    "gemma3_text": NO_WINDOWS,
    "gpt_oss": (*NO_WINDOWS, "pruned heads"),
}


def test_every_family_has_a_tiny_model() -> None:
    assert families.SETTINGS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", families.SETTINGS)
def test_what_works_gives_the_results_of_the_model(name: str) -> None:
    """And for what does not, the library says in one line what it lacks."""
    row = families.row(name)
    lacking = {feature for feature, answer in row.items() if answer != "yes"}
    assert lacking == {*WITHOUT.get(name, ())}
    for feature in lacking:
        answer = row[feature]
        assert "\n" not in answer
        words = ("attention=", "num_experts=", "qk_norm=", "window", "rotary_layers=")
        assert any(word in answer for word in words), answer
