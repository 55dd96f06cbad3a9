"""Checkpoints: save and load models and runs, atomically and without pickles.

Weights of GPT-2, nanoGPT, Llama and its relatives are read in their own layouts, from
folders and from the hub, and those of PyTorch's own layer are converted both ways.
"""

from tested_transformer.checkpoints.configs import CheckpointError
from tested_transformer.checkpoints.exporting import EXPORTED, export_model
from tested_transformer.checkpoints.hub import (
    HUB,
    Pretrained,
    find_pretrained,
    load_gpt2,
    load_pretrained,
)
from tested_transformer.checkpoints.layouts import (
    FAMILIES,
    from_family,
    from_gpt2,
    from_nanogpt,
    from_torch,
    to_family,
    to_gpt2,
    to_torch,
)
from tested_transformer.checkpoints.loading import (
    Checkpoint,
    has_checkpoint,
    load_checkpoint,
)
from tested_transformer.checkpoints.saving import CheckpointWriter, save_checkpoint
from tested_transformer.checkpoints.shipping import (
    ShippedModel,
    load_shipped,
    ship_model,
)

__all__ = [
    "EXPORTED",
    "FAMILIES",
    "HUB",
    "Checkpoint",
    "CheckpointError",
    "CheckpointWriter",
    "Pretrained",
    "ShippedModel",
    "export_model",
    "find_pretrained",
    "from_family",
    "from_gpt2",
    "from_nanogpt",
    "from_torch",
    "has_checkpoint",
    "load_checkpoint",
    "load_gpt2",
    "load_pretrained",
    "load_shipped",
    "save_checkpoint",
    "ship_model",
    "to_family",
    "to_gpt2",
    "to_torch",
]
