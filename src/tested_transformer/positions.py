"""Positional encodings: sinusoids, rotary positions and ALiBi.

Attention itself does not know the order of its keys. Sinusoidal positions are added to
the tokens once. Rotary positions rotate queries and keys in every layer, so that a
score depends only on the distance between two tokens. ALiBi subtracts something from
each score, more for keys that are farther away.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.checks import validate_choice

__all__ = [
    "PAIRINGS",
    "POSITIONS",
    "alibi_bias",
    "alibi_slopes",
    "rotary_table",
    "rotate",
    "sinusoidal_positions",
    "to_halves",
    "to_neighbors",
]

PAIRINGS = ("halves", "neighbors")
# What a model may do about the order of its tokens.
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "none")


# --8<-- [start:sinusoidal]
def sinusoidal_positions(
    num_positions: int,
    d_model: int,
    *,
    base: float = 10_000.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "T D"]:
    """Return sines and cosines of each position, from fast to slow.

    Features ``2i`` and ``2i + 1`` of position ``t`` are the sine and the cosine of
    ``t / base ** (2i / d_model)``.

    Args:
        num_positions: T, how many positions.
        d_model: D, the features of each; even.
        base: About how many times slower the slowest pair turns than the fastest.
        device: Where to make the table.
        dtype: The type of the table, which is computed in double precision.

    Raises:
        ValueError: If ``d_model`` is odd or not positive.

    Source: Vaswani et al., 2017, "Attention Is All You Need", section 3.5.
    """
    positions = torch.arange(num_positions, device=device)
    angles = _angles(positions, d_model, base, "d_model")
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2).to(dtype)


# --8<-- [end:sinusoidal]


# --8<-- [start:rotary]
def rotary_table(
    positions: Int[Tensor, "*batch T"],
    head_dim: int,
    *,
    base: float = 10_000.0,
    rates: Sequence[float] | None = None,
    attention_factor: float = 1.0,
) -> Float[Tensor, "2 *batch T half"]:
    """Return the cosines and the sines by which ``rotate`` turns each position.

    Args:
        positions: The position of each token.
        head_dim: d_k, the features of a query or key; even. Half of it are angles.
        base: How much slower the slowest pair turns than the fastest, about.
        rates: How far each pair turns from one token to the next; computed from
            ``base`` by default.
        attention_factor: Multiply cosines and sines by this.

    Raises:
        ValueError: If ``head_dim`` is odd or not positive, or ``rates`` does not have
            ``head_dim / 2`` numbers.

    Source: Su et al., 2021, "RoFormer", section 3.2.2.
    """
    angles = _angles(positions, head_dim, base, "head_dim", rates)
    # Keep cosines and sines of a position together in memory, so that a table cut to a
    # length is contiguous. torch.export requires that of a length that it leaves open.
    table = torch.stack([angles.cos(), angles.sin()], dim=-2) * attention_factor
    return table.float().movedim(-2, 0)


def rotate(
    x: Float[Tensor, "*batch T d_k"],
    table: Float[Tensor, "2 *table T half"],
    *,
    pairing: str = "halves",
) -> Float[Tensor, "*batch T d_k"]:
    """Turn each pair of features by the angle of its position.

    Args:
        x: Queries or keys of all heads.
        table: The ``rotary_table`` of their positions.
        pairing: Which features are pairs, one of ``PAIRINGS``: feature ``i`` of the
            first half and feature ``i`` of the second, as in GPT-NeoX, or features
            ``2i`` and ``2i + 1``, as in the paper.

    Raises:
        ValueError: If ``pairing`` is not one of ``PAIRINGS``.

    Source: Su et al., 2021, "RoFormer", section 3.4.2.
    """
    validate_choice("pairing", pairing, PAIRINGS)
    cos, sin = table.to(x.dtype)
    if pairing == "halves":
        first, second = x.chunk(2, dim=-1)
    else:
        first, second = x[..., 0::2], x[..., 1::2]
    turned = [first * cos - second * sin, second * cos + first * sin]
    if pairing == "halves":
        return torch.cat(turned, dim=-1)
    return torch.stack(turned, dim=-1).flatten(-2)


# --8<-- [end:rotary]


# --8<-- [start:pairings]
def to_halves(
    rows: Float[Tensor, "rows *rest"], num_heads: int
) -> Float[Tensor, "rows *rest"]:
    """Reorder the rows of a projection from pairs of neighbors to pairs of halves.

    In each head, features 0, 2, 4, ... come first, then features 1, 3, 5, ... If you
    reorder queries and keys alike, no score changes.

    Args:
        rows: Weight or bias of the projection to queries or to keys.
        num_heads: How many heads these rows are for; for a projection to keys, the
            number of heads of keys and values.

    Raises:
        ValueError: If the rows are not ``num_heads`` heads of an even width.
    """
    _validate_rows(rows, num_heads)
    return rows.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def to_neighbors(
    rows: Float[Tensor, "rows *rest"], num_heads: int
) -> Float[Tensor, "rows *rest"]:
    """Reorder rows from pairs of halves to neighbors: the inverse of ``to_halves``.

    Arguments and errors are those of ``to_halves``.
    """
    _validate_rows(rows, num_heads)
    return rows.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


# --8<-- [end:pairings]


# --8<-- [start:alibi]
def alibi_slopes(
    num_heads: int,
    *,
    steepest: float | None = None,
    flattest: float = 1 / 256,
    device: torch.device | str | None = None,
) -> Float[Tensor, "H"]:
    """Return the slope of each head: a geometric sequence from steep to flat.

    A head with a steep slope looks near, a head with a flat one looks far. The
    defaults are the paper's: head ``h`` of ``H``, counted from 1, gets
    ``2 ** (-8 * h / H)``.

    Args:
        num_heads: H, how many heads. A single head gets the flattest slope.
        steepest: The slope of the first head; ``flattest ** (1 / H)`` by default.
        flattest: The slope of the last head.
        device: Where to make the slopes.

    Raises:
        ValueError: If ``num_heads`` or a slope is not positive.

    Source: Press et al., 2022, "Train Short, Test Long", section 3. If the number of
    heads is not a power of two, their code combines two such lists; this does not.
    """
    _validate_slopes(num_heads, steepest, flattest)
    if steepest is None:
        steepest = flattest ** (1 / num_heads)
    way = torch.linspace(1, 0, num_heads, device=device).flip(0)
    return steepest ** (1 - way) * flattest**way


def alibi_bias(
    slopes: Float[Tensor, "H"], num_queries: int, num_keys: int | None = None
) -> Float[Tensor, "1 H T S"]:
    """Return ALiBi's bias: minus the slope, times the steps from query back to key.

    The last query is at the last key, as in ``causal_mask``. Far keys get negligible
    weights. On a CPU, which is slow with numbers that small, ``fused_attention`` leaves
    out the keys whose weight cannot exceed a rounding error, if gradients are computed
    for long sequences.

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


def _angles(
    positions: Tensor,
    width: int,
    base: float,
    name: str,
    rates: Sequence[float] | None = None,
) -> Tensor:
    if width < 1 or width % 2:
        raise ValueError(f"{name}={width} must be positive and even")
    # In double precision, because the angles of far positions leave a float few digits.
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    if rates is None:
        return positions[..., None] * base ** (-pairs / width)
    if len(rates) != len(pairs):
        raise ValueError(f"{len(rates)} rates must be {len(pairs)}: {name}={width}")
    return positions[..., None] * pairs.new_tensor(rates)


def _validate_slopes(num_heads: int, steepest: float | None, flattest: float) -> None:
    for name, value in (
        ("num_heads", num_heads),
        ("steepest", steepest),
        ("flattest", flattest),
    ):
        if value is not None and value <= 0:
            raise ValueError(f"{name}={value} must be positive")


def _validate_rows(rows: Tensor, num_heads: int) -> None:
    if num_heads < 1 or len(rows) % (2 * num_heads):
        raise ValueError(
            f"{len(rows)} rows must be num_heads={num_heads} heads of an even width"
        )
