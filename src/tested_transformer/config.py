"""The settings of a GPT: everything about it except its weights."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tested_transformer.checks import (
    validate_between,
    validate_choice,
    validate_heads,
    validate_qk_norm,
    validate_sizes,
    validate_switches,
)
from tested_transformer.habits import MODEL_SETTINGS, advise_on_settings
from tested_transformer.interfaces import Attention, LayerSettings
from tested_transformer.layers import ACTIVATIONS, GATED, NORM_PLACES, NORMS
from tested_transformer.multihead import SOFTMAX, Softmax
from tested_transformer.positions import POSITIONS

__all__ = ["GPTConfig", "fitting_positions"]


def fitting_positions(
    attention: Attention, softmax_every: int | None
) -> tuple[str, ...]:
    """Return the positional encodings that fit, the recommended one first.

    If some layers use softmax, every encoding fits: layers with a state skip those that
    act on scores.
    """
    hybrid = softmax_every is not None and not attention.has_scores
    return POSITIONS if hybrid else attention.positions


@advise_on_settings(MODEL_SETTINGS)
@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The settings of a GPT: everything about it except its weights.

    Args:
        vocab_size: V, the number of different tokens.
        max_seq_len: The longest sequence that the model can read.
        d_model: D, the width of the model.
        num_heads: H, heads of attention in each layer.
        head_dim: d_k, the width of a head; ``d_model // num_heads`` by default.
        num_layers: Number of blocks.
        attention: How layers attend: ``Softmax()``, or settings from ``attentions``,
            such as ``Latent(latent_dim=32)``.
        softmax_every: Let every n-th layer attend with softmax instead; ``None`` for
            no layer. Not for latent attention.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        positions: The positional encoding, one of ``positions.POSITIONS``.
        rotary_base: The base of rotary positions: about how much slower the slowest
            pair of features turns than the fastest.
        rotary_rates: How far each pair turns from one token to the next, such as
            ``rotary_scaling.yarn_rates``; computed from ``rotary_base`` by default.
        rotary_attention_factor: Multiply rotated queries and keys by this.
        local_rotary_base: The base of layers with a window, if it is another; to them
            ``rotary_rates`` and ``rotary_attention_factor`` then do not apply.
        rotary_layers: Whether each layer rotates queries and keys; all by default. The
            others have no positions of their own.
        windows: How many tokens a position may attend to, including itself: one
            number for all layers, or one per layer; ``None`` for no limit.
        activation: One of ``layers.ACTIVATIONS`` or, with a gate, ``layers.GATED``.
        norm: One of ``layers.NORMS``.
        norm_place: Where a branch of a block is normalized, one of
            ``layers.NORM_PLACES``: its input, its output, or both.
        norm_eps: What a norm adds to the mean square.
        bias: Whether projections and layer norms add a bias.
        qkv_bias: Whether the projections to queries, keys and values add a bias; like
            ``bias`` by default.
        tie_head: Whether the last matrix is the token embedding.
        dropout: The probability of dropping a weight or a feature while training.
            Attention with a state drops no weights.
        num_experts: Experts in place of the feed-forward; 0 for none.
        experts_per_token: How many of them each token is routed to.
        router_bias: Whether the router adds a bias.
        qk_norm: Normalize queries and keys to the same length (``True``), or with an
            RMS norm: of each head (``"heads"``), or all of them (``"projection"``).
        embedding_scale: Multiply the embeddings of tokens by this.
        logit_cap: Squash logits into -logit_cap to logit_cap; no cap by default.
        smear: Add to each token a learned share of the token before it.
        zero_init: Start with zeros in the last matrix of each branch of a block and
            in an untied head. At first every block then returns its input, and every
            token is equally likely.
        fused: Use PyTorch's fused kernels for attention.
        kept_heads: For each layer, the original numbers of the heads that pruning
            left; all by default. A head remains as wide as it was.

    Raises:
        TypeError: If a size is not an ``int``.
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    head_dim: int | None = None
    num_layers: int = 4
    attention: Attention = SOFTMAX
    softmax_every: int | None = None
    num_kv_heads: int | None = None
    d_ff: int | None = None
    positions: str = "learned"
    rotary_base: float = 10_000.0
    rotary_rates: tuple[float, ...] | None = None
    rotary_attention_factor: float = 1.0
    local_rotary_base: float | None = None
    rotary_layers: Sequence[bool] | None = None
    windows: Sequence[int | None] | int | None = None
    activation: str = "gelu"
    norm: str = "layer"
    norm_place: str = "before"
    norm_eps: float = 1e-5
    bias: bool = True
    qkv_bias: bool | None = None
    tie_head: bool = True
    dropout: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 2
    router_bias: bool = False
    qk_norm: bool | Literal["heads", "projection"] = False
    embedding_scale: float = 1.0
    logit_cap: float | None = None
    smear: bool = False
    zero_init: bool = False
    fused: bool = True
    kept_heads: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        validate_sizes(
            vocab_size=self.vocab_size,
            max_seq_len=self.max_seq_len,
            num_layers=self.num_layers,
            d_ff=1 if self.d_ff is None else self.d_ff,
        )
        validate_heads(self.d_model, self.num_heads, self.head_dim, self.num_kv_heads)
        validate_switches(**{name: getattr(self, name) for name in _SWITCHES})
        if self.qkv_bias is not None:
            validate_switches(qkv_bias=self.qkv_bias)
        validate_choice("positions", self.positions, POSITIONS)
        validate_choice("activation", self.activation, [*ACTIVATIONS, *GATED])
        validate_choice("norm", self.norm, NORMS)
        validate_choice("norm_place", self.norm_place, NORM_PLACES)
        validate_qk_norm(self.qk_norm)
        validate_between("dropout", self.dropout, 0, 1)
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoids")
        if self.positions == "rotary" and self.d_k % 2:
            raise ValueError(f"head_dim={self.d_k} must be even for rotary positions")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be positive and finite")
        self._validate_rotary()
        if not isinstance(self.num_experts, int):
            raise TypeError(f"num_experts={self.num_experts!r} must be an int")
        if self.num_experts < 0:
            raise ValueError(f"num_experts={self.num_experts} must not be negative")
        if self.num_experts:
            picked, experts = self.experts_per_token, self.num_experts
            validate_between("experts_per_token", picked, 1, experts, "num_experts")
        self._validate_windows()
        self._validate_kept_heads()
        self._validate_attention()

    def _validate_attention(self) -> None:
        if self.softmax_every is not None:
            validate_sizes(softmax_every=self.softmax_every)
        if not isinstance(self.attention, Attention):
            raise TypeError(
                f"attention={self.attention!r} must be settings of attention, such as "
                f"attentions.Latent(); for a name, write ATTENTIONS[{self.attention!r}]"
            )
        fitting = fitting_positions(self.attention, self.softmax_every)
        if self.positions not in fitting:
            raise ValueError(
                f"positions={self.positions!r} does not fit attention="
                f"{self.attention!r}: choose one of {', '.join(fitting)}"
            )
        # Other cores have parameters or choices of their own for each head.
        plain = type(self.attention) is Softmax
        of_softmax = "softmax_every" if plain else "kept_heads"
        for name in (*self.attention.unsupported, of_softmax):
            value = getattr(self, name)
            if value != type(self).__dataclass_fields__[name].default:
                raise ValueError(
                    f"{name}={value!r} does not fit attention={self.attention!r}: "
                    "leave it out"
                )
        with torch.device("meta"):  # only to validate: no weights are drawn
            self.attention.make(self.layer_settings(0))

    def _validate_rotary(self) -> None:
        for name in ("local_rotary_base", "rotary_layers"):
            if self.positions != "rotary" and getattr(self, name) is not None:
                raise ValueError(
                    f"positions={self.positions!r} must be 'rotary' for {name}"
                )
        if self.rotary_layers is not None:
            layers = tuple(self.rotary_layers)  # JSON stores a tuple as a list
            object.__setattr__(self, "rotary_layers", layers)
            if len(layers) != self.num_layers:
                raise ValueError(
                    f"rotary_layers has {len(layers)} layers; "
                    f"num_layers={self.num_layers}"
                )
            for layer, rotates in enumerate(layers):
                validate_switches(**{f"rotary_layers[{layer}]": rotates})
        if self.rotary_rates is None:
            return
        # JSON stores a tuple as a list, and no tensors.
        rates = tuple(map(float, self.rotary_rates))
        object.__setattr__(self, "rotary_rates", rates)
        if self.positions != "rotary":
            raise ValueError(
                f"positions={self.positions!r} must be 'rotary' for rotary_rates"
            )
        if len(rates) != self.d_k // 2:
            raise ValueError(
                f"{len(rates)} rotary_rates must be {self.d_k // 2}: one for each "
                f"pair of a head of {self.d_k}"
            )
        if not all(map(math.isfinite, rates)):
            raise ValueError(f"rotary_rates={rates} must be finite")

    def _validate_windows(self) -> None:
        if isinstance(self.windows, Sequence):  # JSON stores a tuple as a list
            object.__setattr__(self, "windows", tuple(self.windows))
            if len(self.windows) != self.num_layers:
                raise ValueError(
                    f"windows has {len(self.windows)} layers; "
                    f"num_layers={self.num_layers}"
                )
        windows = self.windows if isinstance(self.windows, Sequence) else [self.windows]
        for window in windows:
            if window is not None and (not isinstance(window, int) or window < 1):
                raise ValueError(
                    f"windows={self.windows!r} must be a positive int, or one for each "
                    "layer, with None for no window"
                )

    def _validate_kept_heads(self) -> None:
        if self.kept_heads is None:
            return
        if len(self.kept_heads) != self.num_layers:
            raise ValueError(
                f"kept_heads has {len(self.kept_heads)} layers; "
                f"num_layers={self.num_layers}"
            )
        kept = tuple(map(tuple, self.kept_heads))  # JSON stores a tuple as a list
        object.__setattr__(self, "kept_heads", kept)
        for layer, heads in enumerate(kept):
            known = [head for head in range(self.num_heads) if head in heads]
            if not heads or [*heads] != known:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be one or more of the heads 0 "
                    f"to {self.num_heads - 1}, in order"
                )
            groups = {head // self.heads_per_group for head in heads}
            if len(heads) != len(groups) * self.heads_per_group:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be whole groups: "
                    f"{self.heads_per_group} consecutive heads share keys and values"
                )

    @property
    def d_k(self) -> int:
        """The width of a head."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def heads_per_group(self) -> int:
        """How many consecutive heads share a head of keys and values."""
        return self.num_heads // (self.num_kv_heads or self.num_heads)

    def attention_of(self, layer: int) -> Attention:
        """Return how a layer attends."""
        every = self.softmax_every
        return SOFTMAX if every and (layer + 1) % every == 0 else self.attention

    def layer_settings(self, layer: int) -> LayerSettings:
        """Return what the attention of a layer is told."""
        num_heads, num_kv_heads = self.heads_of(layer)
        return LayerSettings(
            d_model=self.d_model,
            num_heads=num_heads,
            head_dim=self.d_k,
            num_kv_heads=num_kv_heads,
            dropout=self.dropout,
            bias=self.bias,
            qkv_bias=self.qkv_bias,
            fused=self.fused,
            qk_norm=self.qk_norm,
            norm_eps=self.norm_eps,
            layer=layer,
        )

    def heads_of(self, layer: int) -> tuple[int, int]:
        """Return how many heads a layer has, and how many heads of keys and values."""
        kept = None if self.kept_heads is None else self.kept_heads[layer]
        num_heads = self.num_heads if kept is None else len(kept)
        return num_heads, num_heads // self.heads_per_group

    def rotates(self, layer: int) -> bool:
        """Return whether a layer rotates its queries and keys."""
        rotary = self.positions == "rotary" and self.attention_of(layer).has_scores
        return rotary and (self.rotary_layers is None or self.rotary_layers[layer])

    def window_of(self, layer: int) -> int | None:
        """Return how many tokens a position of this layer sees; ``None`` for all."""
        if isinstance(self.windows, Sequence):
            return self.windows[layer]
        return self.windows


_SWITCHES = ("bias", "tie_head", "router_bias", "smear", "zero_init", "fused")
_POSITIVE = (
    *("rotary_base", "rotary_attention_factor", "local_rotary_base"),
    *("norm_eps", "embedding_scale", "logit_cap"),
)
