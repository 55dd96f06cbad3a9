"""Graders of *Today's models*."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from tested_transformer.checkpoints import FAMILIES
from tested_transformer.gpt import GPTConfig

__all__ = ["grade_longest_text", "grade_qwen3_config"]

_SIZES: dict[str, Any] = {
    "vocab_size": 7,
    "max_seq_len": 40,
    "d_model": 24,
    "num_heads": 6,
    "head_dim": 8,
    "num_layers": 3,
    "num_kv_heads": 2,
}


def grade_longest_text(answer: Callable[[GPTConfig, int], int]) -> str:
    """Grade how long a text is whose cache fits, at two bytes per number.

    Args:
        answer: A function of a configuration and a number of bytes.
    """
    row = 2 * 2 * _SIZES["num_kv_heads"] * _SIZES["head_dim"]  # one token, one layer
    for windows, rows, fits in (
        (None, 30, 10),
        (None, 29, 9),
        (None, 0, 0),
        ((5, 5, None), 10 + 20, 20),
        ((5, None, None), 5 + 24, 12),
        ((5, 5, 5), 14, 4),
        ((5, 5, 5), 15, 40),
        (None, 1000, 40),
    ):
        config = GPTConfig(**_SIZES, windows=windows)
        got = answer(config, rows * row)
        where = f"windows={windows}, memory for {rows} keys and values"
        if got == fits:
            continue
        assert got <= config.max_seq_len, (
            f"{where}: {got} tokens are more than max_seq_len={config.max_seq_len}"
        )
        assert windows is None or got != rows // 3, (
            f"{where}: {got} tokens, as if no layer had a window"
        )
        assert got != rows // 3 * 2, f"{where}: keys *and* values: {got} is too long"
        assert got != rows // 9, f"{where}: not every query head has keys of its own"
        raise AssertionError(f"{where}: {fits} tokens fit, not {got}")
    return "right"


def grade_qwen3_config(answer: Callable[[Mapping[str, Any]], GPTConfig]) -> str:
    """Grade the config that is read from the settings of a Qwen 3.

    Args:
        answer: A function of the content of ``config.json``.
    """
    for tied in (True, False):
        settings = {
            "model_type": "qwen3",
            "vocab_size": 211,
            "max_position_embeddings": 96,
            "hidden_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "intermediate_size": 72,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-06,
            "rope_theta": 1_000_000,
            "tie_word_embeddings": tied,
        }
        got, expected = answer(settings), FAMILIES["qwen3"].config(settings, "Qwen 3")
        assert isinstance(got, GPTConfig), f"it returns a {type(got).__name__}"
        assert got.d_k == expected.d_k, (
            f"a head has {expected.d_k} features, which head_dim says, not {got.d_k}"
        )
        for field in fields(got):
            if field.name in ("head_dim", "qkv_bias", "windows"):
                continue
            value, right = getattr(got, field.name), getattr(expected, field.name)
            assert value == right, f"{field.name} is {value!r}; Qwen 3 needs {right!r}"
        assert not got.qkv_bias, "qkv_bias: Qwen 3 has none"
    return "right"
