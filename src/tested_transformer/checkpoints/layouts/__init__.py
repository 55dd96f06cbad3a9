"""Convert weights from and to the layouts of others: PyTorch's layer, and models.

GPT-2 and nanoGPT have modules of their own. ``FAMILIES`` are those whose folders have
the names of ``transformers``. Each module knows both sets of names of its layouts, and
no other module does.
"""

from tested_transformer.checkpoints.layouts.families import (
    FAMILIES,
    from_family,
    to_family,
)
from tested_transformer.checkpoints.layouts.family import Family
from tested_transformer.checkpoints.layouts.gpt2 import from_gpt2, to_gpt2
from tested_transformer.checkpoints.layouts.nanogpt import from_nanogpt
from tested_transformer.checkpoints.layouts.torch_layer import from_torch, to_torch

__all__ = [
    "FAMILIES",
    "Family",
    "from_family",
    "from_gpt2",
    "from_nanogpt",
    "from_torch",
    "to_family",
    "to_gpt2",
    "to_torch",
]
