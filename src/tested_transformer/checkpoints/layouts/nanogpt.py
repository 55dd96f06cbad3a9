"""Convert weights from the layout of nanoGPT.

It has the names of GPT-2, and stores matrices as (out, in).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tested_transformer.checkpoints.layouts.gpt2 import model_settings, present_weights
from tested_transformer.checkpoints.loading import model_with
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


def from_nanogpt(
    weights: Mapping[str, Tensor],
    settings: Mapping[str, Any],
    *,
    origin: str = "the given model",
) -> GPT:
    """Return a model with weights in the layout of nanoGPT.

    nanoGPT saves a pickle, which can run any program when it is opened, so this library
    does not open it. If you trust yours, extract the weights and settings:

        checkpoint = torch.load("out/ckpt.pt", map_location="cpu", weights_only=True)
        weights = {name: x.clone() for name, x in checkpoint["model"].items()}
        safetensors.torch.save_file(weights, "model.safetensors")
        json.dump(checkpoint["model_args"], open("config.json", "w"))

    Args:
        weights: Tensors by name; the prefix of ``torch.compile`` is ignored. They are
            converted to float32.
        settings: nanoGPT's ``model_args``.
        origin: Where the model comes from, for error messages.

    Raises:
        CheckpointError: If a weight is missing, unknown or has another shape, or a
            setting is missing or does not fit.
    """
    config = model_settings(settings, _OF_NANOGPT, origin)
    ours = present_weights(weights, config, origin, turned=False)
    return model_with(config, ours, origin)
