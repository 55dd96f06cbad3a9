"""The fast decoder: the same model, one token at a time, in as few steps as possible.

The weights are packed, the cache is laid out for one query, and everything that depends
only on the position is looked up. It is tested against the model itself, with every
setting of a GPT that it supports.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.cache import dense_layers
from tested_transformer.decoding.fast.packing import (
    Int8Matrix,
    Matrix,
    PackedLayer,
    Rows,
    pack,
)
from tested_transformer.decoding.readers import last_logits, pad_left
from tested_transformer.gpt import GPT
from tested_transformer.inspection import numbers_of
from tested_transformer.multihead import MultiHeadAttention
from tested_transformer.replay import Replay

__all__ = ["Decoder"]

Step = Callable[..., Tensor]

_BLOCK = 64  # attend to a multiple of this many keys, and mask the ones to come


class Decoder:
    """A copy of a GPT's weights, laid out to read one more token of each sequence.

    The model itself reads prompts, and the decoder copies keys and values from its
    cache. Both compute in the type of the weights, under ``torch.autocast`` too.

    After a change of the model, make a new decoder. The old one would read prompts with
    the new weights, and then go on with its copy of the old ones.

    Args:
        model: The model. Its weights are copied, so they take twice the memory.
        weights: ``"own"`` keeps them as they are. ``"int8"`` rounds the matrices to
            integers from -127 to 127, with a scale for each row, and their inputs to
            bfloat16. That reads a quarter of the memory for each token, and changes the
            logits. Only on a CPU.

    Raises:
        PackingError: If the decoder does not support a part of the model, such as
            experts. ``CachedReader`` reads every model.
        ValueError: If ``weights`` is unknown, or ``"int8"`` for a model on a GPU.
    """

    def __init__(self, model: GPT, *, weights: Literal["own", "int8"] = "own") -> None:
        if weights not in ("own", "int8"):
            raise ValueError(f"weights={weights!r} must be 'own' or 'int8'")
        device = numbers_of(model).device
        if weights == "int8" and device.type != "cpu":
            raise ValueError(f"weights='int8' needs a CPU; the model is on {device}")
        self.model = model
        self.weights = pack(model, Matrix if weights == "own" else Int8Matrix)
        attention = model.blocks[0].attention
        assert isinstance(attention, MultiHeadAttention)  # packing refuses others
        self.groups = attention.num_kv_heads
        self.share = attention.num_heads // attention.num_kv_heads
        self.head_dim = attention.head_dim
        self.qk_norm = attention.qk_norm
        self.scale = attention.head_dim**-0.5
        self.cap = model.config.logit_cap
        self.longest = model.config.max_seq_len
        self.batch_size = 0
        self.fixed = False  # whether a step always attends to the whole cache
        self.wrap: Callable[[Step], Step] = lambda step: step
        self.device_type = device.type
        self.has_autocast = torch.amp.is_autocast_available(device.type)  # not "meta"
        self._make_tables()

    def capture(self) -> None:
        """Replay the step as a CUDA graph, so that the host starts one operation.

        Nothing is compiled: the first step of a batch runs as before, the second is
        recorded and replayed.

        Raises:
            ValueError: If the model is not on a CUDA device.
        """
        device = numbers_of(self.model).device
        if device.type != "cuda":
            raise ValueError(f"a CUDA graph needs a GPU; the model is on {device}")
        self._fix(Replay)

    def compile(self, *, backend: str | Callable[..., Any] = "inductor") -> None:
        """Compile the step, which then always attends to the whole cache.

        No shape changes any more, so on a GPU a step becomes one CUDA graph: an H100
        wrote 942 tokens per second with GPT-2's size, and 350 without. Compiling took
        it 25 seconds, so it pays off after some ten thousand tokens. ``generate`` does
        not decide that for you: compile a decoder, and pass it in place of the model.
        """
        cuda = numbers_of(self.model).is_cuda and backend == "inductor"
        mode = "reduce-overhead" if cuda else None
        compiled = torch.compile(self._next, dynamic=False, backend=backend, mode=mode)

        def wrap(step: Step) -> Step:
            # A CUDA graph copies tensors unless their addresses are marked as fixed.
            for tensor in (*self.weights.tensors(), *self.room):
                torch._dynamo.mark_static_address(tensor)
            return compiled

        self._fix(wrap)

    def _fix(self, wrap: Callable[[Step], Step]) -> None:
        """Attend to the whole cache in each step, so that no shape changes."""
        self.fixed, self.wrap = True, wrap
        self.batch_size = 0  # allocate again: such a step needs no workspace

    @torch.inference_mode()
    def read(self, contexts: Sequence[Sequence[int]]) -> Float[Tensor, "B V"]:
        """Forget all, and read these sequences; return the logits of what follows."""
        if self._under_autocast():
            with torch.autocast(self.device_type, enabled=False):
                return self.read(contexts)
        device = numbers_of(self.model).device
        tokens, positions, mask = pad_left(contexts, device=device)
        batch_size, self.length = tokens.shape
        cache = self.model.new_cache(batch_size, max_length=self.length)
        logits = last_logits(
            self.model, tokens, positions=positions, mask=mask, cache=cache
        )
        if batch_size != self.batch_size:
            self._make_room(batch_size)
        for room, layer in zip(self.room, dense_layers(cache), strict=True):
            kv = torch.stack([layer.keys, layer.values], dim=2)
            room[..., : self.length] = kv.mT
        self._hide_padding(mask)
        self.width = 0  # how much of the cache to attend to: set by the next step
        self.last = tokens[:, -1]
        return logits

    @torch.inference_mode()
    def step(self, tokens: Int[Tensor, "B"]) -> Float[Tensor, "B V"]:
        """Read one more token of each sequence; return the logits of what follows.

        Raises:
            ValueError: If the context is full.
        """
        if self._under_autocast():
            with torch.autocast(self.device_type, enabled=False):
                return self.step(tokens)
        if self.length >= self.width:
            self._widen()
        slot = self.slots[self.length]
        bias = self.bias.narrow(-1, self.longest - 1 - self.length, self.width)
        if self.hidden is not None:
            bias = bias + self.hidden[..., : self.width]
        self.length += 1
        before, self.last = self.last, tokens
        return self._run(tokens, before, slot, bias, self.padding)

    def _under_autocast(self) -> bool:
        """Return whether autocast is on, which would mix types that are added in place.

        It converts the factors of some products and not of others, and the products of
        a step share a workspace of one type. Turning it off in each step would take
        longer than this question.
        """
        return self.has_autocast and torch.is_autocast_enabled(self.device_type)

    def _next(
        self,
        tokens: Tensor,
        before: Tensor,
        slot: Tensor,
        bias: Tensor,
        padding: Tensor | None,
    ) -> Tensor:
        """Read tokens at ``slot`` of the cache, each of which follows ``before``."""
        weights = self.weights
        x = weights.tokens.index_select(0, tokens)
        if weights.smear is not None:
            before = weights.tokens.index_select(0, before)
            x = torch.addcmul(x, weights.smear, before)
        positions = slot if padding is None else slot - padding
        if weights.positions is not None:
            x += weights.positions.index_select(0, positions)
        turn = None if self.turns is None else self._turn(self.turns, positions)
        for index, layer in enumerate(weights.layers):
            heads = self._attend(
                index, layer, layer.attention_norm(x), slot, bias, turn
            )
            x = _add(x, layer.out, heads, layer.attention_out_norm)
            wide = layer.activation(layer.up.project(layer.feed_forward_norm(x)))
            x = _add(x, layer.down, wide, layer.feed_forward_out_norm)
        logits = weights.head.project(weights.norm(x))
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def _attend(
        self,
        index: int,
        layer: PackedLayer,
        x: Tensor,
        slot: Tensor,
        bias: Tensor,
        turn: Tensor | None,
    ) -> Tensor:
        """Put key and value into the cache, then attend with one query per head."""
        rows = layer.qkv.project(x, out=self.rows)
        q, qk, kv = self.parts or self._parts(rows)
        if layer.q_norm is not None and layer.k_norm is not None:
            k = qk[:, self.share * self.groups :]
            for part, norm in ((q, layer.q_norm), (k, layer.k_norm)):
                features = part.flatten(1) if self.qk_norm == "projection" else part
                part.copy_(norm(features).view_as(part))
        if turn is not None:
            qk.copy_(torch.bmm(qk, turn.expand(len(qk), -1, -1)))
        keys, values = self._store(index, kv, slot)
        q = q.reshape(-1, self.share, self.head_dim)
        weights = torch.baddbmm(bias, q, keys, alpha=self.scale).softmax(dim=-1)
        return torch.bmm(weights, values).view(len(x), -1)

    def _parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return views of queries, of queries and keys, and of keys and values."""
        heads = rows.view(len(rows), -1, self.head_dim)
        q, kv = heads.tensor_split([self.share * self.groups], dim=1)
        kv = kv.unflatten(1, (2, self.groups)).transpose(1, 2)
        return q, heads[:, : -self.groups], kv

    def _store(self, index: int, kv: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Put keys and values into the cache; return those to attend to."""
        if self.fixed:
            room = self.room[index].index_copy_(-1, slot, kv[..., None])
            return room[:, :, 0].flatten(0, 1), room[:, :, 1].flatten(0, 1).mT
        columns, keys, values = self.views[index]
        columns[self.length - 1].copy_(kv)
        return keys, values

    def _turn(self, turns: Tensor, positions: Tensor) -> Tensor:
        """Return the matrix that rotates queries and keys to their positions."""
        cos, sin = turns.index_select(1, positions)[:, :, None]
        return torch.addcmul(self.eye * cos, self.swap, sin)

    @torch.inference_mode()
    def _make_tables(self) -> None:
        """Compute everything that depends only on positions."""
        model, groups, share = self.model, self.groups, self.share
        weight = numbers_of(model)
        slots = torch.arange(self.longest, device=weight.device)
        self.slots: tuple[Tensor, ...] = slots.split(1)
        # A slice of this is the bias of the scores. It moves left at each step, so that
        # the newest key is at longest - 1, with the keys to come on its right.
        steps = torch.arange(1 - self.longest, self.longest + 1, device=weight.device)
        slopes = weight.new_zeros(1, 1, 1)
        if model.config.positions == "alibi":
            slopes = model.slopes.view(groups, share, 1)
        self.one_bias = (slopes * steps).masked_fill(steps > 0, float("-inf"))
        self.turns: Tensor | None = None
        if model.config.positions == "rotary":
            cos, sin = model.position_table.to(weight.dtype)
            self.turns = torch.stack(
                [torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)]
            )
            self.eye = torch.eye(self.head_dim).to(weight)
            half = self.head_dim // 2
            self.swap = self.eye.roll(half, dims=0)
            self.swap[half:] *= -1.0

    def _make_room(self, batch_size: int) -> None:
        """Allocate a cache, (B, H_kv, 2, d_k, S) for each layer, and a workspace."""
        self.batch_size = batch_size
        weight = numbers_of(self.model)
        shape = (batch_size, self.groups, 2, self.head_dim, self.longest)
        self.room = [weight.new_zeros(shape) for _ in self.weights.layers]
        # One bias for all heads, or one for each head of each sequence.
        copies = batch_size if len(self.one_bias) > 1 else 1
        self.bias = self.one_bias.repeat(copies, 1, 1)
        self.rows = self.parts = None
        self._run = self.wrap(self._next)
        if not self.fixed:
            width = self.groups * (self.share + 2) * self.head_dim
            self.rows = weight.new_empty(batch_size, width)
            self.parts = self._parts(self.rows)

    def _hide_padding(self, mask: Tensor | None) -> None:
        """Store the left padding of each sequence, and which slots to hide."""
        self.padding = self.hidden = None
        if mask is not None:
            self.padding = (~mask).flatten(1).sum(dim=1)
            padding = self.padding.repeat_interleave(self.groups)[:, None, None]
            slots = torch.arange(self.longest, device=mask.device)
            zeros = torch.zeros_like(slots, dtype=self.bias.dtype)
            self.hidden = zeros.masked_fill(slots < padding, float("-inf"))

    def _widen(self) -> None:
        """Attend to one more block of the cache."""
        if self.length >= self.longest:
            raise ValueError(
                f"the context of max_seq_len={self.longest} tokens is full: "
                "read the text again"
            )
        self.width = self.longest
        if not self.fixed:
            self.width = min((self.length // _BLOCK + 1) * _BLOCK, self.longest)
            self.views: list[tuple[tuple[Tensor, ...], Tensor, Tensor]] = []
            for room in self.room:
                part = room[..., : self.width]
                keys, values = (kv.flatten(0, 1) for kv in part.unbind(2))
                self.views.append((part.unbind(-1), keys, values.mT))


def _add(x: Tensor, matrix: Matrix, rows: Tensor, norm: Rows | None) -> Tensor:
    """Add the projection of ``rows`` to ``x``, normalized if there is a norm."""
    return matrix.add_to(x, rows) if norm is None else x + norm(matrix.project(rows))
