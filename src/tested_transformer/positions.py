"""Where a token stands: positions added to it, or turned into its queries and keys.

Attention itself does not know the order of its keys. Sinusoidal positions are added
to the tokens once; rotary positions turn queries and keys in every layer, so that a
score depends on the distance between two tokens alone.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["rotary_table", "rotate", "sinusoidal_positions"]


# --8<-- [start:sinusoidal]
def sinusoidal_positions(
    num_positions: int, d_model: int, *, base: float = 10_000.0
) -> Float[Tensor, "T D"]:
    """Give each position a fan of sines and cosines, from fast to slow.

    Features ``2i`` and ``2i + 1`` of position ``t`` are the sine and the cosine of
    ``t / base ** (2i / d_model)``.

    Args:
        num_positions: T, how many positions.
        d_model: D, the features of each; even.
        base: How much slower the slowest pair turns than the fastest, about.

    Raises:
        ValueError: If ``d_model`` is odd or not positive.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    angles = _angles(torch.arange(num_positions), d_model, base, "d_model")
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).float()


# --8<-- [end:sinusoidal]


# --8<-- [start:rotary]
def rotary_table(
    positions: Int[Tensor, "*batch T"], head_dim: int, *, base: float = 10_000.0
) -> Float[Tensor, "2 *batch T half"]:
    """Give the cosines and the sines by which ``rotate`` turns each position.

    Args:
        positions: The position of each token.
        head_dim: d_k, the features of a query or key; even. Half of it are angles.
        base: How much slower the slowest pair turns than the fastest, about.

    Raises:
        ValueError: If ``head_dim`` is odd or not positive.

    Source: Su et al., 2021, "RoFormer", section 3.2.2.
    """
    angles = _angles(positions, head_dim, base, "head_dim")
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(
    x: Float[Tensor, "*batch T d_k"], table: Float[Tensor, "2 *table T half"]
) -> Float[Tensor, "*batch T d_k"]:
    """Turn each pair of features by the angle of its position.

    Feature ``i`` of the first half is paired with feature ``i`` of the second half.

    Args:
        x: Queries or keys of all heads.
        table: What ``rotary_table`` gave for their positions.

    Source: Su et al., 2021, "RoFormer", section 3.4.2.
    """
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat(turned, dim=-1)


# --8<-- [end:rotary]


def _angles(positions: Tensor, width: int, base: float, name: str) -> Tensor:
    if width < 1 or width % 2:
        raise ValueError(f"{name}={width} must be positive and even")
    # In double precision: far positions times fast angles leave a float few digits.
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions[..., None] * base ** (-pairs / width)
