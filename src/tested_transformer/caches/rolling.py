"""A rolling cache: read endless text in constant memory with sinks and a window.

A token attends to the last ``window`` tokens up to itself, and to the first ``sinks``
tokens of the text. Positions are those *in the cache*, where the kept tokens are
consecutive. So no distance exceeds the cache, however long the text grows.

Source of the whole: Xiao et al., 2023, "Efficient Streaming Language Models with
Attention Sinks", section 3.2.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tested_transformer.attention import attention_scores, attention_weights
from tested_transformer.cache import (
    KVCache,
    dense_layers,
    validate_batch,
    validate_rewind,
    validate_widths,
)
from tested_transformer.checks import validate_attention, validate_sizes
from tested_transformer.gpt import GPT
from tested_transformer.masks import causal_mask, sliding_window_mask
from tested_transformer.positions import rotate
from tested_transformer.rotary_scaling import scaled_table

__all__ = [
    "RollingLayer",
    "rolling_cache",
    "sink_attention",
    "sink_mask",
    "stream_logits",
]


def sink_mask(
    num_queries: int,
    num_keys: int | None = None,
    *,
    sinks: int,
    window: int,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "T S"]:
    """Return the mask of a sliding window that also keeps the first tokens visible.

    It is causal, and aligned bottom-right like ``causal_mask``.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.
        sinks: How many of the first keys every later query sees; may be 0.
        window: How many of the last keys it sees, including itself.
        device: Where to make the mask.

    Raises:
        ValueError: If a length or ``sinks`` is negative, or ``window`` is not positive.
    """
    _validate_sinks(sinks)
    near = sliding_window_mask(num_queries, num_keys, window=window, device=device)
    first = torch.arange(near.shape[1], device=device) < sinks
    return near | (first & causal_mask(num_queries, num_keys, device=device))


# --8<-- [start:open]
def sink_attention(
    q: Float[Tensor, "B H T d_k"],
    k: Float[Tensor, "B H T d_k"],
    v: Float[Tensor, "B H T d_v"],
    *,
    sinks: int,
    window: int,
    rates: Float[Tensor, "half"] | None = None,
) -> tuple[Float[Tensor, "B H T d_v"], Float[Tensor, "B H T T"]]:
    """Attend to sinks and window over a whole text at once, in readable form.

    This is what a model with a rolling cache computes token by token.

    Args:
        q: Queries, not rotated yet.
        k: Keys, not rotated yet.
        v: Values.
        sinks: How many of the first tokens stay visible.
        window: How many of the last tokens are visible, including the query's own.
        rates: How far rotary positions turn each pair; ``None`` for no positions.

    Returns:
        The output, and the weights.

    Raises:
        ValueError: If ``sinks`` is negative, or ``window`` is not positive.
    """
    validate_attention(q, k, v, None, window, None, 0.0)
    _validate_rates(rates, q.shape[-1])
    positions = torch.arange(q.shape[-2], device=q.device)
    mask = sink_mask(len(positions), sinks=sinks, window=window, device=q.device)
    if rates is None:
        scores = attention_scores(q, k)
    else:
        turns = scaled_table(positions, rates)
        scores = attention_scores(rotate(q, turns), rotate(k, turns))
        # For the sinks, a query is never farther away than the end of the cache.
        last = scaled_table(positions.clamp(max=sinks + window - 1), rates)
        to_sinks = attention_scores(rotate(q, last), rotate(k, turns)[..., :sinks, :])
        scores = torch.cat([to_sinks, scores[..., sinks:]], dim=-1)
    weights = attention_weights(scores, mask)
    return weights @ v, weights


# --8<-- [end:open]


def _back(table: Tensor) -> Tensor:
    """Return the table that undoes a rotary table, including any attention factor."""
    cos, sin = table
    return torch.stack([cos, -sin]) / (cos**2 + sin**2)


class RollingLayer:
    """The keys and values of the first and the last tokens of one layer.

    When it is full, each new token takes the slot of the oldest token that is not a
    sink. Keys are stored unrotated; at each step they are rotated by their current
    position in the cache.

    Args:
        keys: Memory for ``sinks + window`` keys.
        values: Memory for as many values.
        sinks: How many of the first tokens to keep.
        table: The ``rotary_table`` of the positions, if keys arrive rotated by it.
    """

    def __init__(
        self,
        keys: Float[Tensor, "B H_kv S d_k"],
        values: Float[Tensor, "B H_kv S d_v"],
        *,
        sinks: int,
        table: Float[Tensor, "2 S half"] | None = None,
    ) -> None:
        self.keys = keys
        self.values = values
        self.sinks = sinks
        self.table = table
        self.seen = 0

    @property
    def length(self) -> int:
        """The position of the next token, which in a full cache is always the last.

        So many tokens it will find, because it takes the place of another one.
        """
        return min(self.seen, self.max_length - 1)

    @property
    def max_length(self) -> int:
        """How many tokens there is room for, sinks and window."""
        return self.keys.shape[2]

    @property
    def batch_size(self) -> int:
        """B, how many sequences are read side by side."""
        return self.keys.shape[0]

    @property
    def nbytes(self) -> int:
        """The memory set aside, in bytes."""
        return self.keys.nbytes + self.values.nbytes

    @property
    def earliest(self) -> int:
        """0 until the cache is full; then the oldest tokens are going."""
        return 0 if self.seen < self.max_length else self.length

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``.

        Raises:
            ValueError: If there are fewer, or the cache has been full, unless
                ``length`` is 0.
        """
        validate_rewind(self, length)
        if length < self.length:
            self.seen = length

    def reset(self) -> None:
        """Forget all tokens, but keep the memory."""
        self.seen = 0
        # What was written with gradients would keep every earlier pass alive.
        self.keys, self.values = self.keys.detach(), self.values.detach()

    # --8<-- [start:append]
    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return those that are kept.

        Raises:
            ValueError: If there are several tokens and no room for them all, or the
                cache was made for another batch size.
        """
        num_new = k.shape[2]
        self._validate_free(num_new)
        validate_batch(self, k)
        validate_widths(self.keys, self.values, k, v)
        if self.table is not None:
            k = rotate(k, _back(self.table[:, self.length : self.length + num_new]))
        slots = self._slots(self.seen, num_new)
        self.keys[:, :, slots] = k.to(self.keys.dtype)
        self.values[:, :, slots] = v.to(self.values.dtype)
        self.seen += num_new
        keys, values = self._in_order()
        if self.table is not None:
            keys = rotate(keys, self.table[:, : keys.shape[2]])
        return keys, values

    def _slots(self, first: int, count: int) -> Int[Tensor, "tokens"]:
        """Return the slots of these tokens: sinks in front, then a ring buffer."""
        tokens = torch.arange(first, first + count, device=self.keys.device)
        ring = self.max_length - self.sinks
        return torch.where(
            tokens < self.sinks, tokens, self.sinks + (tokens - self.sinks) % ring
        )

    # --8<-- [end:append]

    def _in_order(self) -> tuple[Tensor, Tensor]:
        """Return the kept keys and values from oldest to newest."""
        if self.seen <= self.max_length:
            return self.keys[:, :, : self.seen], self.values[:, :, : self.seen]
        window = self.max_length - self.sinks
        sinks = self._slots(0, self.sinks)
        slots = torch.cat([sinks, self._slots(self.seen - window, window)])
        return self.keys[:, :, slots], self.values[:, :, slots]

    def _validate_free(self, num_new: int) -> None:
        free = max(self.max_length - self.seen, 0)
        if num_new > max(free, 1):
            raise ValueError(
                f"{num_new} tokens do not fit a rolling cache of {self.max_length} "
                f"with {free} free: pass the rest one at a time"
            )


def rolling_cache(
    model: GPT, *, sinks: int, window: int, batch_size: int = 1
) -> KVCache:
    """Return an empty cache with which a model reads endless text in constant memory.

    Pass the model up to ``sinks + window`` tokens of the prompt at once, and the rest
    one by one, as ``stream_logits`` does. With padding on the left, the padding would
    become the sinks, so use one cache for each prompt if their lengths differ.

    Args:
        model: A GPT with rotary positions, ALiBi or none.
        sinks: How many of the first tokens to keep; may be 0.
        window: How many of the last to keep.
        batch_size: B, how many sequences are read side by side.

    Raises:
        ValueError: If ``sinks`` is negative, ``window`` is not positive, their sum
            exceeds ``max_seq_len``, positions are added to the tokens, the model's own
            window is smaller, or its attention does not cache keys that may move.
    """
    _validate_sinks(sinks)
    validate_sizes(window=window)
    config, room = model.config, sinks + window
    # Chosen blocks would shift with every step.
    if not (config.attention.keeps_heads and config.attention.reads_padding):
        raise ValueError(
            f"attention={config.attention!r} of model does not cache keys that can "
            "change position"
        )
    if config.positions in ("learned", "sinusoidal"):
        raise ValueError(
            f"positions={config.positions!r} of model must be 'rotary', 'alibi' or "
            "'none': a position that was added to a token cannot change"
        )
    layers = range(config.num_layers)
    own: list[int | None] = [config.window_of(layer) for layer in layers]
    if any(width is not None and width < room for width in own):
        raise ValueError(
            f"windows={config.windows} of model must not be smaller than "
            f"sinks + window = {room}"
        )
    layers = dense_layers(model.new_cache(batch_size, max_length=room))
    tables: list[Tensor | None] = [None] * config.num_layers
    for layer, width in enumerate(own):
        if config.rotates(layer):
            local = width is not None and config.local_rotary_base is not None
            tables[layer] = (
                model.local_position_table if local else model.position_table
            )
    return KVCache(
        [
            RollingLayer(
                layer.keys,
                layer.values,
                sinks=sinks,
                table=None if table is None else table[:, :room],
            )
            for layer, table in zip(layers, tables, strict=True)
        ]
    )


def stream_logits(
    model: GPT, tokens: Int[Tensor, "B T"], cache: KVCache
) -> Float[Tensor, "B T V"]:
    """Return a model's logits after each token of a text of any length.

    Args:
        model: The model.
        tokens: The text, or its next piece.
        cache: A ``rolling_cache`` of the model, empty or not.

    Raises:
        ValueError: If ``tokens`` is empty or does not have two axes, or the cache does
            not roll.
    """
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"tokens must be (B, T) and not empty; their shape is {tuple(tokens.shape)}"
        )
    rolling = [layer for layer in cache.layers if isinstance(layer, RollingLayer)]
    if not rolling:
        raise ValueError("cache must come from rolling_cache")
    # What does not fit is read token by token.
    first = tokens[:, : rolling[0].max_length if cache.length == 0 else 0]
    pieces = [first, *tokens[:, first.shape[1] :].split(1, dim=1)]
    read = [model(piece, cache=cache) for piece in pieces if piece.shape[1]]
    return torch.cat(read, dim=1)


def _validate_rates(rates: Tensor | None, width: int) -> None:
    if rates is not None and 2 * len(rates) != width:
        raise ValueError(
            f"rates has {len(rates)} numbers; it must have {width // 2}, one for each "
            "pair of features"
        )


def _validate_sinks(sinks: int) -> None:
    if sinks < 0:
        raise ValueError(f"sinks={sinks} must not be negative")
