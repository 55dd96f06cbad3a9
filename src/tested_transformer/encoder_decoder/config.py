"""Everything that makes one encoder and decoder another, apart from the weights."""

from dataclasses import dataclass
from typing import Any

import torch

from tested_transformer.blocks import CrossDecoderBlock

__all__ = ["EncoderDecoderConfig"]


# --8<-- [start:config]
@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """Everything that makes one encoder and decoder another, apart from the weights.

    Args:
        vocab_size: V, the number of different tokens, of both languages together.
        max_seq_len: The longest sequence it can read or write.
        d_model: D, the width of the model; even.
        num_heads: H, heads of each attention.
        num_encoder_layers: Blocks that read.
        num_decoder_layers: Blocks that write.
        d_ff: Width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``blocks.ACTIVATIONS``.
        norm: One of ``blocks.NORMS``.
        norm_first: Norm what each part reads, and the end of each stack, and not the
            sums.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping a weight or a feature while training.
        fused: Use PyTorch's fused kernels for attention.

    Raises:
        ValueError: If a setting does not fit.
    """

    vocab_size: int
    max_seq_len: int = 64
    d_model: int = 128
    num_heads: int = 4
    num_encoder_layers: int = 2
    num_decoder_layers: int = 2
    d_ff: int | None = None
    activation: str = "relu"
    norm: str = "layer"
    norm_first: bool = False
    bias: bool = True
    dropout: float = 0.0
    fused: bool = True

    # --8<-- [end:config]

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "max_seq_len",
            "num_encoder_layers",
            "num_decoder_layers",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if self.d_model < 1 or self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} must be positive and even")
        # Its modules check the rest; on this device they take no memory.
        with torch.device("meta"):
            CrossDecoderBlock(**self.block_settings())

    def block_settings(self) -> dict[str, Any]:
        """Give what each block is made with, of the encoder and of the decoder."""
        names = ("d_model", "num_heads", "d_ff", "activation", "norm", "norm_first")
        names += ("bias", "dropout", "fused")
        return {name: getattr(self, name) for name in names}
