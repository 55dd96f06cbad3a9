"""Measure what recall loses if layers have windows, with layers without between them.

The models are those of ``benchmarks.recall`` with softmax attention, and trained alike.
With 8 pairs, each question lies within a window of its pair; with 64, most do not.
"""

import torch

from benchmarks.learning import seeded
from benchmarks.recall import TRAINED, Recall, note, share_right, train_on_pairs
from benchmarks.run import Results, Run

__all__ = ["measure"]

WINDOW = 16
PATTERNS: dict[str, tuple[int | None, ...]] = {
    "4 global": (None,) * 4,
    "local, global in turns": (WINDOW, None) * 2,
    "3 local, 1 global": (*(WINDOW,) * 3, None),
    "1 global, 3 local": (None, *(WINDOW,) * 3),
    "4 local": (WINDOW,) * 4,
    "1 global alone": (None,),
}
LONGER = "4 local, four times the steps"
ASKED = (8, 16, 32, 64)


def measure(run: Run) -> Results:
    """Train each pattern with three seeds, and measure how many answers are right."""
    steps, seeds, tests = (8, (1,), 2) if run.quick else (500, (1, 2, 3), 256)
    right: dict[str, dict[str, list[float]]] = {}
    for name, windows in {**PATTERNS, LONGER: PATTERNS["4 local"]}.items():
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recall(["softmax"] * len(windows), windows)
            train_on_pairs(model, seed, 4 * steps if name == LONGER else steps, TRAINED)
            for pairs in ASKED:
                note(right, name, pairs, share_right(model, tests, pairs, seeded(0)))
            print(name, seed, right[name], flush=True)
    size = {"window": WINDOW, "steps": steps, "trained on": list(TRAINED)}
    return {"size": size | {"tests": tests}, "seeds": list(seeds), "right": right}
