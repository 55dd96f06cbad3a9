"""Convert weights from the layout of nanoGPT.

It has the names of GPT-2, and stores matrices as (out, in).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.layouts.family import Family, Settings
from tested_transformer.checkpoints.layouts.gpt2 import full_name, stored_as_gpt2
from tested_transformer.checkpoints.loading import fill_model
from tested_transformer.gpt import GPT

__all__ = ["from_nanogpt"]

_OF_NANOGPT = {
    "vocab_size": "vocab_size",
    "max_seq_len": "block_size",
    "d_model": "n_embd",
    "num_heads": "n_head",
    "num_layers": "n_layer",
    "bias": "bias",
    "dropout": "dropout",
}


def _read(settings: Settings) -> dict[str, Any]:
    fields = {ours: settings.get(name) for ours, name in _OF_NANOGPT.items()}
    settings.ignore_the_rest()
    return fields


_NANOGPT = Family(
    "nanogpt",
    "nanoGPT",
    _read,
    lambda config: {},  # it has no config.json to write
    partial(stored_as_gpt2, turned=False),
    known_name=full_name,
    embedding="transformer.wte.weight",
)


def from_nanogpt(
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    origin: str = "the given model",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Return a model with weights in the layout of nanoGPT.

    nanoGPT saves a pickle, which can run any program when it is opened, so this library
    does not open it. If you trust yours, extract the weights and settings:

        checkpoint = torch.load("out/ckpt.pt", map_location="cpu", weights_only=True)
        weights = {name: x.clone() for name, x in checkpoint["model"].items()}
        safetensors.torch.save_file(weights, "model.safetensors")
        json.dump(checkpoint["model_args"], open("config.json", "w"))

    Args:
        weights: Tensors by name; the prefix of ``torch.compile`` is ignored.
        settings: nanoGPT's ``model_args``.
        origin: Where the model comes from, for error messages.
        device: The device of the new model; that of the weights by default.
        dtype: The type of its weights; float32 by default.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape, or a
            setting is missing or does not fit.
    """
    config = _NANOGPT.config(settings, origin)
    pairs = _NANOGPT.ours(weights, config, origin)
    dtype = torch.float32 if dtype is None else dtype
    return fill_model(config, pairs, origin, device=device, dtype=dtype)
