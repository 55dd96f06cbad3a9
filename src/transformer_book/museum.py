"""The kill matrix: which check catches which exhibit."""

from collections.abc import Iterable, Mapping

import torch

from tested_transformer.checking.calling import make_subject
from tested_transformer.checking.checker import verdicts_on
from tested_transformer.checking.checks import CHECKS
from tested_transformer.checking.exhibits.exhibit import Exhibit
from tested_transformer.checking.exhibits.layer import ExchangeableAttention, Steps

__all__ = ["alone", "exhibit_layer", "kill_matrix", "redundant"]


def exhibit_layer(steps: Steps) -> ExchangeableAttention:
    """Return a small layer made of these steps, with grouped heads and dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = ExchangeableAttention(
            d_model=20, num_heads=4, num_kv_heads=2, dropout=0.1, steps=steps
        )
    for each in layer.parameters():
        # Larger than usual, so that scores are not all near 0.
        each.data.mul_(3)
    return layer


# --8<-- [start:matrix]
def kill_matrix(exhibits: Iterable[Exhibit]) -> dict[str, dict[str, bool]]:
    """Return for each exhibit which checks catch it."""
    caught: dict[str, dict[str, bool]] = {}
    for exhibit in exhibits:
        verdicts = verdicts_on(make_subject(exhibit_layer(exhibit.steps)))
        caught[exhibit.name] = {each.check: each.passed is False for each in verdicts}
    return caught


# --8<-- [end:matrix]


# --8<-- [start:alone]
def alone(matrix: Mapping[str, Mapping[str, bool]]) -> dict[str, list[str]]:
    """Return for each check the exhibits that no other check catches."""
    found: dict[str, list[str]] = {name: [] for name in CHECKS}
    for exhibit, row in matrix.items():
        catching = [name for name, caught in row.items() if caught]
        if len(catching) == 1:
            found[catching[0]].append(exhibit)
    return found


def redundant(matrix: Mapping[str, Mapping[str, bool]]) -> list[tuple[str, str]]:
    """Return pairs of checks in which the second catches everything the first does."""
    sets = {
        name: {exhibit for exhibit, row in matrix.items() if row[name]}
        for name in CHECKS
    }
    return [
        (one, other)
        for one in sets
        for other in sets
        if one != other and sets[one] <= sets[other]
    ]


# --8<-- [end:alone]
