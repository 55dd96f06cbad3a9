"""Replay a function of tensors as a CUDA graph, which one launch starts."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Replay", "record"]


def record(
    function: Callable[..., Tensor], inputs: tuple[Tensor | None, ...]
) -> Callable[[], Tensor]:
    """Record what a function does, without doing it; return what does it.

    Args:
        function: What to record. It must not wait for the device.
        inputs: Its arguments. A replay reads what they hold then.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(*inputs)

    def replay() -> Tensor:
        graph.replay()
        return output.clone()  # the next replay writes over it

    return replay


class Replay:
    """Run a function once as it is, then record it, and replay what was recorded.

    Arguments of other shapes begin anew. Whatever else the function reads or writes
    must stay where it is.

    Args:
        function: A function of tensors.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.shapes: list[torch.Size | None] = []
        self.replay: Callable[[], Tensor] | None = None

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """Return the function's result."""
        shapes = [None if x is None else x.shape for x in inputs]
        if shapes != self.shapes:  # run it as it is, which makes what it needs
            self.shapes, self.replay = shapes, None
            return self.function(*inputs)
        if self.replay is None:
            self.inputs = tuple(None if x is None else x.clone() for x in inputs)
            self.replay = record(self.function, self.inputs)
        for fixed, x in zip(self.inputs, inputs, strict=True):
            if fixed is not None and x is not None:
                fixed.copy_(x)
        return self.replay()
