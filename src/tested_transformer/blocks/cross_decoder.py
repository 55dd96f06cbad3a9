"""The layer of a decoder that reads two sequences: its own past, and a context."""

from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.blocks.feed_forward import FeedForward
from tested_transformer.blocks.residual import AddNorm
from tested_transformer.cache import LayerCache
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["CrossDecoderBlock"]

_Output = Float[Tensor, "B T D"]
_Own = Float[Tensor, "B H T P"]
_Cross = Float[Tensor, "B H T S"]


# --8<-- [start:cross]
class CrossDecoderBlock(nn.Module):
    """One layer of a decoder: causal self-attention, cross-attention, a feed-forward.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of each attention.
        d_context: The width of the context; ``d_model`` by default.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        norm_first: Norm what each part reads, and not the sum.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what each part adds, while training.
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
        d_context: int | None = None,
        d_ff: int | None = None,
        activation: str = "relu",
        norm: str = "layer",
        norm_first: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        fused: bool = True,
    ) -> None:
        super().__init__()
        attention = partial(
            MultiHeadAttention,
            d_model=d_model,
            num_heads=num_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
        )
        add_norm = partial(
            AddNorm,
            d_model=d_model,
            norm=norm,
            bias=bias,
            dropout=dropout,
            norm_first=norm_first,
        )
        self.attention = attention()
        self.add_attention = add_norm()
        self.cross_attention = attention(d_context=d_context)
        self.add_cross_attention = add_norm()
        self.feed_forward = FeedForward(
            d_model=d_model, d_ff=d_ff, activation=activation, bias=bias
        )
        self.add_feed_forward = add_norm()

    # --8<-- [start:cross-forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S C"],
        mask: Bool[Tensor, "..."] | None = None,
        context_mask: Bool[Tensor, "..."] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Own, _Cross]:
        """Let each position read its past, then the context, then think by itself.

        Args:
            x: The sequence that is being written.
            context: The sequence that it is written from, such as an encoder's output.
            mask: ``True`` where a query may attend in ``x``, beside the causal mask.
            context_mask: ``True`` where a query may attend in ``context``.
            cache: The keys and values of what was read of ``x`` before.
            return_weights: Return the weights of both attentions too.

        Returns:
            The output; or the output, the weights over P positions of ``x``, those
            in the cache counted, and the weights over the context.
        """
        attended = self.attention(
            self.add_attention.read(x),
            mask=mask,
            causal=True,
            cache=cache,
            return_weights=return_weights,
        )
        attended, own = attended if return_weights else (attended, None)
        x = self.add_attention.add(x, attended)
        found = self.cross_attention(
            self.add_cross_attention.read(x),
            context=context,
            mask=context_mask,
            return_weights=return_weights,
        )
        found, cross = found if return_weights else (found, None)
        x = self.add_cross_attention.add(x, found)
        x = self.add_feed_forward(x, self.feed_forward)
        return x if own is None or cross is None else (x, own, cross)

    # --8<-- [end:cross-forward]


# --8<-- [end:cross]
