"""Readers with other caches: rolling, quantized or paged.

``reader_with`` returns one, to pass to ``generate`` and ``stream`` instead of a model.
"""

import sys
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.cache import KVCache
from tested_transformer.caches import (
    PagedCache,
    PagePool,
    quantized_cache,
    rolling_cache,
)
from tested_transformer.checks import validate_choice
from tested_transformer.decoding.readers import (
    CachedReader,
    EqualLengthsReader,
    last_logits,
)
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of

__all__ = ["CACHES", "PAGE_SIZE", "PagedReader", "RollingReader", "reader_with"]

CACHES = ("rolling", "int8", "int4", "paged")
PAGE_SIZE = 16


def reader_with(cache: str, model: GPT) -> "EqualLengthsReader | PagedReader":
    """Return a reader with another cache than the model's own.

    It reads sequences of different lengths separately, so that padding neither becomes
    a sink nor widens the range of quantized numbers.

    Args:
        cache: One of ``CACHES``. ``rolling`` keeps the first 4 tokens and the last
            ``max_seq_len - 4``, and never reads a token again; ``int8`` and ``int4``
            quantize keys and values; ``paged`` keeps them in pages.
        model: The model.

    Raises:
        ValueError: If the cache is unknown, or the model does not fit it.
    """
    validate_choice("cache", cache, CACHES)
    try:
        if cache == "paged":
            return PagedReader(model)
        if cache == "rolling":
            return EqualLengthsReader(lambda: RollingReader(model))
        return _quantized_reader(model, int(cache[-1]))
    except ValueError as error:
        error.add_note(f"cache={cache!r} does not fit this model: leave out cache")
        raise


def _quantized_reader(model: GPT, bits: int) -> EqualLengthsReader:
    def new_cache(batch_size: int) -> KVCache:
        return quantized_cache(model, bits=bits, batch_size=batch_size)

    new_cache(1)  # raises if unfit
    return EqualLengthsReader(lambda: CachedReader(model, new_cache=new_cache))


class RollingReader:
    """Read endless text, keeping only its first and its latest tokens.

    Args:
        model: A model that ``caches.rolling_cache`` accepts.
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
        """Forget all, and read these sequences, which must have one length."""
        tokens = torch.tensor([*contexts], device=numbers_of(self.model).device)
        self._forget(len(tokens))
        longest = self.model.config.max_seq_len
        logits = last_logits(self.model, tokens[:, :longest], cache=self.cache)
        for token in tokens[:, longest:].T:
            logits = self.step(token)
        return logits

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        return last_logits(self.model, tokens[:, None], cache=self.cache)


class PagedReader:
    """Read each sequence into pages of a pool, and a repeated prompt only once.

    Args:
        model: A model that ``PagePool.for_model`` accepts.
        page_size: How many tokens a page holds.

    Raises:
        ValueError: If the model does not fit.
    """

    def __init__(self, model: GPT, *, page_size: int = PAGE_SIZE) -> None:
        self.model, self.page_size = model, page_size
        self.longest = model.config.max_seq_len
        self.caches: list[PagedCache] = []
        PagePool.for_model(model, num_pages=1, page_size=page_size)  # raises if unfit

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        pages = -(-self.longest // self.page_size)  # at most, for one sequence
        pool = PagePool.for_model(
            self.model, num_pages=pages * len(contexts), page_size=self.page_size
        )
        self.caches = []
        by_text = dict[tuple[int, ...], tuple[PagedCache, Tensor]]()
        for context in contexts:
            text = (*context,)
            if text in by_text:
                cache = by_text[text][0].fork()
            else:
                cache = PagedCache(pool, max_length=self.longest)
                by_text[text] = cache, self._read(context, cache)
            self.caches.append(cache)
        return torch.cat([by_text[(*context,)][1] for context in contexts])

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows."""
        rows = zip(tokens.tolist(), self.caches, strict=True)
        return torch.cat([self._read([token], cache) for token, cache in rows])

    def _read(self, tokens: Sequence[int], cache: PagedCache) -> Float[Tensor, "1 V"]:
        device = numbers_of(self.model).device
        row = torch.tensor([[*tokens]], device=device)
        return last_logits(self.model, row, cache=cache)
