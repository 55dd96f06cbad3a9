"""Measure when the book's GPT learns that a story has two names, and if it overfits.

It is trained on a short and on a long text, with equally many steps.
"""

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

SEEDS = (1, 2, 3)
TEXTS = (5_000_000, 1_000_000)
STEPS, BATCH, EVERY = 2500, 64, 125


def measure(run: Run) -> Results:
    """Train on each text from some seeds, and look at the model along the way."""
    steps, every, texts = STEPS, EVERY, TEXTS
    if run.quick:
        steps, every, texts = 2, 1, (20_000,)
    stories = held_out_stories(10_000 if run.quick else 60_000)
    runs: dict[str, list[dict[str, Any]]] = {str(length): [] for length in texts}
    for seed in SEEDS[:1] if run.quick else SEEDS:
        for length in texts:
            text = load_corpus("stories", num_characters=length).text
            words = WordTokenizer.from_text(text)
            tokens = split(torch.tensor(words.encode(text)))[0]
            held_out = torch.tensor(words.encode(stories.text))
            changes = {"steps": steps, "batch_size": BATCH, "seed": seed}
            recipe = Recipe.fast(**RECIPE | changes)
            found = _trained(recipe, tokens, held_out, words, every)
            passes = steps * BATCH * SIZE["max_seq_len"] / len(tokens)
            found["passes"] = round(passes, 1)
            runs[str(length)].append(found)
            print(length, seed, found, flush=True)
    bound = stories.surprisal / len(held_out)
    return {"every": every, "bound": round(bound, 4), "texts": runs}


def _trained(
    recipe: Recipe, tokens: Tensor, held_out: Tensor, words: WordTokenizer, every: int
) -> dict[str, Any]:
    torch.manual_seed(recipe.seed)
    model = GPT(GPTConfig(vocab_size=words.vocab_size, **SIZE))
    found: dict[str, Any] = {"training": [], "held_out": [], "names": []}
    losses: list[float] = []

    def look(progress: Progress) -> None:
        losses.append(progress.loss)
        if progress.step % every == 0:
            found["training"].append(round(sum(losses[-every:]) / every, 4))
            found["held_out"].append(round(evaluate(model, held_out), 4))
            found["names"].append(round(name_share(model, held_out, words), 4))

    train(model, tokens, recipe, on_step=look)
    return found


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
    asked = torch.isin(rows[:, 1:], names)
    asked[:, :7] = False
    return share[asked].mean().item()
