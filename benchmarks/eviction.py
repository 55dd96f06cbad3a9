"""Measure what a cache that evicts keys forgets, on the recall task.

Models are trained to recall, as in ``benchmarks.recall``, with attention to all keys.
Then each head keeps few keys. A question comes right after the pairs; or eight
questions are read with all keys, then keys are evicted, and one more question follows,
for a key that was asked for before or for another.
"""

import torch
from torch import Tensor

from benchmarks.indexer import PAIRS, TRAINED, reading
from benchmarks.learning import seeded
from benchmarks.recall import NUM_LAYERS, Recall, draw_pairs, note, train_on_pairs
from benchmarks.run import Results, Run
from transformer_book.eviction import RULES, Evicting

__all__ = ["measure"]

COUNTS = (8, 16, 32, 48)
QUARTERS_OF = 16  # how many keys are kept where pairs are told apart by their place
QUESTIONS = 8  # how many come before keys are evicted
AGAIN, OTHER = "asked before", "not asked before"
SETTINGS = [(rule, count) for rule in RULES for count in COUNTS]
SETTINGS.append(("all keys", 2 * PAIRS))


@torch.no_grad()
def answers_right(
    model: Recall, tests: int, before: int, *, again: bool = False
) -> tuple[Tensor, Tensor]:
    """Ask one question about each text.

    Args:
        model: The model.
        tests: How many texts.
        before: How many questions come first, which are not judged.
        again: Ask for a key that was asked for before; otherwise for another.

    Returns:
        1 for each right answer and 0 for others, and the place of the pair.
    """
    keys, values, answers = draw_pairs(tests, PAIRS, seeded(0))
    chosen = torch.full((tests, 1), before)
    if again:
        chosen = torch.randint(before, (tests, 1), generator=seeded(1))
    key, answer = keys.gather(1, PAIRS + chosen), answers.gather(1, chosen)[:, 0]
    keys = torch.cat([keys[:, : PAIRS + before], key], dim=1)
    torch.manual_seed(0)  # for keys kept at random
    guesses = model(keys, values[:, : keys.shape[1]])[:, -1].argmax(dim=-1)
    place = (keys[:, :PAIRS] == key).int().argmax(dim=-1)
    return (guesses == answer).float(), place


def share(right: Tensor) -> float:
    """Return the share of right answers."""
    return round(right.mean().item(), 4)


def measure(run: Run) -> Results:
    """Compare the rules on three models."""
    steps, seeds, tests = (4, (1,), 64) if run.quick else (500, (1, 2, 3), 1024)
    once: dict[str, dict[str, list[float]]] = {}
    later: dict[str, dict[str, dict[str, list[float]]]] = {AGAIN: {}, OTHER: {}}
    quarters: dict[str, list[list[float]]] = {}
    for seed in seeds:
        torch.manual_seed(seed)
        plain = Recall(("softmax",) * NUM_LAYERS)
        train_on_pairs(plain, seed, steps, TRAINED)
        for rule, count in SETTINGS:
            # With room for all keys, every rule keeps them.
            core = {"rule": RULES[0] if rule == "all keys" else rule, "count": count}
            right, place = answers_right(reading(plain, Evicting(**core)), tests, 0)
            note(once, rule, count, share(right))
            if count == QUARTERS_OF:
                parts = [right[place * 4 // PAIRS == part] for part in range(4)]
                quarters.setdefault(rule, []).append([share(part) for part in parts])
            model = reading(plain, Evicting(**core, start=PAIRS + QUESTIONS))
            for name, table in later.items():
                right, _ = answers_right(model, tests, QUESTIONS, again=name == AGAIN)
                note(table, rule, count, share(right))
        print(seed, once, quarters, later, flush=True)
    return {
        "size": {"steps": steps, "pairs": PAIRS, "tests": tests, "before": QUESTIONS},
        "seeds": list(seeds),
        "right": once,
        f"right by quarter with {QUARTERS_OF} keys": quarters,
        "right after questions": later,
    }
