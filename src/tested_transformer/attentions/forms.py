"""The forms of attention that ``GPTConfig(attention=...)`` offers, by name.

A form says how to make the attention layer, which positional encodings it supports, and
which settings of the model it cannot use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tested_transformer.attentions.chosen_blocks import BlockAttention
from tested_transformer.attentions.delta import DeltaAttention
from tested_transformer.attentions.differential import DifferentialAttention
from tested_transformer.attentions.latent import LatentAttention
from tested_transformer.attentions.linear import LinearAttention
from tested_transformer.attentions.softmaxes import AdjustedAttention
from tested_transformer.gpt import POSITIONS, GPTConfig

__all__ = ["FORMS", "Form"]

# For attention with a state: it has no scores for ALiBi, and no rotation of its keys.
_ADDED = ("learned", "sinusoidal", "none")
# Settings that no form uses, or only some.
_FOREIGN = (
    *("kept_heads", "qk_norm"),
    *("latent_dim", "soft_cap", "block_size", "num_chosen"),
)


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way to attend.

    Args:
        make: Makes the attention of a layer from the model's settings and the layer's
            number.
        settings: Settings of the model that only this form uses.
        refused: Settings that must keep their defaults.
        positions: The positional encodings that fit, the recommended one first.
        has_scores: Whether it scores queries against keys. If not, it keeps a state.
        keeps_heads: Whether the cache holds keys and values of each head.
        weighs_by_head: Whether each head has a table of weights, like softmax.
        reads_padding: Whether padding on the left can be masked, so that sequences of
            different lengths can be read side by side.
    """

    make: Callable[[GPTConfig, int], nn.Module]
    settings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    positions: tuple[str, ...] = POSITIONS
    has_scores: bool = True
    keeps_heads: bool = True
    weighs_by_head: bool = True
    reads_padding: bool = True

    def fitting_positions(self, softmax_every: int | None) -> tuple[str, ...]:
        """Return the positional encodings that fit, given how often softmax is used.

        If some layers use softmax, every encoding fits: layers with a state skip those
        that act on scores.
        """
        hybrid = softmax_every is not None and not self.has_scores
        return POSITIONS if hybrid else self.positions

    def validate(self, config: GPTConfig) -> None:
        """Raise a ``ValueError`` if the settings of a model do not fit this form."""
        name = f"attention={config.attention!r}"
        fitting = self.fitting_positions(config.softmax_every)
        if config.positions not in fitting:
            raise ValueError(
                f"positions={config.positions!r} does not fit {name}: choose one of "
                f"{', '.join(fitting)}"
            )
        fields = GPTConfig.__dataclass_fields__
        for each in (*_FOREIGN, *self.refused):
            value = getattr(config, each)
            if each not in self.settings and value != fields[each].default:
                raise ValueError(f"{each}={value!r} does not fit {name}: leave it out")
        for layer in range(config.num_layers):
            if config.form_of(layer) is not None:
                with torch.device("meta"):  # only to validate: no weights are drawn
                    self.make(config, layer)
                break


def _latent(config: GPTConfig, layer: int) -> nn.Module:
    given, head_dim = config.latent_dim, config.head_dim
    return LatentAttention(
        d_model=config.d_model,
        num_heads=config.num_heads,
        head_dim=head_dim,
        rotary_dim=head_dim,  # so that the model's rotary table fits
        latent_dim=2 * head_dim if given is None else given,
        dropout=config.dropout,
        bias=config.bias,
        fused=config.fused,
    )


def _stateful(kind: Callable[..., nn.Module], gated: bool) -> Form:
    def make(config: GPTConfig, layer: int) -> nn.Module:
        return kind(
            d_model=config.d_model,
            num_heads=config.num_heads,
            bias=config.bias,
            gated=gated,
        )

    return Form(
        make=make,
        refused=("num_kv_heads", "windows"),
        positions=_ADDED,
        has_scores=False,
        keeps_heads=False,
        weighs_by_head=False,
        reads_padding=False,
    )


def _sizes(config: GPTConfig) -> dict[str, Any]:
    """Return the settings of every layer with queries, keys and values."""
    return {
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "bias": config.bias,
        "fused": config.fused,
    }


def _differential(config: GPTConfig, layer: int) -> nn.Module:
    return DifferentialAttention(layer=layer, **_sizes(config))


def _gated(config: GPTConfig, layer: int) -> nn.Module:
    return AdjustedAttention(gate="features", **_sizes(config))


def _soft_capped(config: GPTConfig, layer: int) -> nn.Module:
    cap = 50.0 if config.soft_cap is None else config.soft_cap  # Gemma 2's
    return AdjustedAttention(soft_cap=cap, **_sizes(config))


def _sink(config: GPTConfig, layer: int) -> nn.Module:
    return AdjustedAttention(learned_sink=True, **_sizes(config))


def _blocks(config: GPTConfig, layer: int) -> nn.Module:
    return BlockAttention(
        block_size=16 if config.block_size is None else config.block_size,
        num_chosen=3 if config.num_chosen is None else config.num_chosen,
        **_sizes(config),
    )


FORMS = {
    "latent": Form(
        make=_latent,
        settings=("latent_dim",),
        refused=("num_kv_heads", "softmax_every"),
        positions=("rotary",),
        keeps_heads=False,
    ),
    "linear": _stateful(LinearAttention, gated=False),
    "gated_linear": _stateful(LinearAttention, gated=True),
    "delta": _stateful(DeltaAttention, gated=False),
    "gated_delta": _stateful(DeltaAttention, gated=True),
    "differential": Form(make=_differential, weighs_by_head=False),
    "gated": Form(make=_gated),
    "soft_capped": Form(make=_soft_capped, settings=("soft_cap",)),
    "sink": Form(make=_sink),
    "blocks": Form(
        make=_blocks,
        settings=("block_size", "num_chosen"),
        refused=("windows",),
        reads_padding=False,
    ),
}
