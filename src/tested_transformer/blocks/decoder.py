"""The layer of a GPT: attention mixes positions, a feed-forward mixes features."""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tested_transformer.blocks.experts import MixtureOfExperts
from tested_transformer.blocks.feed_forward import FeedForward
from tested_transformer.blocks.norms import make_norm
from tested_transformer.cache import LayerCache
from tested_transformer.multihead import MultiHeadAttention

__all__ = ["DecoderBlock"]

_Output = Float[Tensor, "B T D"]
_Weights = Float[Tensor, "B H T S"]


# --8<-- [start:block]
class DecoderBlock(nn.Module):
    """One layer of a GPT: causal self-attention, then a feed-forward, each pre-normed.

    Args:
        d_model: D, the width of input and output.
        num_heads: H, the heads of attention.
        head_dim: The width of a head; ``d_model // num_heads`` by default.
        num_kv_heads: Heads of keys and values; ``num_heads`` by default.
        d_ff: The width inside the feed-forward; ``4 * d_model`` by default.
        activation: One of ``ACTIVATIONS``.
        norm: One of ``NORMS``.
        bias: Whether projections and layer norms add a bias.
        dropout: The probability of dropping an attention weight, and a feature of
            what attention and feed-forward add, while training.
        num_experts: How many experts stand in the feed-forward's place; 0 for none.
        experts_per_token: How many of them each token goes through.
        qk_norm: Bring queries and keys to one length.
        fused: Use PyTorch's fused kernels.

    Raises:
        ValueError: If a setting does not fit.

    Source: Radford et al., 2019, "Language Models are Unsupervised Multitask
    Learners", section 2.3.
    """

    def __init__(
        self,
        *,
        d_model: int,
        num_heads: int,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        d_ff: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        num_experts: int = 0,
        experts_per_token: int = 2,
        qk_norm: bool = False,
        fused: bool = True,
    ) -> None:
        super().__init__()
        self.attention_norm = make_norm(norm, d_model, bias=bias)
        self.attention = MultiHeadAttention(
            d_model=d_model,
            num_heads=num_heads,
            head_dim=head_dim,
            num_kv_heads=num_kv_heads,
            dropout=dropout,
            bias=bias,
            fused=fused,
            qk_norm=qk_norm,
        )
        self.feed_forward_norm = make_norm(norm, d_model, bias=bias)
        inner: dict[str, Any] = {
            "d_model": d_model,
            "d_ff": d_ff,
            "activation": activation,
            "bias": bias,
        }
        self.feed_forward = (
            MixtureOfExperts(
                num_experts=num_experts, experts_per_token=experts_per_token, **inner
            )
            if num_experts
            else FeedForward(**inner)
        )
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    # --8<-- [start:block-forward]
    def forward(
        self,
        x: Float[Tensor, "B T D"],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        score_bias: Float[Tensor, "..."] | None = None,
        rotary: Float[Tensor, "2 *table T half"] | None = None,
        cache: LayerCache | None = None,
        return_weights: bool = False,
    ) -> _Output | tuple[_Output, _Weights]:
        """Let each position read the ones before it, then think by itself.

        Args:
            x: The sequence.
            mask: ``True`` where a query may attend, beside the causal mask.
            score_bias: What to add to the scores of every head.
            rotary: The ``rotary_table`` of the positions.
            cache: The keys and values of what was read before.
            return_weights: Return the weights of every head too.

        Returns:
            The output, or the output and the weights.
        """
        attended = self.attention(
            self.attention_norm(x),
            mask=mask,
            causal=True,
            score_bias=score_bias,
            rotary=rotary,
            cache=cache,
            return_weights=return_weights,
        )
        attended, weights = attended if return_weights else (attended, None)
        x = x + self.dropout(attended)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x if weights is None else (x, weights)

    # --8<-- [end:block-forward]


# --8<-- [end:block]
