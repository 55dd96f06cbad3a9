"""A small random language: rules with weights, and what they say on average.

A grammar whose rules never lead back to themselves can be summed up exactly: how many
nats of surprise a derivation holds, and how long it is. If every text has one
derivation, the first divided by the second is the entropy of the language, which no
honest model of it can beat.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple

__all__ = ["Grammar", "Step"]


class Step(NamedTuple):
    """One step of a derivation: a symbol, and the parts that a rule made of it."""

    symbol: str
    parts: tuple[str, ...]


class _Rule(NamedTuple):
    parts: tuple[str, ...]
    weight: int


# --8<-- [start:grammar]
class Grammar:
    """Rules that rewrite symbols at random, until only words are left.

    Args:
        rules: For each symbol what it may become, as ``"2 the noun | 1 name"``: each
            alternative has a whole-number weight and some parts. A part that has
            rules of its own is a symbol, any other is a word.

    Raises:
        ValueError: If a rule has no weight or no parts, or a symbol can lead back to
            itself.

    Source: Grenander, 1967, "Syntax-Controlled Probabilities": the entropy of a
    derivation from the entropies of the choices that it is made of.
    """

    def __init__(self, rules: Mapping[str, str]) -> None:
        self.rules = {symbol: _parse(symbol, text) for symbol, text in rules.items()}
        # Each alternative stands in its table as often as it weighs, so that one
        # draw of a whole number picks it, alike on every machine.
        self._tables = {
            symbol: [
                Step(symbol, rule.parts) for rule in rules for _ in range(rule.weight)
            ]
            for symbol, rules in self.rules.items()
        }
        self._surprisals = {
            step: -math.log(table.count(step) / len(table))
            for table in self._tables.values()
            for step in table
        }
        self._check_that_it_ends()

    def derive(self, symbol: str, random: Random) -> list[Step]:
        """Rewrite at random, always the leftmost symbol, until only words are left.

        Nothing is drawn but ``random.random()``, whose numbers are the same for a
        seed in every version of Python.
        """
        steps: list[Step] = []
        waiting = [symbol]
        while waiting:
            leftmost = waiting.pop()
            if leftmost in self._tables:
                table = self._tables[leftmost]
                step = table[int(random.random() * len(table))]
                steps.append(step)
                waiting.extend(reversed(step.parts))
        return steps

    def surprisal(self, steps: Iterable[Step]) -> float:
        """Return minus the log probability of a derivation, in nats."""
        return sum([self._surprisals[step] for step in steps])

    # --8<-- [start:entropy]
    def entropy(self, symbol: str) -> float:
        """Return the entropy of what ``symbol`` derives, in nats: exact, not sampled.

        It is the entropy of the texts only if each text has one derivation.
        """

        def surprise(rule: _Rule, total: int) -> float:
            return -math.log(rule.weight / total)

        return self._expected(symbol, surprise, lambda word: 0.0)

    def length(self, symbol: str, width: Callable[[str], int] = len) -> float:
        """Return how long what ``symbol`` derives is on average.

        Args:
            symbol: Where to begin.
            width: How long a word is; its number of characters by default.
        """
        return self._expected(symbol, lambda rule, total: 0.0, width)

    def _expected(
        self,
        symbol: str,
        of_rule: Callable[[_Rule, int], float],
        of_word: Callable[[str], float],
    ) -> float:
        known: dict[str, float] = {}

        def value(part: str) -> float:
            if part not in self.rules:
                return float(of_word(part))
            if part not in known:
                rules = self.rules[part]
                total = sum(rule.weight for rule in rules)
                known[part] = sum(
                    rule.weight
                    / total
                    * (of_rule(rule, total) + sum(map(value, rule.parts)))
                    for rule in rules
                )
            return known[part]

        return value(symbol)

    # --8<-- [end:entropy]

    def _check_that_it_ends(self) -> None:
        done: set[str] = set()

        def visit(symbol: str, above: tuple[str, ...]) -> None:
            if symbol in above:
                cycle = " > ".join([*above[above.index(symbol) :], symbol])
                raise ValueError(f"the rules must end, and these go round: {cycle}")
            if symbol in self.rules and symbol not in done:
                for rule in self.rules[symbol]:
                    for part in rule.parts:
                        visit(part, (*above, symbol))
                done.add(symbol)

        for symbol in self.rules:
            visit(symbol, ())


# --8<-- [end:grammar]


def _parse(symbol: str, text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    for alternative in text.split("|"):
        weight, *parts = alternative.split() or [""]
        if not (weight.isdecimal() and int(weight) and parts):
            raise ValueError(
                f"a rule is a weight and its parts, as in '2 the noun'; "
                f"{symbol!r} has {alternative.strip()!r}"
            )
        rules.append(_Rule(tuple(parts), int(weight)))
    if len({rule.parts for rule in rules}) < len(rules):
        raise ValueError(f"{symbol!r} has the same parts twice: add up their weights")
    return rules
