"""Convert weights from and to the layouts of others: PyTorch's layer, GPT-2, nanoGPT.

Each module knows both sets of names of one layout, and no other module does.
"""

from tested_transformer.checkpoints.layouts.gpt2 import from_gpt2, to_gpt2
from tested_transformer.checkpoints.layouts.nanogpt import from_nanogpt
from tested_transformer.checkpoints.layouts.torch_layer import from_torch, to_torch

__all__ = ["from_gpt2", "from_nanogpt", "from_torch", "to_gpt2", "to_torch"]
