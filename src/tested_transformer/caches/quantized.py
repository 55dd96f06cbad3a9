"""Quantized keys and values: 8 or 4 bits, with a scale for each group of numbers.

A group is either one feature of several tokens, *per channel*, or all features of one
token, *per token*. Keys of trained models have a few features that are large in every
token. Per channel they get their own scales; per token they make the scale coarse for
all other features.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from tested_transformer.cache import (
    KVCache,
    validate_batch,
    validate_capacity,
    validate_rewind,
    validate_widths,
)
from tested_transformer.checks import validate_choice, validate_sizes
from tested_transformer.gpt import GPT

__all__ = [
    "BITS",
    "GROUPS",
    "Quantized",
    "QuantizedLayer",
    "quantize",
    "quantized_cache",
]

BITS = (8, 4)
GROUPS = ("channel", "token")


@dataclass(frozen=True)
class Quantized:
    """Numbers stored as whole steps above the lowest number of their group.

    Args:
        codes: The number of steps, as bytes; with 4 bits, two codes per byte.
        low: The lowest number of each group, in the type of the numbers.
        step: The size of a step in each group, in at least 32 bits.
        bits: 8 or 4.
    """

    codes: UInt8[Tensor, "*batch S bytes"]
    low: Float[Tensor, "*batch _ _"]
    step: Float[Tensor, "*batch _ _"]
    bits: int

    @property
    def nbytes(self) -> int:
        """The memory of codes, lowest numbers and steps, in bytes."""
        return self.codes.nbytes + self.low.nbytes + self.step.nbytes

    def restore(self) -> Float[Tensor, "*batch S d"]:
        """Return the numbers, each at most half a step from the original.

        The type of the numbers adds its own rounding to that: with 8 bits, a step may
        be finer than what bfloat16 can tell apart.
        """
        codes = self.codes
        if self.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
        return (codes * self.step + self.low.to(self.step.dtype)).to(self.low.dtype)


def quantize(x: Float[Tensor, "*batch S d"], *, bits: int, per: str) -> Quantized:
    """Quantize the keys or values of S tokens.

    Args:
        x: The numbers.
        bits: 8 or 4; 4 needs an even d.
        per: ``channel`` for one scale per feature, over the S tokens; ``token`` for one
            scale per token, over its d features.

    Raises:
        TypeError: If ``x`` is not floating-point.
        ValueError: If ``x`` is empty or has fewer than two axes, ``bits`` is neither 8
            nor 4, ``per`` is unknown, or d is odd and ``bits`` is 4.

    Source: Liu et al., 2024, "KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV
    Cache".
    """
    _validate_bits(bits)
    validate_choice("per", per, GROUPS)
    _validate_numbers(x, bits)
    # --8<-- [start:quantize]
    over = -2 if per == "channel" else -1
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # 16 bits would add errors
    low, high = wide.amin(over, keepdim=True), wide.amax(over, keepdim=True)
    step = (high - low) / (2**bits - 1)
    # If all numbers of a group are equal, any step will do.
    steps = (wide - low) / step.where(step > 0, 1)
    codes = steps.round().to(torch.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return Quantized(codes, low.to(x.dtype), step, bits)
    # --8<-- [end:quantize]


class QuantizedLayer:
    """The keys and values of one layer, quantized except for the newest.

    A scale per channel needs several tokens at once. So the newest tokens are kept in
    full precision until they make a group, which is then quantized.

    It takes the number of heads, the widths and the type from the first keys and
    values.

    Args:
        bits: 8 or 4.
        keys_per: One of ``GROUPS``.
        values_per: One of ``GROUPS``.
        group_size: How many tokens are quantized together.
        batch_size: B, how many sequences are read side by side.
        max_length: How many tokens there may be.

    Raises:
        ValueError: If a setting does not fit.
    """

    def __init__(
        self,
        *,
        bits: int,
        keys_per: str = "channel",
        values_per: str = "token",
        group_size: int = 32,
        batch_size: int = 1,
        max_length: int,
    ) -> None:
        _validate_bits(bits)
        validate_choice("keys_per", keys_per, GROUPS)
        validate_choice("values_per", values_per, GROUPS)
        validate_sizes(
            group_size=group_size, batch_size=batch_size, max_length=max_length
        )
        self.bits = bits
        self.keys_per, self.values_per = keys_per, values_per
        self.group_size, self.max_length = group_size, max_length
        self.batch_size = batch_size
        self.reset()

    def reset(self) -> None:
        """Forget all tokens, and release their memory."""
        self.length = 0
        self.groups: list[tuple[Quantized, Quantized]] = []
        self.newest: tuple[Tensor, Tensor] | None = None

    @property
    def earliest(self) -> int:
        """How many tokens are quantized, which cannot be taken out of their groups."""
        return len(self.groups) * self.group_size

    def rewind(self, length: int) -> None:
        """Forget the tokens after the first ``length``.

        Raises:
            ValueError: If there are fewer, or one to forget is quantized, unless
                ``length`` is 0.
        """
        validate_rewind(self, length)
        if length < self.earliest or self.newest is None:
            self.reset()
            return
        k, v = self.newest
        kept = length - self.earliest
        self.newest = k[:, :, :kept].clone(), v[:, :, :kept].clone()
        self.length = length

    @property
    def nbytes(self) -> int:
        """The memory of all groups and of the newest tokens, in bytes."""
        waiting = sum(tensor.nbytes for tensor in self.newest or ())
        return waiting + sum(k.nbytes + v.nbytes for k, v in self.groups)

    def append(
        self, k: Float[Tensor, "B H_kv T d_k"], v: Float[Tensor, "B H_kv T d_v"]
    ) -> tuple[Float[Tensor, "B H_kv S d_k"], Float[Tensor, "B H_kv S d_v"]]:
        """Store the keys and values of T new tokens; return those of all tokens so far.

        Quantized keys and values are returned with their rounding error, even to the
        tokens that have just been stored.

        Raises:
            ValueError: If there is no room left, or the cache was made for another
                batch size, number of heads or width.
        """
        validate_capacity(self, k.shape[2], self.max_length)
        validate_batch(self, k)
        if self.newest is not None:
            validate_widths(*self.newest, k, v)
        self.length += k.shape[2]
        # --8<-- [start:append]
        if self.newest is not None:
            k, v = torch.cat([self.newest[0], k], 2), torch.cat([self.newest[1], v], 2)
        size = self.group_size
        while k.shape[2] >= size:
            keys = quantize(k[:, :, :size], bits=self.bits, per=self.keys_per)
            values = quantize(v[:, :, :size], bits=self.bits, per=self.values_per)
            self.groups.append((keys, values))
            k, v = k[:, :, size:], v[:, :, size:]
        self.newest = k.clone(), v.clone()  # a view would keep the whole tensor alive
        return (
            torch.cat([*(keys.restore() for keys, _ in self.groups), k], dim=2),
            torch.cat([*(values.restore() for _, values in self.groups), v], dim=2),
        )
        # --8<-- [end:append]


def quantized_cache(
    model: GPT,
    *,
    bits: int,
    keys_per: str = "channel",
    values_per: str = "token",
    group_size: int = 32,
    batch_size: int = 1,
) -> KVCache:
    """Return an empty cache that stores a model's keys and values in few bits.

    Args:
        model: A GPT whose layers cache keys and values of heads.
        bits: 8 or 4; 4 needs heads of even width.
        keys_per: Whether keys have one scale per ``channel`` or per ``token``.
        values_per: The same for the values.
        group_size: How many tokens are quantized together.
        batch_size: B, how many sequences are read side by side.

    Raises:
        ValueError: If a setting does not fit, or the model does not.
    """
    config = model.config
    if not config.attention.keeps_heads:
        raise ValueError(
            f"attention={config.attention!r} of model caches no keys and values of "
            "heads"
        )
    if bits == 4 and config.d_k % 2:
        raise ValueError(f"head_dim={config.d_k} of model must be even for 4 bits")
    return KVCache(
        [
            QuantizedLayer(
                bits=bits,
                keys_per=keys_per,
                values_per=values_per,
                group_size=group_size,
                batch_size=batch_size,
                max_length=config.max_seq_len,
            )
            for _ in range(config.num_layers)
        ]
    )


def _validate_bits(bits: int) -> None:
    if bits not in BITS:
        raise ValueError(f"bits={bits} must be 8 or 4")


def _validate_numbers(x: Tensor, bits: int) -> None:
    if not x.is_floating_point():
        raise TypeError(f"x must be floating-point; its dtype is {x.dtype}")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(
            f"x must be (..., S, d) and not empty; its shape is {tuple(x.shape)}"
        )
    if bits == 4 and x.shape[-1] % 2:
        raise ValueError(f"x is {x.shape[-1]} wide; with bits=4 it must be even")
