"""Convert weights from and to the layout of GPT-2.

It has one matrix for queries, keys and values, which is split in three here, and stores
its matrices as (in, out), the transpose of ``nn.Linear``.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.loading import check_sizes, fill_model
from tested_transformer.checkpoints.saving import check_fit
from tested_transformer.checkpoints.tensor_files import on_meta
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["from_gpt2", "model_settings", "present_weights", "to_gpt2"]

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
_OF_GPT2 = {
    "vocab_size": "vocab_size",
    "max_seq_len": "n_positions",
    "d_model": "n_embd",
    "num_heads": "n_head",
    "num_layers": "n_layer",
    "d_ff": "n_inner",
    "activation": "activation_function",
    "tie_head": "tie_word_embeddings",
}
# GPT-2's defaults for settings that config.json may leave out.
_SILENT = {
    "n_inner": None,
    "activation_function": "gelu_new",
    "tie_word_embeddings": True,
}
# Settings that GPT-2 can change and GPT cannot.
_FIXED = {
    "model_type": "gpt2",
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
    for name, value in _FIXED.items():
        if settings.get(name, value) != value:
            raise CheckpointError(
                f"{origin} has {name}={settings[name]!r}; "
                f"only {name}={value!r} can be read"
            )
    settings = {**_SILENT, **settings}
    activation = settings["activation_function"]
    if activation not in [*_ACTIVATIONS]:  # it may have no hash
        raise CheckpointError(
            f"{origin} has activation_function={activation!r}; "
            f"only {', '.join(_ACTIVATIONS)} can be read"
        )
    settings["activation_function"] = _ACTIVATIONS[activation]
    config = model_settings(settings, _OF_GPT2, origin, dropout=dropout)
    pairs = present_weights(weights, config, origin, turned=True)
    dtype = torch.float32 if dtype is None else dtype
    return fill_model(config, pairs, origin, device=device, dtype=dtype)


def to_gpt2(model: GPT) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a model's weights in GPT-2's layout, and the content of its config.json.

    Raises:
        ValueError: If the model has a setting that GPT-2 lacks.
    """
    _check_is_gpt2(model.config)
    theirs = _in_layout(model.state_dict(), model.config, turned=True)
    settings = {name: getattr(model.config, ours) for ours, name in _OF_GPT2.items()}
    names = {ours: name for name, ours in reversed(_ACTIVATIONS.items())}
    settings["activation_function"] = names[model.config.activation]
    for kind in ("attn_pdrop", "embd_pdrop", "resid_pdrop"):
        settings[kind] = model.config.dropout
    return theirs, {**_FIXED, **settings, "architectures": ["GPT2LMHeadModel"]}


def _homes(config: GPTConfig) -> dict[str, list[str]]:
    """Return for each of their names the one or three of our names it contains."""
    pairs = {f"transformer.{name}": [ours] for name, ours in _AROUND.items()}
    for i in range(config.num_layers):
        for name, ours in _IN_BLOCK.items():
            pairs[f"transformer.h.{i}.{name}"] = [f"blocks.{i}.{x}" for x in ours]
    if not config.tie_head:
        pairs["lm_head"] = ["head"]
    return {
        f"{name}.{kind}": [f"{x}.{kind}" for x in ours]
        for name, ours in pairs.items()
        for kind in ("weight", "bias")
    }


def _in_layout(
    ours: Mapping[str, Tensor], config: GPTConfig, *, turned: bool
) -> dict[str, Tensor]:
    """Return copies of our weights in their layout."""
    theirs: dict[str, Tensor] = {}
    for name, homes in _homes(config).items():
        if homes[0] in ours:  # without biases there are fewer
            whole = torch.cat([ours[home] for home in homes])
            turn = turned and _TURNED.search(name)
            theirs[name] = whole.T.contiguous() if turn else whole
    return theirs


def present_weights(
    weights: Mapping[str, Tensor], config: GPTConfig, origin: str, *, turned: bool
) -> Iterator[tuple[str, Tensor]]:
    """Return our names and weights, each of which is read when it is asked for.

    Args:
        weights: Tensors under GPT-2's names.
        config: The settings of the model.
        origin: Where the model comes from, for error messages.
        turned: Whether matrices are stored as (in, out).

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape.
    """
    names: dict[str, str] = {}
    for found in weights:
        name = found.removeprefix("_orig_mod.")  # from torch.compile
        if not name.startswith(("transformer.", "lm_head.")):
            name = f"transformer.{name}"
        if name in names:
            raise CheckpointError(f"{origin} has {name} twice")
        if not _MASKS.search(name):
            names[name] = found
    head = names.pop("lm_head.weight", None) if config.tie_head else None
    shapes = on_meta(weights)
    check_sizes(config, shapes, origin)
    with torch.device("meta"):
        wanted = _in_layout(GPT(config).state_dict(), config, turned=turned)
    check_fit(wanted, {name: shapes[names[name]] for name in names}, origin)
    embedding = names["transformer.wte.weight"]
    if head is not None and not torch.equal(weights[head], weights[embedding]):
        raise CheckpointError(
            f"{origin} ties the head to the token embedding, but their matrices differ"
        )
    homes = {name: homes for name, homes in _homes(config).items() if name in names}

    def parts(name: str) -> Iterator[tuple[str, Tensor]]:
        tensor = weights[names[name]]
        whole = tensor.T if turned and _TURNED.search(name) else tensor
        return zip(homes[name], whole.chunk(len(homes[name])), strict=True)

    return (pair for name in homes for pair in parts(name))


def model_settings(
    settings: Mapping[str, Any],
    names: Mapping[str, str],
    origin: str,
    dropout: float | None = None,
) -> GPTConfig:
    """Return the config that another library's settings mean.

    Args:
        settings: Their settings by name.
        names: Our name of each setting, and theirs.
        origin: Where the model comes from, for error messages.
        dropout: The dropout of the model, if theirs does not say it.

    Raises:
        CheckpointError: If a setting is missing, or does not fit.
    """
    missing = [name for name in names.values() if name not in settings]
    if missing:
        raise CheckpointError(f"{origin} does not say {', '.join(missing)}")
    values = {ours: settings[name] for ours, name in names.items()}
    if dropout is not None:
        values["dropout"] = dropout
    try:
        return GPTConfig(**values)
    except (TypeError, ValueError, RuntimeError) as error:  # the last for huge sizes
        raise CheckpointError(
            f"{origin} has settings that do not fit: {error}"
        ) from None


def _check_is_gpt2(config: GPTConfig) -> None:
    free = {*_OF_GPT2, "num_kv_heads", "activation", "dropout", "zero_init", "fused"}
    strange = [
        f"{field.name}={getattr(config, field.name)!r}"
        for field in fields(config)
        if field.name not in free and getattr(config, field.name) != field.default
    ]
    if config.num_kv_heads not in (None, config.num_heads):
        strange.append(f"num_kv_heads={config.num_kv_heads}")
    if config.activation not in _ACTIVATIONS.values():
        strange.append(f"activation={config.activation!r}")
    if strange:
        raise ValueError(f"GPT-2 has no {', '.join(strange)}")
