"""The layout of Phi-3: a Llama whose projections of one input share a matrix."""

from collections.abc import Iterator
from typing import Any

from tested_transformer.checkpoints.layouts.family import (
    Family,
    Settings,
    Stored,
    cut,
    joined,
    renamed,
)
from tested_transformer.checkpoints.layouts.llama import (
    around,
    block_names,
    read_sizes,
    write_sizes,
)
from tested_transformer.config import GPTConfig

__all__ = ["PHI3"]

_SHARED = {
    "self_attn.qkv_proj": [f"attention.{x}_proj" for x in "qkv"],
    "mlp.gate_up_proj": ["feed_forward.gate", "feed_forward.up"],
}
_ALONE = {
    "self_attn.o_proj": "attention.o_proj",
    "mlp.down_proj": "feed_forward.down",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_forward_norm",
}


def _read(settings: Settings) -> dict[str, Any]:
    sizes = read_sizes(settings, eps=1e-5)
    # Long texts would have other angles, if the rotary rule said so.
    settings.get("original_max_position_embeddings", None)
    return sizes | {"windows": settings.get("sliding_window", None)}


def _write(config: GPTConfig) -> dict[str, Any]:
    written = write_sizes(config)
    del written["head_dim"]  # it is always d_model / num_heads
    return written | {
        "sliding_window": config.window_of(0),
        "original_max_position_embeddings": config.max_seq_len,
    }


def _stored(config: GPTConfig) -> Iterator[Stored]:
    yield from renamed(around(config))
    for layer in range(config.num_layers):
        yield from renamed(block_names(layer, _ALONE))
        for name, parts in _SHARED.items():
            ours = tuple(f"blocks.{layer}.{part}.weight" for part in parts)
            yield Stored(f"model.layers.{layer}.{name}.weight", ours, joined, cut)


PHI3 = Family("phi3", "Phi3ForCausalLM", _read, _write, _stored)
