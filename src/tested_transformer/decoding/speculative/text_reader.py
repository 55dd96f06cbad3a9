"""Read a text whose end may be taken back."""

from collections.abc import Sequence
from itertools import takewhile

import torch
from jaxtyping import Float
from torch import Tensor

from tested_transformer.cache import KVCache
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.layers import evaluating

__all__ = ["TextReader", "rewind"]


def rewind(cache: KVCache, text: Sequence[int]) -> None:
    """Make a cache forget all tokens after ``text``, the first ones that it has read.

    Raises:
        ValueError: If it has read fewer tokens than ``text`` has.
    """
    if len(text) > cache.length:
        raise ValueError(
            f"the cache holds {cache.length} tokens; it cannot go back to {len(text)}"
        )
    for layer in cache.layers:
        layer.length = len(text)
    if cache.last_tokens is not None:
        cache.last_tokens = cache.last_tokens.new_tensor([text[-1:]]) if text else None


# --8<-- [start:reader]
class TextReader:
    """Read a text whose end may be taken back, and reuse the cache for the rest.

    Args:
        model: The model that reads.

    Raises:
        ValueError: If layers of the model have a state, which this reader keeps only
            after the last token, so it cannot go back.
    """

    def __init__(self, model: GPT) -> None:
        _validate_rewindable(model)
        self.model = model
        self.cache = model.new_cache()
        self.text: list[int] = []

    @torch.inference_mode()
    def read(self, text: Sequence[int], count: int) -> Float[Tensor, "count V"]:
        """Return the logits after each of the last ``count`` tokens of a text."""
        pairs = zip(self.text, text[: len(text) - count], strict=False)
        same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
        rewind(self.cache, text[:same])
        self.text = [*text]
        tokens = torch.tensor([text[same:]], device=numbers_of(self.model).device)
        with evaluating(self.model):
            return self._logits(tokens)[-count:]

    def _logits(self, tokens: Tensor) -> Tensor:
        """Return the logits after each of these tokens, (T, V)."""
        return self.model(tokens, cache=self.cache)[0]


# --8<-- [end:reader]


def _validate_rewindable(model: GPT) -> None:
    if not model.config.attention.has_scores:
        raise ValueError(
            f"attention={model.config.attention!r} of model has a state: the reader "
            "keeps the last one only, so it cannot take drafted tokens back"
        )
