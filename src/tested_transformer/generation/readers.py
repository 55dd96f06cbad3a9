"""Three ways to read: all of it anew for each token, with a cache, and fast.

A reader takes whole sequences with ``read``, and one more token of each with ``step``.
Either gives the logits of the token to come. ``WholeReader`` is the reference that the
other ones are tested against.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.generation.contexts import pad_left
from tested_transformer.gpt import GPT

__all__ = ["CachedReader", "Reader", "WholeReader", "evaluating"]


@runtime_checkable
class Reader(Protocol):
    """What generation needs of a model."""

    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; give the logits of what comes next."""
        ...

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; give the logits of what comes next."""
        ...


@contextmanager
def evaluating(model: torch.nn.Module) -> Generator[None]:
    """Switch dropout off for a while."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


# --8<-- [start:whole]
class WholeReader:
    """Read the whole sequence anew for each token."""

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.contexts: list[list[int]] = []

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; give the logits of what comes next."""
        self.contexts = [list(context) for context in contexts]
        device = self.model.head_weight.device
        tokens, positions, mask = pad_left(contexts, device=device)
        with evaluating(self.model):
            return self.model(tokens, positions=positions, mask=mask)[:, -1]

    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; give the logits of what comes next."""
        pairs = zip(self.contexts, tokens.tolist(), strict=True)
        return self.read([[*context, token] for context, token in pairs])


# --8<-- [end:whole]


# --8<-- [start:cached]
class CachedReader:
    """Keep the keys and values of what was read, and read the new token alone."""

    def __init__(self, model: GPT) -> None:
        self.model = model

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; give the logits of what comes next."""
        device = self.model.head_weight.device
        tokens, self.positions, self.mask = pad_left(contexts, device=device)
        self.cache = self.model.new_cache(len(tokens))
        return self._forward(tokens)

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; give the logits of what comes next."""
        if self.positions is not None and self.mask is not None:
            self.positions = self.positions[:, -1:] + 1
            self.mask = torch.nn.functional.pad(self.mask, (0, 1), value=True)
        return self._forward(tokens[:, None])

    def _forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        with evaluating(self.model):
            return self.model(
                tokens, positions=self.positions, mask=self.mask, cache=self.cache
            )[:, -1]


# --8<-- [end:cached]
