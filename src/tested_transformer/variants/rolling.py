"""Reading without end in constant memory: the first tokens, and a window of the last.

A token attends to the last ``window`` tokens up to itself, and to the first ``sinks``
of the text. Positions are those *in the cache*: kept tokens stand side by side, so no
distance is larger than the cache, however long the text grows.

Source of the whole: Xiao et al., 2023, "Efficient Streaming Language Models with
Attention Sinks", section 3.2.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tested_transformer.attention import attention_scores, attention_weights
from tested_transformer.cache import KVCache, LayerCache, validate_room
from tested_transformer.gpt import GPT
from tested_transformer.masks import causal_mask, sliding_window_mask
from tested_transformer.positions import rotate
from tested_transformer.validation import validate_attention, validate_sizes
from tested_transformer.variants.rotary_scaling import scaled_table

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
    """Return the mask of a window that keeps the first tokens in sight as well.

    Causal, and aligned bottom-right as ``causal_mask`` is.

    Args:
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.
        sinks: How many of the first keys every later query sees; may be 0.
        window: How many of the last keys it sees, itself counted.
        device: Where to make the mask.

    Raises:
        ValueError: If a length or ``sinks`` is negative, or ``window`` not positive.
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
    """Attend to sinks and window, a whole text at once and in the open.

    This is what a model with a rolling cache computes token by token.

    Args:
        q: Queries, not turned yet.
        k: Keys, not turned yet.
        v: Values.
        sinks: How many of the first tokens stay in sight.
        window: How many of the last do, the query's own counted.
        rates: How far rotary positions turn each pair; ``None`` for no positions.

    Returns:
        The output, and the weights.

    Raises:
        ValueError: If ``sinks`` is negative, or ``window`` not positive.
    """
    validate_attention(q, k, v, None, window, None, 0.0)
    _validate_rates(rates, q.shape[-1])
    places = torch.arange(q.shape[-2], device=q.device)
    mask = sink_mask(len(places), sinks=sinks, window=window, device=q.device)
    if rates is None:
        scores = attention_scores(q, k)
    else:
        turns = scaled_table(places, rates)
        scores = attention_scores(rotate(q, turns), rotate(k, turns))
        # Towards the sinks a query never stands farther off than at the cache's end.
        last = scaled_table(places.clamp(max=sinks + window - 1), rates)
        to_sinks = attention_scores(rotate(q, last), rotate(k, turns)[..., :sinks, :])
        scores = torch.cat([to_sinks, scores[..., sinks:]], dim=-1)
    weights = attention_weights(scores, mask)
    return weights @ v, weights


# --8<-- [end:open]


def _back(table: Tensor) -> Tensor:
    """Return the table that undoes a table, the factor it may have included."""
    cos, sin = table
    return torch.stack([cos, -sin]) / (cos**2 + sin**2)


class RollingLayer(LayerCache):
    """The keys and values of the first tokens and the last, in memory for no more.

    When it is full, each new token takes the slot of the oldest that is no sink. Keys
    are kept as they were before they were turned, and are turned at each step by the
    place that they have by then.

    Args:
        keys: Room for ``sinks + window`` keys.
        values: Room for as many values.
        sinks: How many of the first tokens to keep.
        table: The ``rotary_table`` of the places, if keys come turned by it.
    """

    def __init__(
        self,
        keys: Float[Tensor, "B H_kv S d_k"],
        values: Float[Tensor, "B H_kv S d_k"],
        *,
        sinks: int,
        table: Float[Tensor, "2 S half"] | None = None,
    ) -> None:
        self.seen = 0
        super().__init__(keys, values)
        self.sinks = sinks
        self.table = table

    @property
    def length(self) -> int:
        """The place of the next token: a full cache stays one short.

        It can be set to 0, to forget all tokens.
        """
        return min(self.seen, self.keys.shape[2] - 1)

    @length.setter
    def length(self, length: int) -> None:
        if length:
            raise ValueError(
                f"a rolling cache that has read {self.seen} tokens cannot go back to "
                f"{length}: others may be gone"
            )
        self.seen = 0

    # --8<-- [start:append]
    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_k"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_k"]]:
        """Store the keys and values of T new tokens; return those that are kept.

        Raises:
            ValueError: If several tokens come and there is no room for all of them, or
                the batch is another.
        """
        room, num_new = self.keys.shape[2], k.shape[2]
        self._validate_new(k, room)
        validate_room(self.keys, self.values, k, v)
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
        """Return where these tokens of the text lie: sinks in front, then a ring."""
        tokens = torch.arange(first, first + count, device=self.keys.device)
        ring = self.keys.shape[2] - self.sinks
        return torch.where(
            tokens < self.sinks, tokens, self.sinks + (tokens - self.sinks) % ring
        )

    # --8<-- [end:append]

    def _in_order(self) -> tuple[Tensor, Tensor]:
        """Return what is kept from the oldest to the newest."""
        room = self.keys.shape[2]
        if self.seen <= room:
            return self.keys[:, :, : self.seen], self.values[:, :, : self.seen]
        window = room - self.sinks
        sinks = self._slots(0, self.sinks)
        slots = torch.cat([sinks, self._slots(self.seen - window, window)])
        return self.keys[:, :, slots], self.values[:, :, slots]

    def _validate_new(self, k: Tensor, room: int) -> None:
        self._validate_room(k, self.length)  # the batch alone
        num_new, free = k.shape[2], max(room - self.seen, 0)
        if num_new > max(free, 1):
            raise ValueError(
                f"{num_new} tokens come and a rolling cache of {room} has {free} free: "
                "give it more than that one at a time"
            )


def rolling_cache(
    model: GPT, *, sinks: int, window: int, batch_size: int = 1
) -> KVCache:
    """Return an empty cache in which a model reads without end, in constant memory.

    Give the model the prompt up to ``sinks + window`` tokens at once, and what follows
    one by one, as ``stream_logits`` does. Prompts that are padded on the left would
    have padding for sinks: read those of unlike length each with a cache of its own.

    Args:
        model: A GPT with rotary positions, ALiBi or none.
        sinks: How many of the first tokens to keep; may be 0.
        window: How many of the last to keep.
        batch_size: B, how many sequences are read side by side.

    Raises:
        ValueError: If ``sinks`` is negative, ``window`` not positive, their sum larger
            than ``max_seq_len``, the positions are added to the tokens, the model has
            a window of its own that is smaller, or its attention keeps something else
            than keys that may move.
    """
    _validate_sinks(sinks)
    validate_sizes(window=window)
    config, room = model.config, sinks + window
    form = config.form()
    # Blocks would begin elsewhere after each step.
    if form is not None and not (form.keeps_heads and form.reads_padding):
        raise ValueError(
            f"attention={config.attention!r} of model keeps no keys that may move"
        )
    if config.positions in ("learned", "sinusoidal"):
        raise ValueError(
            f"positions={config.positions!r} of model must be 'rotary', 'alibi' or "
            "'none': what was added to a token cannot move with it"
        )
    own = [config.window_of(layer) for layer in range(config.num_layers)]
    if any(each is not None and each < room for each in own):
        raise ValueError(
            f"windows={config.windows} of model must not be smaller than "
            f"sinks + window = {room}"
        )
    cache = model.new_cache(batch_size, max_length=room)
    rotary = config.positions == "rotary"
    table = model.position_table[:, :room] if rotary else None
    layers: list[LayerCache] = [
        RollingLayer(layer.keys, layer.values, sinks=sinks, table=table)
        for layer in cache.layers
    ]
    cache.layers = layers
    return cache


def stream_logits(
    model: GPT, tokens: Int[Tensor, "B T"], cache: KVCache
) -> Float[Tensor, "B T V"]:
    """Return a model's guesses after each token of a text of any length.

    Args:
        model: The model.
        tokens: The text, or its next piece.
        cache: A ``rolling_cache`` of the model, empty or not.
    """
    if tokens.ndim != 2 or 0 in tokens.shape:
        raise ValueError(
            f"tokens must be (B, T) and not empty; their shape is {tuple(tokens.shape)}"
        )
    free = cache.max_length - cache.length
    first = tokens[:, :free] if cache.length == 0 else tokens[:, :0]
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
