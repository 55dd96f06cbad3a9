"""Replay a function of tensors as a CUDA graph, which the host starts at once.

Each operation on a GPU takes some microseconds to start, whatever its size. In a graph
they are recorded with the addresses of their tensors, and start together.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

__all__ = ["Replay", "record", "warm_up"]

Result = TypeVar("Result", Tensor, tuple[Tensor, Tensor])
Inputs = tuple[Tensor | None, ...]


def warm_up(function: Callable[..., Result], inputs: Inputs) -> Result:
    """Call a function on a stream of its own, as is required before recording it."""
    current, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        result = function(*inputs)
    current.wait_stream(stream)
    return result


def record(function: Callable[..., Result], inputs: Inputs) -> Callable[[], Result]:
    """Record what a function does, without doing it; return a function that does it.

    Args:
        function: What to record. It must not wait for the device.
        inputs: Its arguments. A replay reads what they hold then.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(*inputs)

    def replay() -> Result:
        graph.replay()
        return tree_map_only(Tensor, Tensor.clone, result)  # the next writes over it

    return replay


class Replay(Generic[Result]):
    """Call a function once as it is, then record it, and replay what was recorded.

    Arguments of other shapes begin anew. Whatever else the function reads or writes
    must stay where it is, and numbers of Python stay what they were.

    Args:
        function: A function of tensors.
    """

    def __init__(self, function: Callable[..., Result]) -> None:
        self.function = function
        self.shapes: list[torch.Size | None] = []
        self.replay: Callable[[], Result] | None = None

    def __call__(self, *inputs: Tensor | None) -> Result:
        """Return the function's result."""
        shapes = [None if x is None else x.shape for x in inputs]
        if shapes != self.shapes:
            self.shapes, self.replay = shapes, None
            return warm_up(self.function, inputs)
        if self.replay is None:
            self.inputs = tuple(None if x is None else x.clone() for x in inputs)
            self.replay = record(self.function, self.inputs)
        for fixed, x in zip(self.inputs, inputs, strict=True):
            if fixed is not None and x is not None:
                fixed.copy_(x)
        return self.replay()
