"""Rotary positions beyond the trained length: slow the pairs by one of several rules.

On texts longer than those of its training, a rotary model meets distances that it has
never seen. Each rule slows the pairs of a head so that a text ``factor`` times as long
stays within the angles of training. Position interpolation slows all pairs alike;
NTK-aware scaling slows the slow pairs more than the fast ones; YaRN and Llama 3.1's
rule slow only the pairs that made few turns in training. LongRoPE takes a factor for
each pair, found by a search. A rule returns rates, in radians per token.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tested_transformer.checks import validate_sizes
from tested_transformer.positions import rotary_table

__all__ = [
    "SCALINGS",
    "dynamic_factor",
    "linear_rates",
    "llama3_rates",
    "longrope_attention_factor",
    "longrope_rates",
    "ntk_rates",
    "plain_rates",
    "scaled_table",
    "yarn_attention_factor",
    "yarn_rates",
]

SCALINGS = ("linear", "ntk", "yarn")


def plain_rates(head_dim: int, *, base: float = 10_000.0) -> Float[Tensor, "half"]:
    """Return how far each pair turns from one token to the next, from fast to slow.

    Args:
        head_dim: d_k, the width of a query or key; even.
        base: About how many times slower the slowest pair turns than the fastest.

    Raises:
        ValueError: If ``head_dim`` is odd or not positive, or ``base`` is not above 1.

    Source: Su et al., 2021, "RoFormer", section 3.2.2.
    """
    if head_dim < 1 or head_dim % 2:
        raise ValueError(f"head_dim={head_dim} must be positive and even")
    if not 1 < base < math.inf:
        raise ValueError(f"base={base} must be more than 1, and finite")
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64)
    return base ** (-pairs / head_dim)


def linear_rates(
    head_dim: int, *, factor: float, base: float = 10_000.0
) -> Float[Tensor, "half"]:
    """Return the rates of position interpolation, which slows every pair alike.

    Position ``t`` then gets the angles that ``t / factor`` had in training.

    Args:
        head_dim: d_k, the width of a query or key; even.
        factor: How many times as long texts may be; at least 1.
        base: The base that the model was trained with.

    Raises:
        ValueError: If ``factor`` is less than 1, or ``head_dim`` is odd or not
            positive.

    Source: Chen et al., 2023, "Extending Context Window of Large Language Models via
    Positional Interpolation", section 2.3.
    """
    _validate_factor(factor)
    return plain_rates(head_dim, base=base) / factor


def ntk_rates(
    head_dim: int, *, factor: float, base: float = 10_000.0
) -> Float[Tensor, "half"]:
    """Return NTK-aware rates: keep the fastest pair, and slow the slowest fully.

    They are the plain rates of a larger base, chosen so that the slowest pair turns
    ``factor`` times as slowly.

    Args:
        head_dim: d_k, the width of a query or key; even, and at least 4.
        factor: How many times as long texts may be; at least 1.
        base: The base that the model was trained with.

    Raises:
        ValueError: If ``factor`` is less than 1, or ``head_dim`` is 2, odd or not
            positive.

    Source: Peng et al., 2023, "YaRN", section 3.1; first proposed by the user bloc97.
    """
    _validate_factor(factor)
    if head_dim == 2:
        raise ValueError(
            "head_dim=2 must be at least 4: a single pair cannot be both the fastest "
            "and the slowest"
        )
    larger = base * factor ** (head_dim / (head_dim - 2))
    return plain_rates(head_dim, base=larger)


def dynamic_factor(length: int, *, trained_length: int, factor: float = 1.0) -> float:
    """Return the factor for ``ntk_rates`` by which "dynamic NTK" reads a text.

    It is 1 up to the trained length, and then grows with the text.

    Args:
        length: How many tokens the text has.
        trained_length: How many tokens the texts of training had.
        factor: How fast it grows: by ``factor`` for each further trained length.

    Raises:
        ValueError: If a length is not positive, or ``factor`` is less than 1.

    Source: Peng et al., 2023, "YaRN", on "Dynamic NTK", with ``factor=1``;
    ``transformers`` allows larger ones.
    """
    validate_sizes(length=length, trained_length=trained_length)
    _validate_factor(factor)
    return factor * max(length, trained_length) / trained_length - (factor - 1)


def yarn_rates(
    head_dim: int,
    *,
    factor: float,
    trained_length: int,
    base: float = 10_000.0,
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
) -> Float[Tensor, "half"]:
    """Return YaRN's rates: keep fast pairs, slow the slow ones, with a ramp between.

    A pair is fast if it makes at least ``fast`` turns within the trained length, and
    slow if it makes fewer than ``slow``. As in the authors' code, the ramp is linear in
    the index of the pair, between whole indices; in the paper it is linear in the
    number of turns.

    Args:
        head_dim: d_k, the width of a query or key; even.
        factor: How many times as long texts may be; at least 1.
        trained_length: How many tokens the texts of training had.
        base: The base that the model was trained with.
        fast: Pairs that turn this often or more are kept.
        slow: Pairs that turn no more often than this are slowed fully.
        truncate: Let the ramp begin and end at whole indices; gpt-oss does not.

    Raises:
        ValueError: If ``factor`` is less than 1, ``trained_length`` is not positive,
            ``slow`` is not between 0 and ``fast``, or ``head_dim`` is odd or not
            positive.

    Source: Peng et al., 2023, "YaRN", section 3.2.
    """
    _validate_factor(factor)
    _validate_ramp(trained_length, fast, slow)
    plain = plain_rates(head_dim, base=base)
    slowed = _ramp(head_dim, base, trained_length, fast, slow, truncate)
    return plain * (1 - slowed) + plain / factor * slowed


def yarn_attention_factor(factor: float) -> float:
    """Return YaRN's factor for queries and keys; scores get multiplied by its square.

    With more keys the weights get flatter; this factor sharpens them again.

    Raises:
        ValueError: If ``factor`` is less than 1.

    Source: Peng et al., 2023, "YaRN", on attention scaling.
    """
    _validate_factor(factor)
    return 0.1 * math.log(factor) + 1


def llama3_rates(
    head_dim: int,
    *,
    factor: float,
    trained_length: int,
    base: float = 500_000.0,
    fast: float = 4.0,
    slow: float = 1.0,
) -> Float[Tensor, "half"]:
    """Return the rates of Llama 3.1: YaRN's idea, with a ramp over the turns.

    The defaults are Llama 3.1's, with ``factor=8`` and ``trained_length=8192``. No
    attention factor belongs to it.

    Args:
        head_dim: d_k, the features of a query or key; even.
        factor: How many times as long texts may be; at least 1.
        trained_length: How many tokens the texts of training had.
        base: The base that the model was trained with.
        fast: Pairs that turn this often or more within that length are kept.
        slow: Pairs that turn no more often than this are slowed fully.

    Raises:
        ValueError: If ``factor`` is less than 1, ``trained_length`` not positive,
            ``slow`` not between 0 and ``fast``, or ``head_dim`` odd or not positive.

    Source: ``apply_scaling`` in Meta's code of Llama 3.1, 2024.
    """
    _validate_factor(factor)
    _validate_ramp(trained_length, fast, slow)
    plain = plain_rates(head_dim, base=base)
    turns = plain * trained_length / (2 * math.pi)
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    return plain * kept + plain / factor * (1 - kept)


def longrope_rates(
    head_dim: int, *, factors: Sequence[float], base: float = 10_000.0
) -> Float[Tensor, "half"]:
    """Return the rates of LongRoPE: each pair is slowed by a factor of its own.

    A search finds the factors. A model's configuration has two lists of them, for texts
    up to the trained length (``short_factor``) and for longer ones (``long_factor``).

    Args:
        head_dim: d_k, the features of a query or key; even.
        factors: How many times as slowly each pair turns.
        base: The base that the model was trained with.

    Raises:
        ValueError: If there are more or fewer factors than pairs, one is not positive,
            or ``head_dim`` is odd or not positive.

    Source: Ding et al., 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million
    Tokens".
    """
    plain = plain_rates(head_dim, base=base)
    if len(factors) != len(plain):
        raise ValueError(
            f"factors has {len(factors)} numbers; it must have {len(plain)}, one for "
            "each pair of features"
        )
    if not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"factors={list(factors)} must be positive, and finite")
    return plain / torch.tensor(factors, dtype=plain.dtype)


def longrope_attention_factor(factor: float, *, trained_length: int) -> float:
    """Return what LongRoPE multiplies queries and keys by.

    Raises:
        ValueError: If ``factor`` is less than 1, or ``trained_length`` than 2.

    Source: ``transformers``, where models of the Phi-3 family have it.
    """
    _validate_factor(factor)
    if trained_length < 2:
        raise ValueError(f"trained_length={trained_length} must be at least 2")
    return math.sqrt(1 + math.log(factor) / math.log(trained_length))


def scaled_table(
    positions: Int[Tensor, "*batch T"],
    rates: Float[Tensor, "half"],
    *,
    attention_factor: float = 1.0,
) -> Float[Tensor, "2 *batch T half"]:
    """Return the cosines and sines by which ``rotate`` turns each position.

    With ``plain_rates`` it is ``rotary_table``.

    Args:
        positions: The position of each token.
        rates: How far each pair turns from one token to the next.
        attention_factor: Multiply cosines and sines by this.
    """
    return rotary_table(
        positions,
        2 * len(rates),
        rates=[*map(float, rates)],
        attention_factor=attention_factor,
    )


# --8<-- [start:ramp]
def _ramp(
    head_dim: int,
    base: float,
    trained_length: int,
    fast: float,
    slow: float,
    truncate: bool,
) -> Float[Tensor, "half"]:
    """Return how much YaRN slows each pair, from 0 (not at all) to 1 (fully)."""

    def pair_that_turns(times: float) -> float:
        # The index i, perhaps not whole, of the pair that makes this many turns: for it
        # base ** (-2i / head_dim) * trained_length equals 2 * pi * times.
        rate = times * 2 * math.pi / trained_length
        return -head_dim * math.log(rate) / (2 * math.log(base))

    first, last = pair_that_turns(fast), pair_that_turns(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    return ((pairs - first) / (last - first or 0.001)).clamp(0, 1)


# --8<-- [end:ramp]


def _validate_factor(factor: float) -> None:
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor={factor} must be at least 1, and finite")


def _validate_ramp(trained_length: int, fast: float, slow: float) -> None:
    validate_sizes(trained_length=trained_length)
    if not 0 < slow < fast:
        raise ValueError(f"slow={slow} must lie between 0 and fast={fast}")
