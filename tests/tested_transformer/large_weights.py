"""Weights large enough for every part of a model to matter."""

from typing import TypeVar

from torch import nn

_Module = TypeVar("_Module", bound=nn.Module)


def with_large_weights(module: _Module, std: float = 0.3) -> _Module:
    """Draw matrices around 0, gains around 1 and small biases; return the module.

    New weights are so small that a model has hardly an opinion, and no test would
    notice a part that is left out. With large biases it would write one token for ever.
    """
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=std)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
        else:
            nn.init.normal_(parameter, mean=1.0, std=0.3)
    return module
