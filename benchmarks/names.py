"""Measure when the book's GPT learns that a story has two names, and if it overfits.

It reads one million characters some 46 times. (Those that ship read five million.)
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from benchmarks.parts import RECIPE, SIZE
from benchmarks.run import Results, Run
from tested_transformer.data import FEW_NAMES, WordTokenizer, load_corpus, split
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.layers import evaluating
from tested_transformer.training import Progress, Recipe, evaluate, train
from transformer_book.our_gpt import held_out_stories

__all__ = ["measure", "name_share"]


def measure(run: Run, seeds: Sequence[int] = (1, 2, 3)) -> Results:
    """Train from some seeds, and look at the model along the way.

    Args:
        run: What the command line asks.
        seeds: The seeds of weights and batches.
    """
    steps, every, length = (2, 1, 20_000) if run.quick else (2500, 125, 1_000_000)
    seeds = seeds[:1] if run.quick else seeds
    text = load_corpus("stories", num_characters=length).text
    words = WordTokenizer.from_text(text)
    tokens = split(torch.tensor(words.encode(text)))[0]
    stories = held_out_stories(10_000 if run.quick else 60_000)
    held_out = torch.tensor(words.encode(stories.text))
    runs: list[dict[str, Any]] = []
    for seed in seeds:
        recipe = Recipe.fast(
            **RECIPE | {"steps": steps, "batch_size": 64, "seed": seed}
        )
        runs.append(_trained(recipe, tokens, held_out, words, every))
        print(seed, runs[-1], flush=True)
    return {
        "steps": [*range(every, steps + 1, every)],
        "passes": round(steps * 64 * SIZE["max_seq_len"] / len(tokens), 1),
        "bound": round(stories.surprisal / len(held_out), 4),
        "seeds": [*seeds],
        "runs": runs,
    }


def _trained(
    recipe: Recipe, tokens: Tensor, held_out: Tensor, words: WordTokenizer, every: int
) -> dict[str, Any]:
    torch.manual_seed(recipe.seed)
    model = GPT(GPTConfig(vocab_size=words.vocab_size, **SIZE))
    curves: dict[str, Any] = {"training": [], "held_out": [], "names": []}
    losses: list[float] = []

    def look(progress: Progress) -> None:
        losses.append(progress.loss)
        if progress.step % every == 0:
            curves["training"].append(round(sum(losses[-every:]) / every, 4))
            curves["held_out"].append(round(evaluate(model, held_out), 4))
            curves["names"].append(round(name_share(model, held_out, words), 4))

    train(model, tokens, recipe, on_step=look)
    return curves


@torch.no_grad()
def name_share(model: GPT, tokens: Tensor, words: WordTokenizer) -> float:
    """Return how much of the probability of names goes to the two of the story.

    It is asked wherever a name returns. An even guess among twelve names gives 1/6.
    """
    (end,) = words.encode("\n")
    names = torch.tensor(words.encode(" ".join(FEW_NAMES)))
    length = model.config.max_seq_len
    ends = (tokens == end).nonzero().flatten().tolist()
    rows = torch.full((len(ends) - 1, length + 1), end)
    for row, (first, last) in zip(rows, pairwise(ends), strict=True):
        story = tokens[first:last][: length + 1]
        row[: len(story)] = story
    with evaluating(model):
        chances = model(rows[:, :-1]).softmax(dim=-1)
    # A story begins: Rika is a small wolf. Nilo is a big cat.
    two = rows[:, [1, 7]][:, None].expand(-1, length, -1)
    share = chances.gather(-1, two).sum(dim=-1) / chances[..., names].sum(dim=-1)
    is_name = torch.isin(rows[:, 1:], names)
    is_name[:, :7] = False
    return share[is_name].mean().item()
