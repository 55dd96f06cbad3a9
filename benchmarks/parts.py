"""Take one part out of the book's GPT and train it again: what is each part worth?"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.contenders import num_parameters
from benchmarks.run import Results, Run
from tested_transformer.data import WordTokenizer, load_corpus, split
from tested_transformer.gpt import GPT, DecoderBlock, GPTConfig
from tested_transformer.training import Recipe, honest_loss, train
from transformer_book.our_gpt import (
    held_out_stories,
    number_right,
    sentences_right,
    tell,
)

__all__ = [
    "PARTS",
    "RECIPE",
    "SIZE",
    "Part",
    "combined",
    "measure",
    "rates",
    "train_parts",
]

SEEDS = (1, 2, 3)
SIZE: dict[str, Any] = {
    "max_seq_len": 64,
    "d_model": 64,
    "num_heads": 4,
    "num_layers": 2,
}
RECIPE: dict[str, Any] = {
    "steps": 500,
    "batch_size": 16,
    "lr": 0.005,
    "embedding_lr": 0.005,
    "precision": "fp32",
}


def rates(times: float) -> dict[str, float]:
    """Return the learning rates of the recipe, AdamW's and Muon's, multiplied."""
    full = vars(Recipe.fast(**RECIPE))
    names = [name for name in full if name.endswith("_lr") and name != "final_lr"]
    return {name: times * full[name] for name in ("lr", *names) if full[name]}


@dataclass(frozen=True)
class Part:
    """One thing changed: settings of the model or recipe, or modules replaced."""

    model: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    change: Callable[[DecoderBlock], None] = lambda block: None


class _Zeros(nn.Module):
    """Add nothing, or ask nothing, whatever comes in."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


class _Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class _HeadsAsRows(nn.Module):
    """Take heads for tokens, as ``reshape`` without ``transpose`` does."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return heads.reshape(x.shape)


class _WithoutMask(DecoderBlock):
    def forward(self, x: Tensor, **how: Any) -> Any:
        attended = self.attention(self.attention_norm(x), causal=False, **how)
        x = x + attended
        return x + self.feed_forward(self.feed_forward_norm(x))


class _WithoutResidual(DecoderBlock):
    def forward(self, x: Tensor, **how: Any) -> Any:
        x = self.attention(self.attention_norm(x), causal=True, **how)
        return self.feed_forward(self.feed_forward_norm(x))


class _PostNorm(DecoderBlock):
    def forward(self, x: Tensor, **how: Any) -> Any:
        x = self.attention_norm(x + self.attention(x, causal=True, **how))
        return self.feed_forward_norm(x + self.feed_forward(x))


def _as(kind: type[DecoderBlock]) -> Callable[[DecoderBlock], None]:
    def change(block: DecoderBlock) -> None:
        block.__class__ = kind

    return change


def _even(block: DecoderBlock) -> None:
    # Queries of zeros give equal scores.
    block.attention.q_proj = _Zeros()


def _undivided(block: DecoderBlock) -> None:
    attention = block.attention
    root = _Times(math.sqrt(attention.head_dim))
    attention.q_proj = nn.Sequential(attention.q_proj, root)


def _heads_as_rows(block: DecoderBlock) -> None:
    attention = block.attention
    heads = _HeadsAsRows(attention.num_heads)
    attention.o_proj = nn.Sequential(heads, attention.o_proj)


def _no_feed_forward(block: DecoderBlock) -> None:
    block.feed_forward = _Zeros()


def _no_norm(block: DecoderBlock) -> None:
    block.attention_norm = block.feed_forward_norm = nn.Identity()


_ADAMW = {"optimizer": "adamw", "lr": 3e-3, "embedding_lr": None, "head_lr": None}
PARTS = {
    "the whole model": Part(),
    "no attention": Part({"windows": 1}),
    "plain averages": Part(change=_even),
    "window of 4": Part({"windows": 4}),
    "no root": Part(change=_undivided),
    "one head": Part({"num_heads": 1}),
    "no mask": Part(change=_as(_WithoutMask)),
    "heads as rows": Part(change=_heads_as_rows),
    "no positions": Part({"positions": "none"}),
    "rotary": Part({"positions": "rotary"}),
    "no feed-forward": Part(change=_no_feed_forward),
    "one head, no feed-forward": Part({"num_heads": 1}, change=_no_feed_forward),
    "no residual": Part(change=_as(_WithoutResidual)),
    "no norms": Part(change=_no_norm),
    "post-norm": Part(change=_as(_PostNorm)),
    "one layer": Part({"num_layers": 1}),
    "three layers": Part({"num_layers": 3}),
    "six layers": Part({"num_layers": 6}),
    "six layers, no norms": Part({"num_layers": 6}, change=_no_norm),
    "half the steps": Part(recipe={"steps": 250}),
    "four times the steps": Part(recipe={"steps": 2000}),
    "AdamW": Part(recipe=_ADAMW),
    "AdamW, tuned": Part(recipe={**_ADAMW, "lr": 0.01, "warmup": 50}),
    "one KV head": Part({"num_kv_heads": 1}),
}


def combined(*parts: Part) -> Part:
    """Return all that several parts change, as one part."""
    model, recipe = dict[str, Any](), dict[str, Any]()
    for part in parts:
        model |= part.model
        recipe |= part.recipe

    def change(block: DecoderBlock) -> None:
        for part in parts:
            part.change(block)

    return Part(model, recipe, change)


def _train_part(part: Part, seed: int, tokens: Tensor, vocab_size: int) -> GPT:
    """Train the book's model with one thing changed."""
    torch.manual_seed(seed)
    model = GPT(GPTConfig(vocab_size=vocab_size, **SIZE | part.model))
    for block in model.blocks:
        part.change(block)
    train(model, tokens, Recipe.fast(**RECIPE | part.recipe, seed=seed))
    return model.eval()


def measure(run: Run) -> Results:
    """Train each variant from some seeds, and measure what it has learned."""
    return train_parts(run, PARTS)


def train_parts(run: Run, parts: Mapping[str, Part]) -> dict[str, Any]:
    """Train the book's model with each change from some seeds, and measure them."""
    text = load_corpus("stories").text
    words = WordTokenizer.from_text(text)
    tokens, held_out = split(torch.tensor(words.encode(text)))
    stories = held_out_stories(10_000 if run.quick else 60_000)
    seeds = SEEDS[:1] if run.quick else SEEDS
    rows: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        if run.quick:
            part = replace(part, recipe=part.recipe | {"steps": 2, "warmup": 0})
        row: dict[str, Any] = {}
        for seed in seeds:
            model = _train_part(part, seed, tokens, words.vocab_size)
            windows = 4 if run.quick else 256
            honest = honest_loss(model, held_out, num_windows=windows)
            scores = {
                "loss": honest.prefix,
                "one_pass": honest.full,
                "number": number_right(model, words, stories),
                "sentences": sentences_right(model, words),
            }
            for key, value in scores.items():
                row.setdefault(key, []).append(round(value, 4))
        row["parameters"] = num_parameters(model)
        row["cache"] = model.new_cache().nbytes
        row["tells"] = tell(model, words)
        rows[name] = row
        print(name, row, flush=True)
    return {"seeds": [*seeds], "size": SIZE, "recipe": RECIPE, "rows": rows}
