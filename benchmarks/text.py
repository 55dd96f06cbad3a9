"""Record what training does to small models, seed by seed: losses and samples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.ours import FAST
from benchmarks.run import Results, Run
from tested_transformer.data import CharTokenizer, Corpus, load_corpus, split
from tested_transformer.decoding import Sampling, generate
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, evaluate, train

__all__ = ["OneTooFar", "measure"]

# The chapter's model and text, and the sizes of the command line.
CHAPTER = {"max_seq_len": 64, "d_model": 64, "num_heads": 4, "num_layers": 2}
COMMAND = {"max_seq_len": 64, "d_model": 128, "num_heads": 4, "num_layers": 4}
SHOWN_AFTER = (0, 20, 100, 1000)


class OneTooFar(nn.Module):
    """Attention that can look one position ahead.

    Args:
        attention: A layer whose mask is replaced.
    """

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, **how: Any) -> Tensor:
        """Attend, with a mask that allows one position too many."""
        length = x.shape[1]
        mask = torch.ones(length, length, device=x.device).tril(1).bool()
        return self.attention(x, **{**how, "causal": False, "mask": mask})


def measure(run: Run, seeds: Sequence[int] = (0, 1, 2, 3, 4)) -> Results:
    """Train the chapter's models with several seeds, and a larger one for samples.

    Args:
        run: What the command line asks.
        seeds: The seeds of weights and batches.
    """
    seeds = seeds[:1] if run.quick else seeds
    short, long = (20_000, 20_000) if run.quick else (200_000, 1_000_000)
    corpus = load_corpus("grammar", num_characters=short)
    recipes = {
        "plain": Recipe.plain(steps=110, lr=3e-3, warmup=11, precision="fp32"),
        "fast": Recipe.fast(steps=110, precision="fp32"),
        "leaky": Recipe.fast(steps=50, precision="fp32"),
    }
    if run.quick:
        recipes = {
            name: replace(recipe, steps=2, warmup=0) for name, recipe in recipes.items()
        }
    losses = {
        name: [_losses(name, corpus, recipe, seed) for seed in seeds]
        for name, recipe in recipes.items()
    }
    corpus = load_corpus("grammar", num_characters=long)
    return {"losses": losses, "written": _written(corpus, quick=run.quick)}


def _losses(name: str, corpus: Corpus, recipe: Recipe, seed: int) -> dict[str, Any]:
    tokenizer, training, validation = _texts(corpus, 0.98)
    torch.manual_seed(seed)
    choices = {} if name == "plain" else FAST
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **CHAPTER, **choices))
    if name == "leaky":
        for block in model.blocks:
            block.attention = OneTooFar(block.attention)
    recipe = replace(recipe, seed=seed)
    losses = train(model, training, recipe, validation=validation).validations[-1]
    return {
        "seed": seed,
        "steps": losses.step,
        "loss": round(losses.loss, 4),
        "full": round(losses.full, 4),
        "honest": round(losses.prefix, 4),
        "gap": float(f"{losses.gap:.1e}"),
    }


def _written(corpus: Corpus, *, quick: bool) -> list[dict[str, Any]]:
    """Train one model of the command's sizes, with samples along the way."""
    tokenizer, training, validation = _texts(corpus, 0.9)
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **COMMAND, **FAST))
    wanted = SHOWN_AFTER[:2] if quick else SHOWN_AFTER
    recipe = Recipe.fast(steps=wanted[-1], precision="fp32")
    samples: list[dict[str, Any]] = []

    def look(step: int) -> None:
        if step not in wanted:
            return
        prompt = tokenizer.encode("The ")
        sampling = Sampling(temperature=0.8)
        (tokens,) = generate(
            model, [prompt], max_new_tokens=72, sampling=sampling, seed=0
        )
        loss = evaluate(model, validation)
        text = tokenizer.decode([*prompt, *tokens])
        samples.append({"step": step, "loss": round(loss, 4), "text": text})

    look(0)
    train(model, training, recipe, on_step=lambda progress: look(progress.step))
    return samples


def _texts(corpus: Corpus, share: float) -> tuple[CharTokenizer, Tensor, Tensor]:
    """Return a tokenizer, the training text and the held-out text."""
    tokenizer = CharTokenizer.from_text(corpus.text)
    training, held_out = split(torch.tensor(tokenizer.encode(corpus.text)), share)
    return tokenizer, training, held_out
