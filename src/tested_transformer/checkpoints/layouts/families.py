"""The model families that are read and written, and how to convert a whole model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.layouts.family import Family
from tested_transformer.checkpoints.layouts.gpt_oss import GPT_OSS
from tested_transformer.checkpoints.layouts.llama import (
    GEMMA2,
    GEMMA3,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    OLMO2,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    SMOLLM3,
)
from tested_transformer.checkpoints.layouts.phi3 import PHI3
from tested_transformer.checkpoints.loading import fill_model
from tested_transformer.gpt import GPT

__all__ = ["FAMILIES", "from_family", "to_family"]

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(LLAMA, SMOLLM3, MISTRAL, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, OLMO2),
        *(GEMMA2, GEMMA3, GPT_OSS, PHI3),
    )
}
"""The families that are read and written, by the ``model_type`` of ``config.json``."""


def from_family(
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    origin: str = "the given model",
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> GPT:
    """Return a model with the weights of a model of one of ``FAMILIES``.

    Args:
        weights: Tensors by the names of ``transformers``.
        settings: The content of ``config.json``; its ``model_type`` is the family.
        origin: Where the model comes from, for error messages.
        device: The device of the new model; that of the weights by default.
        dtype: The type of its weights; their own by default.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape, or a
            setting is missing, unknown, or does not fit.
    """
    family = FAMILIES.get(str(kind := settings.get("model_type")))
    if family is None:
        raise CheckpointError(
            f"{origin} has model_type={kind!r}; only gpt2, {', '.join(FAMILIES)} "
            "can be read"
        )
    config = family.config(settings, origin)
    pairs = family.ours(weights, config, origin)
    return fill_model(config, pairs, origin, device=device, dtype=dtype)


def to_family(model: GPT, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a model's weights in the layout of a family, and its ``config.json``.

    Args:
        model: The model.
        name: One of ``FAMILIES``.

    Raises:
        ValueError: If there is no such family, or it lacks a setting of the model.
    """
    if name not in FAMILIES:
        raise ValueError(f"name={name!r} must be one of {', '.join(FAMILIES)}")
    family, weights = FAMILIES[name], model.state_dict()
    settings = family.settings(model.config)
    dtype = str(model.token_embedding.weight.dtype).removeprefix("torch.")
    theirs = dict(family.theirs(weights, model.config))
    return theirs, {**settings, "dtype": dtype}
