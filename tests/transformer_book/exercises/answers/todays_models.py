"""Answers to the exercises of *Today's models*: right ones, and wrong ones."""

from dataclasses import replace

from tested_transformer.gpt import GPTConfig
from transformer_book import grade_longest_text, grade_qwen3_config


def longest_text(config, memory, kinds=2):
    assert config.num_kv_heads is not None
    length, token = 0, kinds * 2 * config.num_kv_heads * config.d_k
    while length < config.max_seq_len:
        windows = map(config.window_of, range(config.num_layers))
        memory -= token * sum(window is None or length < window for window in windows)
        if memory < 0:
            break
        length += 1
    return length


def without_windows(config, memory):
    return longest_text(replace(config, windows=None), memory)


def without_end(config, memory):
    return longest_text(replace(config, max_seq_len=10**4), memory)


def for_each_head(config, memory):
    return longest_text(replace(config, num_kv_heads=config.num_heads), memory)


def one_more(config, memory):
    return min(config.max_seq_len, longest_text(config, memory) + 1)


def qwen3_config(settings, **changes):
    fields = {
        "vocab_size": settings["vocab_size"],
        "max_seq_len": settings["max_position_embeddings"],
        "d_model": settings["hidden_size"],
        "num_heads": settings["num_attention_heads"],
        "num_kv_heads": settings["num_key_value_heads"],
        "head_dim": settings["head_dim"],
        "num_layers": settings["num_hidden_layers"],
        "d_ff": settings["intermediate_size"],
        "positions": "rotary",
        "rotary_base": float(settings["rope_theta"]),
        "activation": "swiglu",
        "norm": "rms",
        "norm_eps": settings["rms_norm_eps"],
        "qk_norm": "heads",
        "bias": False,
        "tie_head": settings["tie_word_embeddings"],
    }
    return GPTConfig(**fields | changes)


RIGHT = {grade_longest_text: longest_text, grade_qwen3_config: qwen3_config}
WRONG = {
    grade_longest_text: {
        "as if no layer had a window": without_windows,
        "are more than max_seq_len=40": without_end,
        "keys *and* values": lambda *args: longest_text(*args, kinds=1),
        "not every query head": for_each_head,
        "10 tokens fit, not 11": one_more,
    },
    grade_qwen3_config: {
        "a head has 16 features": lambda *args: qwen3_config(*args, head_dim=None),
        "qk_norm is False": lambda settings: qwen3_config(settings, qk_norm=False),
        "qk_norm is True": lambda settings: qwen3_config(settings, qk_norm=True),
        "rotary_base is 10000.0": lambda s: qwen3_config(s, rotary_base=10000.0),
        "tie_head is True": lambda settings: qwen3_config(settings, tie_head=True),
        "qkv_bias: Qwen 3 has none": lambda *args: qwen3_config(*args, qkv_bias=True),
    },
}
