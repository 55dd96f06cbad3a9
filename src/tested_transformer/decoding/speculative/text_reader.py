"""Read a text whose end may be taken back."""

from collections.abc import Sequence
from itertools import takewhile

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.attentions import StateCache
from tested_transformer.cache import KVCache
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import evaluating

__all__ = ["TextReader"]

SLACK = 32  # more than is usually drafted at once


# --8<-- [start:reader]
class TextReader:
    """Read a text whose end may be taken back, and reuse the cache for the rest.

    Args:
        model: The model that reads.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.cache = _rewindable(model.new_cache())
        self.text: list[int] = []

    @torch.inference_mode()
    def read(self, text: Sequence[int], count: int) -> Float[Tensor, "count V"]:
        """Return the logits after each of the last ``count`` tokens of a text."""
        tokens = self._unread(text, count)
        with evaluating(self.model):
            return self._logits(tokens)[-count:]

    def _unread(self, text: Sequence[int], count: int) -> Int[Tensor, "1 T"]:
        """Go back to where a text differs, and return the rest, which is to be read."""
        pairs = zip(self.text, text[: len(text) - count], strict=False)
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        # A layer with a window or a state may have forgotten what it would need.
        same = same if same >= self.cache.earliest else 0
        self.cache.rewind(same)
        self.text = [*text]
        return torch.tensor([text[same:]], device=numbers_of(self.model).device)

    def _logits(self, tokens: Tensor) -> Tensor:
        """Return the logits after each of these tokens, (T, V)."""
        return self.model(tokens, cache=self.cache)[0]

    # --8<-- [end:reader]

    def read_draft(
        self,
        text: Sequence[int],
        drafted: Sequence[int],
        parents: Sequence[int] | None = None,
    ) -> Float[Tensor, "k_and_1 V"]:
        """Return the logits after a text, and after each token drafted to follow it.

        Args:
            text: The text, at least one token.
            drafted: The drafted tokens.
            parents: That of each token in a tree, which takes a ``TreeReader``.

        Raises:
            ValueError: If ``parents`` are given.
        """
        if parents is not None:
            raise ValueError(
                "draft.parents make a tree: the reader of its drafter must be a "
                f"TreeReader; it is a {type(self).__name__}"
            )
        return self.read([*text, *drafted], len(drafted) + 1)


def _rewindable(cache: KVCache) -> KVCache:
    """Return a cache, of which states keep what it takes to go back."""
    for layer in cache.layers:
        if isinstance(layer, StateCache):
            layer.slack = SLACK
    return cache
