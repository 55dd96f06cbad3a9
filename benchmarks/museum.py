"""Measure what the museum's bugs do to the loss of a small GPT."""

from collections.abc import Callable

import torch
from torch import Tensor

from attention_check import EXHIBITS, Steps
from benchmarks.run import Results, Run
from tested_transformer.data import split
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import (
    Recipe,
    evaluate,
    honest_loss,
    next_token_loss,
    train,
)
from transformer_book.museum import with_steps

__all__ = ["COMPARED", "largest_leak", "measure", "throw_dice", "with_dice"]

# The exhibits whose losses on Shakespeare had been measured elsewhere before.
COMPARED = (
    *("right", "mask-after-softmax", "softmax-over-queries", "inverted-mask"),
    *("one-too-far", "scores-times-mask", "merge-without-transpose"),
    *("split-without-transpose", "minus-five", "only-while-training", "no-scale"),
    *("scaled-by-width", "scale-upside-down", "without-itself", "softmax-twice"),
    "no-output-projection",
)
SEEDS = (0, 1, 2)
SIZES = {"max_seq_len": 48, "d_model": 64, "num_heads": 4, "num_layers": 2}


def measure(run: Run) -> Results:
    """Train with every exhibit on dice, and with some on a text, with three seeds."""
    text = split(run.tokens())
    on_dice, on_text = (5, 5) if run.quick else (200, 300)
    names = COMPARED[:2] if run.quick else COMPARED
    dice = {
        name: [with_dice(name, steps=on_dice, seed=seed) for seed in SEEDS]
        for name in ("right", *EXHIBITS)
    }
    losses = {
        name: [with_text(name, *text, steps=on_text, seed=seed) for seed in SEEDS]
        for name in names
    }
    return {
        "seeds": SEEDS,
        "dice": dice,
        "text": {"steps": on_text, "sizes": SIZES, "losses": losses},
    }


def throw_dice(count: int) -> Tensor:
    """Return eight throws of a die, the same eight again, and the first once more."""
    throws = torch.randint(6, (count, 8))
    return torch.cat([throws, throws, throws[:, :1]], dim=1)


def with_dice(name: str, *, steps: int, seed: int = 0) -> dict:
    """Train with one exhibit on dice; return its losses, and how much it leaks.

    The losses are on held-out texts: in one pass, honest, and in one pass with the bug
    repaired. The training losses are means over a twentieth of the steps each.
    """
    torch.manual_seed(seed)
    lessons, fresh = throw_dice(steps * 32).split(32), throw_dice(256)
    sizes = {"max_seq_len": 16, "d_model": 32, "num_heads": 4, "num_layers": 1}
    model = _model(name, vocab_size=6, **sizes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for batch in lessons:
        optimizer.zero_grad()
        loss = next_token_loss(model(batch[:, :-1]), batch[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    def usual(model: GPT) -> float:
        return next_token_loss(model(fresh[:, :-1]), fresh[:, 1:]).item()

    model.eval()
    with torch.no_grad():
        guesses = [model(fresh[:, :n])[:, -1] for n in range(1, fresh.shape[1])]
        honest = next_token_loss(torch.stack(guesses, dim=1), fresh[:, 1:]).item()
        part = max(1, steps // 20)
        parts = [losses[start : start + part] for start in range(0, steps, part)]
        return {
            "training": [round(sum(part) / len(part), 3) for part in parts],
            "validation": round(usual(model), 3),
            "honest": round(honest, 3),
            "repaired": round(usual(with_steps(model, Steps())), 3),
            "leak": round(largest_leak(model, fresh[:8, :-1]), 4),
        }


def with_text(
    name: str, data: Tensor, validation: Tensor, *, steps: int, seed: int
) -> dict:
    """Train with one exhibit on a text.

    The validation loss is that of 20,000 tokens, in windows as in training. The honest
    loss is that of every position of 32 windows, each from its prefix alone.
    """
    torch.manual_seed(seed)
    model = _model(name, vocab_size=int(data.max()) + 1, **SIZES)
    rate = {"lr": 6e-3, "warmup": min(100, steps // 2)}
    train(model, data, Recipe(steps=steps, precision="fp32", **rate))
    loss = honest_loss(model, validation, num_windows=32, num_positions=46)
    return {
        "validation": round(evaluate(model, validation[:20_001]), 3),
        "honest": round(loss.prefix, 3),
        "leak": round(largest_leak(model.eval(), validation[:192].view(4, 48)), 4),
    }


def _model(name: str, **settings: int) -> GPT:
    """Return a GPT with an exhibit in it, or the right one."""
    exhibit = EXHIBITS.get(name)
    model = GPT(GPTConfig(**settings, **(exhibit.settings if exhibit else {})))
    return with_steps(model, exhibit.steps if exhibit else Steps())


def largest_leak(model: Callable[[Tensor], Tensor], tokens: Tensor) -> float:
    """Return how much, at most, a token changes an earlier token's probability."""
    largest = 0.0

    def probabilities(tokens: Tensor) -> Tensor:
        torch.manual_seed(0)  # the same dropout each time, if there is any
        return model(tokens).softmax(dim=-1)

    with torch.no_grad():
        before = probabilities(tokens)
        for token in range(1, tokens.shape[1], 2):
            changed = tokens.clone()
            changed[:, token] = (changed[:, token] + 1) % 6
            moved = (probabilities(changed) - before)[:, :token].abs().max().item()
            largest = max(largest, moved)
    return largest
