"""What every contender can do, and the sizes at which they meet."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = [
    "SMALL",
    "Contender",
    "Size",
    "as_batch",
    "continued",
    "formula",
    "num_parameters",
]


@dataclass(frozen=True)
class Size:
    """One size for all: what makes their numbers of parameters (about) equal."""

    vocab_size: int = 65
    context: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4
    batch: int = 12

    def with_context(self, context: int) -> "Size":
        """Give the same size with another context."""
        return replace(self, context=context)


# nanoGPT's README trains this size on a CPU: 0.80 million parameters.
SMALL = Size()


class Contender:
    """An implementation of GPT-2, reached by the same few methods as every other.

    Without dropout, whatever its default is: that is the faster way, and the one of
    nanoGPT's documented run.
    """

    name: str
    version: str
    # What its own training loop clips gradients to; None where it does not.
    clip: float | None = 1.0
    has_cache = False

    def model(self, size: Size) -> nn.Module:
        """Make its model, ready to train."""
        raise NotImplementedError

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Give the logits at every position: (B, T, V)."""
        raise NotImplementedError

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Give the loss that it is trained on."""
        logits = self.logits(model, inputs)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Make the optimizer of its own training loop; PyTorch's fused one if so."""
        raise NotImplementedError

    def generate(
        self, model: nn.Module, prompt: list[int], count: int, *, cached: bool
    ) -> list[int]:
        """Give ``count`` tokens after ``prompt`` by its own function, sampled."""
        raise NotImplementedError


def continued(
    generate: Callable[[list[int], int], list[int]],
    prompt: list[int],
    count: int,
    context: int,
) -> list[int]:
    """Generate beyond the context with a cache that cannot: give ``count`` tokens.

    Positions that are learned end with the context, and a cache with them. When the
    context is full, its last half is read anew and generation goes on from there.

    Args:
        generate: Called with tokens and how many more are wanted; gives these.
        prompt: The tokens to start with.
        count: How many tokens are wanted.
        context: How many tokens the model can read.
    """
    tokens = list(prompt)
    wanted = len(prompt) + count
    while len(tokens) < wanted:
        keep = tokens[:] if len(tokens) < context else tokens[-(context // 2) :]
        room = min(context - len(keep), wanted - len(tokens))
        tokens += generate(keep, room)
    return tokens[len(prompt) :]


def num_parameters(model: nn.Module) -> int:
    """Count every parameter once, positions and tied matrices included."""
    return sum(parameter.numel() for parameter in model.parameters())


def formula(size: Size) -> int:
    """Count the operations of one step, a multiplication and an addition as two.

    Forward, each matrix does two operations for each of its numbers and each token,
    and attention ``4 T D`` for each token and layer: T products of scores and T of
    values. Backward does each product twice, once for each of its factors. Looking up
    tokens costs none.
    """
    tokens = size.batch * size.context
    matrices = size.layers * 12 * size.width**2 + size.vocab_size * size.width
    attention = size.layers * 4 * size.context * size.width
    return 3 * tokens * (2 * matrices + attention)


def as_batch(tokens: list[int]) -> Tensor:
    """Make a batch of one sequence."""
    return torch.tensor([tokens], dtype=torch.long)
