"""Measure what a state forgets: show pairs of key and value, then ask for every key.

A small model of four layers is trained on 4, 8, 16 and 32 pairs in turn, with softmax
attention, with one kind of layer that has a state, or with three of these and one
softmax layer. Then it is tested on fewer and on more pairs than it was trained on.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.learning import Descent, fit, seeded
from benchmarks.run import Results, Run
from tested_transformer import MultiHeadAttention
from tested_transformer.attentions import DeltaAttention, LinearAttention

__all__ = [
    *("BATCH", "D_MODEL", "KINDS", "NUM_HEADS", "NUM_LAYERS", "TRAINED", "Recall"),
    *("draw_pairs", "measure", "note", "share_right", "train_on_pairs"),
]

NUM_KEYS, NUM_VALUES = 64, 16
D_MODEL, NUM_HEADS, NUM_LAYERS = 32, 2, 4
TRAINED = (4, 8, 16, 32)
ASKED = (4, 8, 16, 24, 32, 48, 64)
BATCH = 32

_SIZE = {"d_model": D_MODEL, "num_heads": NUM_HEADS}
_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "softmax": lambda: MultiHeadAttention(bias=False, **_SIZE),
    "linear": lambda: LinearAttention(chunk_size=64, **_SIZE),
    "gated linear": lambda: LinearAttention(gated=True, chunk_size=16, **_SIZE),
    "delta": lambda: DeltaAttention(chunk_size=64, **_SIZE),
    "gated delta": lambda: DeltaAttention(gated=True, chunk_size=64, **_SIZE),
}
# The layers of each kind of model, in order.
KINDS = {name: (name,) * NUM_LAYERS for name in _LAYERS}
KINDS["three delta, one softmax"] = ("delta", "delta", "delta", "softmax")


class Recall(nn.Module):
    """A stack of attention layers with residual sums that answers with a value.

    A token is a pair: the sum of the embeddings of its key and of its value. In a
    question, an extra value marks the missing one.

    Args:
        layers: The name of each layer.
        windows: The window of each layer, if all can have one.
    """

    def __init__(
        self, layers: Sequence[str], windows: Sequence[int | None] = ()
    ) -> None:
        super().__init__()
        self.options = [{"window": window} for window in windows] or [{}] * len(layers)
        self.key = nn.Embedding(NUM_KEYS, D_MODEL)
        self.value = nn.Embedding(NUM_VALUES + 1, D_MODEL)
        self.norms = nn.ModuleList(nn.RMSNorm(D_MODEL) for _ in layers)
        self.layers = nn.ModuleList(_LAYERS[name]() for name in layers)
        self.head = nn.Sequential(nn.RMSNorm(D_MODEL), nn.Linear(D_MODEL, NUM_VALUES))

    def forward(self, keys: Tensor, values: Tensor) -> Tensor:
        """Return the logits of the values at each position."""
        x = self.key(keys) + self.value(values)
        layers = zip(self.norms, self.layers, self.options, strict=True)
        for norm, layer, options in layers:
            x = x + layer(norm(x), causal=True, **options)
        return self.head(x)


def draw_pairs(
    batch: int, pairs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw sequences of pairs, followed by questions for every key in another order.

    Returns:
        Keys and values, (batch, 2 * pairs), and the answers, (batch, pairs).
    """
    keys = torch.rand(batch, NUM_KEYS, generator=generator).argsort(-1)[:, :pairs]
    values = torch.randint(NUM_VALUES, (batch, pairs), generator=generator)
    order = torch.rand(batch, pairs, generator=generator).argsort(-1)
    mark = torch.full_like(values, NUM_VALUES)
    return (
        torch.cat([keys, keys.gather(1, order)], dim=1),
        torch.cat([values, mark], dim=1),
        values.gather(1, order),
    )


def measure(run: Run) -> Results:
    """Train every kind with three seeds, and measure how many answers are right."""
    steps, seeds, tests = (8, (1,), 2) if run.quick else (500, (1, 2, 3), 256)
    right: dict[str, dict[str, list[float]]] = {}
    for name, layers in KINDS.items():
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recall(layers)
            train_on_pairs(model, seed, steps, TRAINED)
            generator = seeded(0)
            for pairs in ASKED:
                share = share_right(model, tests, pairs, generator)
                note(right, name, pairs, share)
            print(name, seed, right[name], flush=True)
    return {
        "size": {
            "keys": NUM_KEYS,
            "values": NUM_VALUES,
            "d_model": D_MODEL,
            "heads": NUM_HEADS,
            "layers": NUM_LAYERS,
            "steps": steps,
            "batch": BATCH,
            "trained on": list(TRAINED),
            "tests": tests,
        },
        "seeds": list(seeds),
        "right": right,
    }


def train_on_pairs(
    model: Recall,
    seed: int,
    steps: int,
    lengths: Sequence[int],
    *,
    rate: float = 5e-3,
    to_loss: Callable[[Tensor], Tensor] = lambda answering: answering,
) -> None:
    """Train a model to recall values, with these numbers of pairs in turn.

    ``to_loss`` may add something to the loss of the answers, or replace it.
    """
    generator = seeded(seed)

    def loss_at(step: int) -> Tensor:
        pairs = lengths[step % len(lengths)]
        keys, values, answers = draw_pairs(BATCH, pairs, generator)
        logits = model(keys, values)[:, pairs:]
        return to_loss(F.cross_entropy(logits.flatten(0, 1), answers.flatten()))

    fit(model, loss_at, Descent(steps, rate, 30, clip=1.0, betas=(0.9, 0.98)))


def note(
    table: dict[str, dict[str, list[float]]], row: str, column: object, number: float
) -> None:
    """Add the number of one more seed to a cell of a table."""
    table.setdefault(row, {}).setdefault(str(column), []).append(number)


@torch.no_grad()
def share_right(
    model: Recall, tests: int, pairs: int, generator: torch.Generator
) -> float:
    """Ask for every key of new sequences, and return the share of right answers."""
    keys, values, answers = draw_pairs(tests, pairs, generator)
    guesses = model(keys, values)[:, pairs:].argmax(dim=-1)
    return round((guesses == answers).float().mean().item(), 4)
