"""Heads that were kept: what a configuration makes of them, and what it refuses."""

import re
from dataclasses import replace

import pytest

from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=13, max_seq_len=7, d_model=24, num_heads=4, num_layers=2)


def test_each_block_is_made_with_the_heads_that_were_kept():
    config = replace(CONFIG, kept_heads=((3,), (0, 1, 2)), num_kv_heads=4)
    made = [config.block_settings(layer) for layer in range(2)]
    assert [each["num_heads"] for each in made] == [1, 3]
    assert [each["num_kv_heads"] for each in made] == [1, 3]
    assert [each["head_dim"] for each in made] == [6, 6]
    attention = [block.attention for block in GPT(config).blocks]
    assert [each.q_proj.weight.shape for each in attention] == [(6, 24), (18, 24)]


def test_groups_that_share_keys_are_kept_whole():
    config = replace(CONFIG, kept_heads=((2, 3), (0, 1, 2, 3)), num_kv_heads=2)
    assert [config.block_settings(i)["num_kv_heads"] for i in range(2)] == [1, 2]
    whole = replace(CONFIG, num_kv_heads=2).block_settings(1)
    assert (whole["num_heads"], whole["num_kv_heads"]) == (4, 2)
    assert "head_dim" not in whole


@pytest.mark.parametrize(
    ("kept", "change", "message"),
    [
        (((0,),), {}, "kept_heads has 1 layers; num_layers=2"),
        (
            ((0,), (1, 1)),
            {},
            "kept_heads[1]=(1, 1) must be one or more of the heads 0 to 3, in order",
        ),
        (
            ((2, 0), (1,)),
            {},
            "kept_heads[0]=(2, 0) must be one or more of the heads 0 to 3, in order",
        ),
        (
            ((4,), (1,)),
            {},
            "kept_heads[0]=(4,) must be one or more of the heads 0 to 3, in order",
        ),
        (
            ((0, 1), (1, 2)),
            {"num_kv_heads": 2},
            "kept_heads[1]=(1, 2) must be whole groups: "
            "2 heads in a row share their keys and values",
        ),
    ],
)
def test_heads_that_cannot_be_kept_are_named(
    kept: tuple, change: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        replace(CONFIG, kept_heads=kept, **change)
