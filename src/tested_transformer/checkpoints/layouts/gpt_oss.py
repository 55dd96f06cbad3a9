"""The layout of gpt-oss: sinks, windows in turns, and experts stored in one tensor.

The published weights of the experts are in four bits (MXFP4). Convert them with
``transformers``, which saves them in bfloat16 as they are read here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.checkpoints.layouts.family import (
    Family,
    Settings,
    Stored,
    renamed,
)
from tested_transformer.checkpoints.layouts.llama import (
    around,
    block_names,
    read_experts,
    read_sizes,
    read_windows,
    write_experts,
    write_sizes,
    write_windows,
)
from tested_transformer.config import GPTConfig

__all__ = ["GPT_OSS"]

_BIASED = {f"self_attn.{x}_proj": f"attention.{x}_proj" for x in "qkvo"}
_BIASED |= {"mlp.router": "feed_forward.router"}
_NORMS = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "feed_forward_norm",
}


def _read(settings: Settings) -> dict[str, Any]:
    settings.require("attention_bias", True)
    settings.require("swiglu_alpha", 1.702)
    settings.require("swiglu_limit", 7.0)
    settings.require("hidden_act", "silu")
    settings.require("quantization_config", None)
    if not settings.get("rope_parameters", None):
        settings.get("rope_scaling")  # silence would mean YaRN
    sizes = read_sizes(settings, base=150_000.0, eps=1e-5)
    slides = [layer % 2 == 0 for layer in range(sizes["num_layers"])]
    settings.get("experts_per_token", None)  # a second name of num_experts_per_tok
    settings.get("initial_context_length", None)  # the rotary rule says it
    return (
        sizes
        | read_windows(settings, slides)
        | read_experts(settings, "num_local_experts")
        | {
            "attention": AdjustedSoftmax(learned_sink=True),
            "activation": "swiglu_clamped",
            "bias": True,
            "router_bias": True,
        }
    )


def _write(config: GPTConfig) -> dict[str, Any]:
    plain = {"rope_scaling": {"rope_type": "default"}}  # silence would mean YaRN
    return plain | write_sizes(config) | write_windows(config) | write_experts(config)


def _stored(config: GPTConfig) -> Iterator[Stored]:
    yield from renamed(around(config))
    for layer in range(config.num_layers):
        yield from renamed(block_names(layer, _NORMS))
        yield from renamed(block_names(layer, _BIASED, biased=True))
        theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
        sinks = f"{theirs}.self_attn.sinks", f"{ours}.attention.core.sink"
        yield from renamed(dict([sinks]))
        experts = [
            f"{ours}.feed_forward.experts.{n}" for n in range(config.num_experts)
        ]
        for kind, end in (("weight", ""), ("bias", "_bias")):
            pairs = [f"{one}.{part}.{kind}" for one in experts for part in _PARTS]
            down = [f"{one}.down.{kind}" for one in experts]
            of = f"{theirs}.mlp.experts"
            yield Stored(f"{of}.gate_up_proj{end}", (*pairs,), _interleave, _separate)
            yield Stored(f"{of}.down_proj{end}", (*down,), _stack, _unstack)


_PARTS = ("gate", "up")


def _stack(weights: Sequence[Tensor]) -> Tensor:
    """Join experts, with matrices as (in, out)."""
    return torch.stack([expert.T if expert.ndim == 2 else expert for expert in weights])


def _unstack(stacked: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [expert.T if expert.ndim == 2 else expert for expert in stacked]


def _interleave(weights: Sequence[Tensor]) -> Tensor:
    """Join experts, with the outputs of gate and up in turns."""
    pairs = zip(weights[::2], weights[1::2], strict=True)
    return _stack([torch.stack(pair, dim=1).flatten(0, 1) for pair in pairs])


def _separate(stacked: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [
        part
        for expert in _unstack(stacked, like)
        for part in expert.unflatten(0, (-1, len(_PARTS))).unbind(1)
    ]


GPT_OSS = Family("gpt_oss", "GptOssForCausalLM", _read, _write, _stored)
