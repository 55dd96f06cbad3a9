"""Sampling: from logits to probabilities to the next token."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import index

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = [
    "Probabilities",
    "RandomSource",
    "Sampling",
    "draw",
    "penalize_repetition",
    "resolve_seed",
    "sampling_probabilities",
    "softmax",
]

# A function from logits, (T, V), to the probabilities to draw from, such as
# ``Sampling(...).probabilities``.
Probabilities = Callable[[Tensor], Tensor]


def softmax(logits: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
    """Return the model's own probabilities, the default to draw from."""
    return logits.softmax(dim=-1)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen from logits.

    The penalty is applied to the logits first, then temperature, top-k, top-p and
    min-p in this order; see ``sampling_probabilities``.

    Args:
        temperature: Divide the logits by this; 0 always takes the most likely token.
        top_k: Draw only from this many of the most likely tokens.
        top_p: Draw only from the smallest set of tokens with this total probability.
        min_p: Draw only from tokens at least this share as likely as the most likely.
        repetition_penalty: Above 1, makes tokens less likely that have occurred before.

    Raises:
        ValueError: If a setting is out of its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        # Each condition says what is valid, so that NaN fails it.
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(
                f"temperature={self.temperature} must be 0 or more, and finite"
            )
        if self.top_k is not None and not isinstance(self.top_k, int):
            raise TypeError(f"top_k={self.top_k!r} must be an int")
        if self.top_k is not None and not self.top_k >= 1:
            raise ValueError(f"top_k={self.top_k} must be at least 1")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p={self.top_p} must be more than 0 and at most 1")
        if self.min_p is not None and not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p={self.min_p} must lie between 0 and 1")
        if not 0.0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"repetition_penalty={self.repetition_penalty} must be more than 0, "
                "and finite"
            )

    def probabilities(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Return the probability with which to draw each token."""
        return sampling_probabilities(
            logits,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
        )


# --8<-- [start:probabilities]
def sampling_probabilities(
    logits: Float[Tensor, "*batch V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Float[Tensor, "*batch V"]:
    """Return the probability with which to draw each token.

    The settings are applied in the order of the arguments. After each, the remaining
    probabilities are renormalized. Of equally likely tokens, the lower id ranks first.

    Args:
        logits: The model's scores of the tokens.
        temperature: Divide the logits by this. Below 1, likely tokens get more likely;
            at 0, the first token with the largest logit gets all the probability.
        top_k: Keep this many of the most likely tokens.
        top_p: Keep the smallest set of most likely tokens with this total probability.
        min_p: Keep tokens that are at least this share as likely as the most likely.

    Raises:
        ValueError: If a setting is out of its range.

    Sources: for top-k Fan et al., 2018, "Hierarchical Neural Story Generation",
    section 5.4; for top-p Holtzman et al., 2020, "The Curious Case of Neural Text
    Degeneration"; for min-p Nguyen et al., 2024, "Turning Up the Heat".
    """
    Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    probabilities = _soften(logits.float(), temperature)
    if top_k is not None or top_p is not None:
        ranked, ids = probabilities.sort(dim=-1, descending=True, stable=True)
        if top_k is not None:
            ranks = torch.arange(ranked.shape[-1], device=ranked.device)
            ranked = _share_out(ranked, ranks < top_k)
        if top_p is not None and top_p < 1.0:  # at 1, rounding could cut off the tail
            ahead = ranked.cumsum(dim=-1).roll(1, dims=-1)
            ahead[..., 0] = 0.0  # the total probability of tokens ranked before each
            ranked = _share_out(ranked, ahead < top_p)
        probabilities = torch.zeros_like(ranked).scatter(-1, ids, ranked)
    if min_p is not None:
        likeliest = probabilities.amax(dim=-1, keepdim=True)
        probabilities = _share_out(probabilities, probabilities >= min_p * likeliest)
    return probabilities


def _soften(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 1.0:
        return logits.softmax(dim=-1)
    if temperature == 0.0:
        first = logits.argmax(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, first, 1.0)
    if temperature < 1e-6:  # shift the largest logit to 0, so no quotient is +inf
        logits = logits - logits.amax(dim=-1, keepdim=True)
        temperature = max(temperature, torch.finfo(logits.dtype).tiny)
    return (logits / temperature).softmax(dim=-1)


def _share_out(probabilities: Tensor, kept: Tensor) -> Tensor:
    left = probabilities * kept
    return left / left.sum(dim=-1, keepdim=True)


# --8<-- [end:probabilities]


# --8<-- [start:penalty]
def penalize_repetition(
    logits: Float[Tensor, "B V"], seen: Bool[Tensor, "B V"], penalty: float
) -> Float[Tensor, "B V"]:
    """Make tokens that have occurred less likely, by dividing or multiplying logits.

    Positive logits are divided by the penalty; negative ones are multiplied by it.

    Args:
        logits: The model's scores of the tokens.
        seen: ``True`` for each token in the prompt or the answer so far.
        penalty: 1 changes nothing; below 1 repetition is favored.

    Raises:
        ValueError: If ``penalty`` is not positive.

    Source: Keskar et al., 2019, "CTRL", section 4.1. The paper always divides, which
    makes tokens with negative logits more likely.
    """
    Sampling(repetition_penalty=penalty)
    punished = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(seen, punished, logits)


# --8<-- [end:penalty]


# --8<-- [start:draw]
def draw(
    probabilities: Float[Tensor, "B V"], generators: list[torch.Generator]
) -> Int[Tensor, "B"]:
    """Draw one token for each row, by an exponential race.

    Each token gets a random waiting time, exponential with its probability as the rate.
    The probability that it arrives first is then its own, and a token with probability
    0 never arrives.

    Args:
        probabilities: The probability of each token; each row sums to one.
        generators: One for each row, so that rows do not affect each other.
    """
    waits = torch.empty_like(probabilities)
    for row, generator in zip(waits.unbind(), generators, strict=True):
        row.exponential_(generator=generator)
    return (probabilities / waits).argmax(dim=-1)


# --8<-- [end:draw]


def resolve_seed(seed: int | None) -> int:
    """Return a seed as Python's integer; by default draw it from PyTorch's generator.

    Raises:
        TypeError: If it is not an integer.
    """
    return int(torch.randint(2**62, ())) if seed is None else index(seed)


class RandomSource:
    """A random number generator for decisions about one token at a time.

    It computes on the CPU, and repeats its decisions for the same seed.

    Args:
        seed: The seed; drawn from PyTorch's global generator by default.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.generator = torch.Generator().manual_seed(resolve_seed(seed))

    def accepts(self, probability: float) -> bool:
        """Return ``True`` with this probability; always if it is 1 or more."""
        uniform = torch.rand((), generator=self.generator, dtype=torch.float64)
        return bool(uniform < probability)

    def draw(self, probabilities: Float[Tensor, "V"]) -> int:
        """Draw one token; the same as ``draw`` with the same seed."""
        return int(draw(probabilities[None].cpu(), [self.generator]))
