"""Names as tokens, how a model learns them, and how it writes new ones."""

import math
import random
from collections.abc import Sequence

from tested_transformer.book.microgpt.model import MicroGPT, softmax
from tested_transformer.book.microgpt.scalar import Vector

__all__ = ["Adam", "Alphabet", "train", "write"]


# --8<-- [start:adam]
class Adam:
    """Step against the gradients, each weight at a pace of its own.

    Source: Kingma and Ba, 2015, "Adam: A Method for Stochastic Optimization",
    algorithm 1.
    """

    def __init__(self, parameters: Vector, beta1: float = 0.9, beta2: float = 0.95):
        self.parameters, self.beta1, self.beta2, self.steps = (
            parameters,
            beta1,
            beta2,
            0,
        )
        self.means, self.squares = [0.0] * len(parameters), [0.0] * len(parameters)

    def step(self, learning_rate: float) -> None:
        """Move every weight, and set its gradient back to zero."""
        self.steps += 1
        unbias1, unbias2 = 1 - self.beta1**self.steps, 1 - self.beta2**self.steps
        for i, weight in enumerate(self.parameters):
            self.means[i] += (1 - self.beta1) * (weight.grad - self.means[i])
            self.squares[i] += (1 - self.beta2) * (weight.grad**2 - self.squares[i])
            root = math.sqrt(self.squares[i] / unbias2) + 1e-8
            weight.value -= learning_rate * self.means[i] / unbias1 / root
            weight.grad = 0.0


# --8<-- [end:adam]


# --8<-- [start:alphabet]
class Alphabet:
    """The letters of some names are tokens 1, 2, ...; 0 is what ends a name."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names or "" in names:
            raise ValueError(f"names must be there, and none empty; they are {names}")
        self.letters = "".join(sorted(set("".join(names))))
        self.vocab_size = len(self.letters) + 1

    def encode(self, name: str) -> list[int]:
        """Return the tokens of a name between two zeros."""
        unknown = set(name) - set(self.letters)
        if unknown:
            raise ValueError(f"{name!r} has letters that are not in {self.letters!r}")
        return [0, *(self.letters.index(letter) + 1 for letter in name), 0]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the letters of tokens, without the zeros."""
        return "".join(self.letters[token - 1] for token in tokens if token != 0)


# --8<-- [end:alphabet]


# --8<-- [start:train]
def train(
    model: MicroGPT,
    sequences: Sequence[Sequence[int]],
    *,
    steps: int,
    batch_size: int = 4,
    learning_rate: float = 0.02,
    seed: int = 0,
) -> list[float]:
    """Train on sequences drawn by chance, ever more slowly; return the losses."""
    optimizer, draw = Adam(model.parameters()), random.Random(seed).choices
    losses: list[float] = []
    for step in range(steps):
        losses.append(0.0)
        for tokens in draw(sequences, k=batch_size):
            loss = model.loss(tokens) * (1 / batch_size)
            loss.backward()  # now, so that only one sequence is in memory
            losses[-1] += loss.value
        optimizer.step(learning_rate * (1 - step / steps))
    return losses


def write(model: MicroGPT, draw: random.Random) -> list[int]:
    """Let a model read what it writes, from a 0 to the next or until it is full."""
    past, tokens = model.new_past(), [0]
    while len(tokens) <= model.max_seq_len and (len(tokens) == 1 or tokens[-1] != 0):
        chances = [weight.value for weight in softmax(model.read(tokens[-1], past))]
        tokens += draw.choices(range(len(chances)), chances)
    return tokens


# --8<-- [end:train]
