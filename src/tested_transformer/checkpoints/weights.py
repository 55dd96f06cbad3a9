"""A model and the weights to put into it: do they fit?"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tested_transformer.checkpoints.errors import CheckpointError
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["check_fit", "model_with"]

_SHOWN = 3


# --8<-- [start:model-with]
def model_with(config: GPTConfig, weights: Mapping[str, Tensor], origin: str) -> GPT:
    """Make a model that has these weights, copied, in their own precision.

    Args:
        config: What the model is made of.
        weights: All of its ``state_dict()``, and nothing else.
        origin: Where they are from, for the message of an error.

    Raises:
        CheckpointError: If a weight is missing, too many, or of another shape.
    """
    # The random weights to be replaced are nobody's business: the generator stays
    # where it is.
    with torch.random.fork_rng(devices=[]):
        model = GPT(config)
    check_fit(model.state_dict(), weights, origin)
    copies = {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in weights.items()
    }
    model.load_state_dict(copies, assign=True)
    return model


# --8<-- [end:model-with]


def check_fit(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], origin: str
) -> None:
    """Compare names and shapes.

    Raises:
        CheckpointError: If a weight is missing, too many, or of another shape.
    """
    wrong = [f"{name} is missing" for name in wanted if name not in found]
    wrong += [f"{name} is unknown" for name in found if name not in wanted]
    wrong += [
        f"{name} is {tuple(found[name].shape)}, not {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if wrong:
        more = len(wrong) - _SHOWN
        shown = "; ".join(wrong[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise CheckpointError(
            f"{origin} has not the weights that its settings ask for: {shown}"
        )
