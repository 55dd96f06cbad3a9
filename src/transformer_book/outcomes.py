"""Follow every random decision of a program, to know its distribution exactly."""

from collections.abc import Callable, Hashable

from torch import Tensor

from tested_transformer.decoding import RandomSource

__all__ = ["every_outcome"]


def every_outcome(run: Callable[[RandomSource], Hashable]) -> dict[Hashable, float]:
    """Return the exact probability of each outcome, by trying every random decision.

    Args:
        run: A function that is deterministic apart from its ``RandomSource``. It is
            called once for each sequence of decisions.
    """
    outcomes, ways = dict[Hashable, float](), list[list[int]]([[]])
    while ways:
        rng = _ScriptedSource(ways.pop())
        outcome = run(rng)
        outcomes[outcome] = outcomes.get(outcome, 0.0) + rng.probability
        ways += rng.other_ways
    return outcomes


class _ScriptedSource(RandomSource):
    """Decide as a list says, then always the first way; record the other ways."""

    def __init__(self, way: list[int]) -> None:
        self.way, self.step = way, 0
        self.probability = 1.0
        self.other_ways: list[list[int]] = []

    def accepts(self, probability: float) -> bool:
        probability = min(probability, 1.0)
        return self._decide([1 - probability, probability]) == 1

    def draw(self, probabilities: Tensor) -> int:
        return self._decide(probabilities.tolist())

    def _decide(self, probabilities: list[float]) -> int:
        if self.step == len(self.way):
            first, *others = (i for i, p in enumerate(probabilities) if p > 0)
            self.other_ways += [[*self.way, side] for side in others]
            self.way = [*self.way, first]
        side = self.way[self.step]
        self.step += 1
        self.probability *= probabilities[side]
        return side
