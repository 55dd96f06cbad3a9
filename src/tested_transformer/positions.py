"""Where a token stands: added to it, turned into queries and keys, or into scores.

Attention itself does not know the order of its keys. Sinusoidal positions are added
to the tokens once. Rotary positions turn queries and keys in every layer, so that a
score depends on the distance between two tokens alone. ALiBi takes something off each
score, the more the farther away the key is.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = [
    "alibi_bias",
    "alibi_slopes",
    "rotary_table",
    "rotate",
    "sinusoidal_positions",
]


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


# --8<-- [start:alibi]
def alibi_slopes(
    num_heads: int, *, steepest: float = 0.5, flattest: float = 1 / 256
) -> Float[Tensor, "H"]:
    """Give each head its slope, from steep to flat by equal factors.

    A head with a steep slope sees what is near, a head with a flat one sees far. The
    paper's slopes for eight heads are the default.

    Args:
        num_heads: H, how many heads. A single head gets the flattest slope.
        steepest: The slope of the first head.
        flattest: The slope of the last.

    Raises:
        ValueError: If ``num_heads`` or a slope is not positive.

    Source: Press et al., 2022, "Train Short, Test Long", section 3.
    """
    for name, value in (
        ("num_heads", num_heads),
        ("steepest", steepest),
        ("flattest", flattest),
    ):
        if value <= 0:
            raise ValueError(f"{name}={value} must be positive")
    way = torch.linspace(1, 0, num_heads).flip(0)
    return steepest ** (1 - way) * flattest**way


def alibi_bias(
    slopes: Float[Tensor, "H"], num_queries: int, num_keys: int | None = None
) -> Float[Tensor, "1 H T S"]:
    """Take its slope off a score for each step from the query back to the key.

    The last query stands at the last key, as in ``causal_mask``.

    Args:
        slopes: The slope of each head.
        num_queries: T, the number of query positions.
        num_keys: S, the number of key positions; as many as queries by default.

    Source: Press et al., 2022, "Train Short, Test Long", section 3.
    """
    num_keys = num_queries if num_keys is None else num_keys
    keys = torch.arange(num_keys, device=slopes.device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=slopes.device)
    steps = keys - queries[:, None]
    return steps * slopes[:, None, None][None]


# --8<-- [end:alibi]


def _angles(positions: Tensor, width: int, base: float, name: str) -> Tensor:
    if width < 1 or width % 2:
        raise ValueError(f"{name}={width} must be positive and even")
    # In double precision: far positions times fast angles leave a float few digits.
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    return positions[..., None] * base ** (-pairs / width)
