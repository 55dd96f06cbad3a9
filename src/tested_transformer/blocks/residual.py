"""The box that every figure of a transformer calls "Add & Norm"."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from tested_transformer.blocks.norms import make_norm

__all__ = ["AddNorm"]


# --8<-- [start:add-norm]
class AddNorm(nn.Module):
    """Add to a sequence what a part makes of it, with a norm before or after.

    Args:
        d_model: D, the width of the sequence.
        norm: One of ``NORMS``.
        bias: Whether a layer norm adds a bias.
        dropout: The probability of dropping a feature of what the part makes, while
            training.
        norm_first: Norm what the part reads (pre-norm, as in GPT-2) and not the sum
            (post-norm, as in the paper).

    Raises:
        ValueError: If ``norm`` is unknown.

    Sources: Vaswani et al., 2017, "Attention Is All You Need", sections 3.1 and 5.4;
    for pre-norm Xiong et al., 2020, "On Layer Normalization in the Transformer
    Architecture", section 3.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        norm: str = "layer",
        bias: bool = True,
        dropout: float = 0.0,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.norm = make_norm(norm, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.norm_first = norm_first

    def read(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Give what the part reads of ``x``."""
        return self.norm(x) if self.norm_first else x

    def add(
        self, x: Float[Tensor, "B T D"], made: Float[Tensor, "B T D"]
    ) -> Float[Tensor, "B T D"]:
        """Join ``x`` and what the part made of it."""
        x = x + self.dropout(made)
        return x if self.norm_first else self.norm(x)

    def forward(
        self, x: Float[Tensor, "B T D"], part: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B T D"]:
        """Run ``part`` beside ``x``, and join them again."""
        return self.add(x, part(self.read(x)))


# --8<-- [end:add-norm]
