"""Writing with another cache: one that rolls, or one in few bits.

``reader_with`` returns what ``generate`` and ``stream`` take in place of a model.
"""

import sys
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.generation.readers import (
    CachedReader,
    EqualLengthsReader,
    last_logits,
)
from tested_transformer.gpt import GPT
from tested_transformer.validation import validate_choice
from tested_transformer.variants import QuantizedCache, rolling_cache

__all__ = ["CACHES", "RollingReader", "reader_with"]

CACHES = ("rolling", "int8", "int4")


def reader_with(cache: str, model: GPT) -> EqualLengthsReader:
    """Return what reads with another cache than the model's own.

    Sequences of unlike lengths are read apart, so that no padding is kept for a first
    token, and none widens the range of what is written in few bits.

    Args:
        cache: One of ``CACHES``. ``rolling`` keeps the first 4 tokens and the last
            ``max_seq_len - 4``, and never reads anything anew; ``int8`` and ``int4``
            keep keys and values in so many bits.
        model: The model.

    Raises:
        ValueError: If the cache is unknown, or the model does not fit it.
    """
    validate_choice("cache", cache, CACHES)
    if cache == "rolling":
        return EqualLengthsReader(lambda: RollingReader(model))
    config, bits, form = model.config, int(cache[-1]), model.config.form()
    if form is not None and not form.keeps_heads:
        raise ValueError(
            f"cache={cache!r} does not fit attention={config.attention!r}, which keeps "
            "no keys and values of heads"
        )
    if bits == 4 and config.head_dim % 2:
        raise ValueError(f"cache='int4' wants an even head_dim, not {config.head_dim}")

    def new_cache(batch_size: int) -> QuantizedCache:
        return QuantizedCache(
            num_layers=config.num_layers, max_length=config.max_seq_len, bits=bits
        )

    return EqualLengthsReader(lambda: CachedReader(model, new_cache=new_cache))


class RollingReader:
    """Read without end: what is kept of a text is its beginning and its end.

    Args:
        model: A model that ``variants.rolling_cache`` takes.
        sinks: How many of the first tokens to keep, at most.

    Raises:
        ValueError: If the model does not fit.
    """

    longest = sys.maxsize

    def __init__(self, model: GPT, *, sinks: int = 4) -> None:
        self.model = model
        self.sinks = min(sinks, model.config.max_seq_len - 1)
        self._forget(1)

    def _forget(self, batch_size: int) -> None:
        window = self.model.config.max_seq_len - self.sinks
        self.cache = rolling_cache(
            self.model, sinks=self.sinks, window=window, batch_size=batch_size
        )

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences, which are of one length."""
        tokens = torch.tensor([*contexts], device=self.model.head_weight.device)
        self._forget(len(tokens))
        room = self.cache.max_length
        logits = last_logits(self.model, tokens[:, :room], cache=self.cache)
        for token in tokens[:, room:].T:
            logits = self.step(token)
        return logits

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        return last_logits(self.model, tokens[:, None], cache=self.cache)
