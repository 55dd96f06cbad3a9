"""Weigh what a page asks for when it is first opened, as a static host sends it."""

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["DRAWN", "PLAIN", "Budget", "budget_of", "too_much", "weight"]

# What is compressed already is sent as it is.
_PACKED = (".woff2", ".png")


@dataclass(frozen=True)
class Budget:
    """What a page may ask for: so many KiB, in so many requests."""

    kind: str
    kib: int
    requests: int


DRAWN = Budget("with formulas, diagrams or figures", 220, 22)
PLAIN = Budget("without formulas, diagrams or figures", 75, 12)


def budget_of(page: str) -> Budget:
    """Give the budget that a page is under.

    Args:
        page: Its HTML.
    """
    drawn = ('class="arithmatex"', 'class="diagram"', 'class="figure"')
    return DRAWN if any(mark in page for mark in drawn) else PLAIN


def weight(site: Path, asked: Iterable[str]) -> dict[str, int]:
    """Give the bytes of each file that was asked for, by its path in the site."""
    files = [site / path.strip("/") for path in asked]
    found = [file / "index.html" if file.is_dir() else file for file in files]
    return {str(file.relative_to(site)): _bytes(file) for file in found}


def too_much(weights: dict[str, int], budget: Budget) -> list[str]:
    """Say what goes beyond a budget, and what is heaviest."""
    problems: list[str] = []
    total = sum(weights.values())
    if len(weights) > budget.requests:
        problems.append(
            f"{len(weights)} requests, of {budget.requests} for a page {budget.kind}: "
            + ", ".join(sorted(weights))
        )
    if total > budget.kib * 1024:
        heaviest = sorted(weights, key=lambda name: weights[name], reverse=True)[:4]
        problems.append(
            f"{total / 1024:.1f} KiB, of {budget.kib} for a page {budget.kind}: "
            + ", ".join(f"{name} {weights[name] / 1024:.1f}" for name in heaviest)
        )
    return problems


@cache
def _bytes(file: Path) -> int:
    content = file.read_bytes()
    # Level 6 is what servers are set to.
    return len(content if file.suffix in _PACKED else gzip.compress(content, 6))
