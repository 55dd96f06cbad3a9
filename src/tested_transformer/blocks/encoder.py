"""The layer of an encoder: every position may read every other."""

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.blocks.feed_forward import FeedForward
from tested_transformer.blocks.residual import AddNorm
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["EncoderBlock"]

_Output = Float[Tensor, "B S D"]
_Weights = Float[Tensor, "B H S S"]


# --8<-- [start:encoder]
class EncoderBlock(nn.Module):
    """One layer of an encoder: self-attention that sees both sides, a feed-forward.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of attention.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        norm_first: Norm what each part reads, and not the sum.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what attention and feed-forward add, while training.
        fused: Use PyTorch's fused kernels.

    Raises:
        ValueError: If a setting does not fit.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        d_ff: int | None = None,
        activation: str = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        add_norm = partial(
            AddNorm,
            d_model=d_model,
            norm=norm,
            bias=bias,
            dropout=dropout,
            norm_first=norm_first,
        )
        self.attention = MultiHeadAttention(
            d_model=d_model,
            num_heads=num_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
        )
        self.add_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

    # --8<-- [start:encoder-forward]
    def forward(
        self,
        x: Float[Tensor, "B S D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read all others, then think by itself.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend; for padding, ``padding_mask``.
            return_weights: Return the weights of every head too.

        Returns:
            The output, or the output and the weights.
        """
        attended = self.attention(
            self.add_attention.read(x), mask=mask, return_weights=return_weights
        )
        attended, weights = attended if return_weights else (attended, None)
        x = self.add_attention.add(x, attended)
        x = self.add_feed_forward(x, self.feed_forward)
        return x if weights is None else (x, weights)

    # --8<-- [end:encoder-forward]


# --8<-- [end:encoder]
