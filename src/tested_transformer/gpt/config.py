"""Everything that makes one GPT another, apart from its weights."""

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from tested_transformer.blocks import ACTIVATIONS, NORMS, DecoderBlock

__all__ = ["POSITIONS", "GPTConfig"]

POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")

_Settings = dict[str, Any]
_NOT_OURS = {"self", "head_dim"}


# --8<-- [start:config]
@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Everything that makes one GPT another, apart from its weights.

    Args:
        vocab_size: V, the number of different tokens.
        max_seq_len: The longest sequence it can read.
        d_model: D, the width of the model.
        num_heads: H, heads of attention in each layer.
        num_layers: Blocks, one on top of the other.
        num_kv_heads: Heads of keys and values, shared; ``num_heads`` by default.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        positions: How order comes in, one of ``POSITIONS``.
        activation: One of ``blocks.ACTIVATIONS``.
        norm: One of ``blocks.NORMS``.
        bias: Whether projections and layer norms add a bias.
        tie_head: Whether the last matrix is the token embedding.
        dropout: The probability of dropping a weight or a feature while training.
        num_experts: Experts in the feed-forward's place; 0 for none.
        experts_per_token: How many of them each token goes through.
        qk_norm: Bring queries and keys to one length.
        smear: Add to each token a learned share of the token before it.
        zero_init: Start with matrices of zeros where a block adds to its input, and
            in a head of its own: at first every block passes on what it was given,
            and every token is as likely as any other.
        fused: Use PyTorch's fused kernels for attention.
        kept_heads: Of each layer the heads that pruning left, by their numbers before;
            all of them by default. A head stays ``d_model // num_heads`` wide.

    Raises:
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    num_layers: int = 4
    num_kv_heads: int | None = None
    d_ff: int | None = None
    positions: str = "learned"
    activation: str = "gelu"
    norm: str = "layer"
    bias: bool = True
    tie_head: bool = True
    dropout: float = 0.0
    num_experts: int = 0
    experts_per_token: int = 2
    qk_norm: bool = False
    smear: bool = False
    zero_init: bool = False
    fused: bool = True
    kept_heads: tuple[tuple[int, ...], ...] | None = None

    # --8<-- [end:config]

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_seq_len", "d_model", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        for name, choices in (
            ("positions", POSITIONS),
            ("activation", ACTIVATIONS),
            ("norm", NORMS),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} must be one of "
                    f"{', '.join(choices)}"
                )
        if self.num_experts < 0:
            raise ValueError(f"num_experts={self.num_experts} must not be negative")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be even for sinusoids")
        # Its modules check the rest; on this device they take no memory.
        with torch.device("meta"):
            block = DecoderBlock(**self._whole_block())
        if self.positions == "rotary" and block.attention.head_dim % 2:
            raise ValueError(
                f"head_dim={block.attention.head_dim} must be even for rotary positions"
            )

        if self.kept_heads is not None:
            self._check_kept(self.kept_heads)

    def block_settings(self, layer: int = 0) -> _Settings:
        """Give what a block is made with: each layer's the same, but for pruning."""
        if self.kept_heads is None:
            return self._whole_block()
        num_heads = len(self.kept_heads[layer])
        return {
            **self._whole_block(),
            "num_heads": num_heads,
            "num_kv_heads": num_heads // self._group,
            "head_dim": self.d_model // self.num_heads,
        }

    def _whole_block(self) -> _Settings:
        names = signature(DecoderBlock.__init__).parameters.keys()
        return {name: getattr(self, name) for name in sorted({*names} - _NOT_OURS)}

    @property
    def _group(self) -> int:
        """How many heads share a head of keys and values."""
        return self.num_heads // (self.num_kv_heads or self.num_heads)

    def _check_kept(self, kept: tuple[tuple[int, ...], ...]) -> None:
        if len(kept) != self.num_layers:
            raise ValueError(
                f"kept_heads has {len(kept)} layers; num_layers={self.num_layers}"
            )
        for layer, heads in enumerate(kept):
            known = [head for head in range(self.num_heads) if head in heads]
            if not heads or [*heads] != known:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be one or more of the heads 0 "
                    f"to {self.num_heads - 1}, in order"
                )
            groups = {head // self._group for head in heads}
            if len(heads) != len(groups) * self._group:
                raise ValueError(
                    f"kept_heads[{layer}]={heads} must be whole groups: "
                    f"{self._group} heads in a row share their keys and values"
                )
