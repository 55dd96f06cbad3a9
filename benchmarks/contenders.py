"""What every contender offers, and the sizes at which they are compared."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tested_transformer.gpt import GPTConfig

__all__ = [
    *("SMALL", "Contender", "Size", "as_batch", "config_of", "continued", "formula"),
    "num_parameters",
]


@dataclass(frozen=True)
class Size:
    """A size shared by all contenders, which makes their parameters (about) equal."""

    vocab_size: int = 65
    context: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 4
    batch: int = 12


# nanoGPT's README trains this size on a CPU: 0.80 million parameters.
SMALL = Size()


def config_of(size: Size, **options: object) -> GPTConfig:
    """Return the config of this library's model of a size."""
    return GPTConfig(
        vocab_size=size.vocab_size,
        max_seq_len=size.context,
        d_model=size.width,
        num_heads=size.heads,
        num_layers=size.layers,
        **options,
    )


class Contender:
    """An implementation of GPT-2, with the same few methods for every contender.

    Dropout is off, whatever the default: that is faster, and what nanoGPT's documented
    run does.
    """

    name: str
    version: str
    # The norm that its training loop clips gradients to; None for no clipping.
    clip: float | None = 1.0
    has_cache = False

    def model(self, size: Size) -> nn.Module:
        """Return its model, ready to train."""
        raise NotImplementedError

    def logits(self, model: nn.Module, tokens: Tensor) -> Tensor:
        """Return the logits at every position: (B, T, V)."""
        return model(tokens)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return its training loss."""
        logits = self.logits(model, inputs)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def optimizer(self, model: nn.Module, *, fused: bool) -> Optimizer:
        """Return the optimizer of its training loop, or PyTorch's fused AdamW."""
        raise NotImplementedError

    def generate(
        self, model: nn.Module, prompt: list[int], count: int, *, cached: bool
    ) -> list[int]:
        """Return ``count`` tokens after ``prompt``, sampled by its own function."""
        raise NotImplementedError


def continued(
    generate: Callable[[list[int], int], list[int]],
    prompt: list[int],
    count: int,
    context: int,
) -> list[int]:
    """Return ``count`` tokens, even beyond the context that limits the cache.

    Learned positions end with the context, and so does the cache. When the context is
    full, its last half is read again and generation continues from there.

    Args:
        generate: A function from tokens and a number to that many new tokens.
        prompt: The tokens to start from.
        count: How many tokens to return.
        context: How many tokens the model can read.
    """
    tokens = list(prompt)
    length = len(prompt) + count
    while len(tokens) < length:
        keep = tokens[:] if len(tokens) < context else tokens[-(context // 2) :]
        count = min(context - len(keep), length - len(tokens))
        tokens += generate(keep, count)
    return tokens[len(prompt) :]


def num_parameters(model: nn.Module) -> int:
    """Count every parameter once, including positions and tied matrices."""
    return sum(parameter.numel() for parameter in model.parameters())


def formula(size: Size) -> int:
    """Count the operations of one step, with a multiply-add as two.

    The forward pass takes two operations for each number of a matrix and each token,
    and ``4 T D`` for attention in each layer and token: T products for scores and T for
    values. The backward pass takes twice as many, one product for each factor. Looking
    up tokens costs nothing.
    """
    tokens = size.batch * size.context
    matrices = size.layers * 12 * size.width**2 + size.vocab_size * size.width
    attention = size.layers * 4 * size.context * size.width
    return 3 * tokens * (2 * matrices + attention)


def as_batch(tokens: list[int]) -> Tensor:
    """Return a batch of one sequence."""
    return torch.tensor([tokens], dtype=torch.long)
