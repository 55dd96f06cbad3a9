"""Convert weights from and to the layout of GPT-2.

It has one matrix for queries, keys and values, which is split in three here, and stores
its matrices as (in, out), the transpose of ``nn.Linear``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.layouts.family import (
    Family,
    Settings,
    Stored,
    cut,
    joined,
)
from tested_transformer.checkpoints.loading import fill_model
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["from_gpt2", "full_name", "stored_as_gpt2", "to_gpt2"]

# --8<-- [start:names]
# Their names and ours, without .weight and .bias.
_AROUND = {"wte": "token_embedding", "wpe": "position_embedding", "ln_f": "norm"}
_IN_BLOCK = {
    "ln_1": ["attention_norm"],
    "attn.c_attn": ["attention.q_proj", "attention.k_proj", "attention.v_proj"],
    "attn.c_proj": ["attention.o_proj"],
    "ln_2": ["feed_forward_norm"],
    "mlp.c_fc": ["feed_forward.up"],
    "mlp.c_proj": ["feed_forward.down"],
}
# The matrices that GPT-2 stores as (in, out).
_TURNED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
# --8<-- [end:names]
# The causal mask, which old files contain.
_MASKS = re.compile(r"\.attn\.(bias|masked_bias)$")

# Our settings and theirs.
_SIZES = {
    "vocab_size": "vocab_size",
    "max_seq_len": "n_positions",
    "d_model": "n_embd",
    "num_heads": "n_head",
    "num_layers": "n_layer",
}
# Settings that GPT-2 can change and GPT cannot.
_FIXED = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}


def _read(settings: Settings) -> dict[str, Any]:
    for name, value in _FIXED.items():
        settings.require(name, value)
    activation = settings.choose("activation_function", _ACTIVATIONS, "gelu_new")
    sizes = {ours: settings.get(name) for ours, name in _SIZES.items()}
    settings.ignore_the_rest()  # of dropout, and of tasks
    return sizes | {
        "d_ff": settings.get("n_inner", None),
        "activation": activation,
        "tie_head": settings.get("tie_word_embeddings", True),
    }


def _write(config: GPTConfig) -> dict[str, Any]:
    names = {ours: name for name, ours in reversed(_ACTIVATIONS.items())}
    return {
        **_FIXED,
        **{name: getattr(config, ours) for ours, name in _SIZES.items()},
        "n_inner": config.d_ff,
        "activation_function": names.get(config.activation, "gelu_new"),
        "tie_word_embeddings": config.tie_head,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout),
    }


def stored_as_gpt2(config: GPTConfig, *, turned: bool = True) -> Iterator[Stored]:
    """Yield the tensors of a model under GPT-2's names.

    Args:
        config: The settings of the model.
        turned: Whether matrices are stored as (in, out).
    """
    places = {f"transformer.{name}": [ours] for name, ours in _AROUND.items()}
    for n in range(config.num_layers):
        for name, ours in _IN_BLOCK.items():
            places[f"transformer.h.{n}.{name}"] = [f"blocks.{n}.{x}" for x in ours]
    if not config.tie_head:
        places["lm_head"] = ["head"]
    for name, parts in places.items():
        table = name.endswith(("wte", "wpe", "lm_head"))
        for kind in ("weight", "bias") if config.bias and not table else ("weight",):
            turn = turned and _TURNED.search(f"{name}.{kind}")
            both_ways = (_joined_and_turned, _turned_and_cut) if turn else (joined, cut)
            ours = tuple(f"{part}.{kind}" for part in parts)
            yield Stored(f"{name}.{kind}", ours, *both_ways)


def _joined_and_turned(weights: Sequence[Tensor]) -> Tensor:
    return joined(weights).T.contiguous()


def _turned_and_cut(matrix: Tensor, like: Sequence[Tensor]) -> Sequence[Tensor]:
    return cut(matrix.T, like)


def full_name(name: str) -> str | None:
    """Return the whole name of a tensor; ``None`` for a mask."""
    name = name.removeprefix("_orig_mod.")  # from torch.compile
    if not name.startswith(("transformer.", "lm_head.")):
        name = f"transformer.{name}"
    return None if _MASKS.search(name) else name


_GPT2 = Family(
    "gpt2",
    "GPT2LMHeadModel",
    _read,
    _write,
    stored_as_gpt2,
    known_name=full_name,
    embedding="transformer.wte.weight",
)


def from_gpt2(
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    dropout: float = 0.0,
    origin: str = "the given model",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Return a model with weights in GPT-2's layout, as ``transformers`` stores them.

    Args:
        weights: Tensors by name, with or without the prefix ``transformer.``.
        settings: The content of ``config.json``.
        dropout: The dropout of the new model. GPT-2's three settings are ignored.
        origin: Where the model comes from, for error messages.
        device: The device of the new model; that of the weights by default.
        dtype: The type of its weights; float32 by default.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape, or a
            setting is missing or not supported by ``GPT``.
    """
    config = replace(_GPT2.config(settings, origin), dropout=dropout)
    pairs = _GPT2.ours(weights, config, origin)
    dtype = torch.float32 if dtype is None else dtype
    return fill_model(config, pairs, origin, device=device, dtype=dtype)


def to_gpt2(model: GPT) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a model's weights in GPT-2's layout, and the content of its config.json.

    Raises:
        ValueError: If the model has a setting that GPT-2 lacks.
    """
    settings = _GPT2.settings(model.config)
    return dict(_GPT2.theirs(model.state_dict(), model.config)), settings
