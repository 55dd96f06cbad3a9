"""Measure what recall loses if layers have windows, with layers without between them.

The models are those of ``benchmarks.recall`` with softmax attention, and trained alike.
With 8 pairs, each question lies within a window of its pair; with 64, most do not.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.learning import seeded
from benchmarks.recall import TRAINED, Recall, share_right, train_on_pairs
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


class Windowed(Recall):
    """The model of the recall task, whose layers have windows.

    Args:
        windows: The window of each layer; ``None`` for a layer that reads all.
    """

    def __init__(self, windows: Sequence[int | None]) -> None:
        super().__init__(["softmax"] * len(windows))
        self.windows = windows

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        """Return the logits of the values at each position."""
        x = self.key(keys) + self.value(values)
        layers = zip(self.norms, self.layers, self.windows, strict=True)
        for norm, layer, window in layers:
            x = x + layer(norm(x), causal=True, window=window)
        return self.head(x)


def measure(run: Run) -> Results:
    """Train each pattern with three seeds, and measure how many answers are right."""
    steps, seeds, tests = (8, (1,), 2) if run.quick else (500, (1, 2, 3), 256)
    right: dict[str, dict[str, list[float]]] = {}
    for name, windows in {**PATTERNS, LONGER: PATTERNS["4 local"]}.items():
        right[name] = {str(pairs): [] for pairs in ASKED}
        for seed in seeds:
            torch.manual_seed(seed)
            model = Windowed(windows)
            train_on_pairs(model, seed, 4 * steps if name == LONGER else steps, TRAINED)
            for pairs in ASKED:
                share = share_right(model, tests, pairs, seeded(0))
                right[name][str(pairs)].append(share)
            print(name, seed, {p: r[-1] for p, r in right[name].items()}, flush=True)
    size = {"window": WINDOW, "steps": steps, "trained on": list(TRAINED)}
    return {"size": size | {"tests": tests}, "seeds": list(seeds), "right": right}
