"""What other softmaxes change: the weight on the first token, and large activations.

Small models of each kind are trained on two tasks. In the one, most tokens need nothing
from attention: the next token depends on the last alone, but after a *trigger*, where
the token before the trigger comes again. The other is text, a character at a time.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tested_transformer.data import load_corpus
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.variants import AdjustedAttention, DifferentialAttention

__all__ = ["KINDS", "draw_copies", "measure_softmaxes"]

NUM_TOKENS, NUM_TRIGGERS, FIRST = 32, 3, 32
LR, WARM_UP, FROM = 3e-3, 50, 16

_Draw = Callable[[torch.Generator], Tensor]

KINDS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "differential": {},
    "gate": {"gate": "features"},
    "soft cap 5": {"soft_cap": 5.0},
    "learned sink": {"learned_sink": True},
}


def make_model(kind: str, vocab_size: int, num_layers: int, length: int) -> GPT:
    """Make a small GPT with another attention in every block."""
    sizes = {"d_model": 64, "num_heads": 4}
    config = GPTConfig(
        vocab_size=vocab_size,
        max_seq_len=length,
        num_layers=num_layers,
        positions="rotary",
        **sizes,
    )
    model = GPT(config)
    for layer, block in enumerate(model.blocks):
        if kind == "differential":
            block.attention = DifferentialAttention(layer=layer, **sizes)
        else:
            block.attention = AdjustedAttention(**sizes, **KINDS[kind])
    return model


def draw_copies(
    batch: int, length: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw sequences in which the token before a trigger comes again after it.

    Returns:
        The tokens, (batch, length), which begin with the same one, and how likely each
        token is to follow each.
    """
    rates = torch.Generator().manual_seed(0)
    table = torch.randn(NUM_TOKENS, NUM_TOKENS, generator=rates)
    table = (2 * table).softmax(dim=-1)
    tokens = torch.full((batch, length), FIRST)
    tokens[:, 1] = torch.randint(NUM_TOKENS, (batch,), generator=generator)
    for t in range(2, length):
        last = tokens[:, t - 1]
        drawn = torch.multinomial(table[last], 1, generator=generator)[:, 0]
        copied = (last < NUM_TRIGGERS) & (tokens[:, t - 2] != FIRST)
        tokens[:, t] = torch.where(copied, tokens[:, t - 2], drawn)
    return tokens, table


def measure_softmaxes(*, quick: bool = False) -> dict:
    """Train every kind with three seeds on both tasks, and look at what they do."""
    steps, seeds = (4, (1,)) if quick else (400, (1, 2, 3))
    text = load_corpus("grammar", num_characters=20_000 if quick else 400_000).text
    letters = sorted(set(text))
    number = {letter: index for index, letter in enumerate(letters)}
    ids = torch.tensor([number[letter] for letter in text])
    train, held_out = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]

    def windows(ids: Tensor, count: int, generator: torch.Generator) -> Tensor:
        starts = torch.randint(len(ids) - 65, (count, 1), generator=generator)
        return ids[starts + torch.arange(65)]

    tasks: dict[str, tuple[int, int, _Draw, _Draw]] = {
        "copies": (
            NUM_TOKENS + 1,
            2,
            lambda g: draw_copies(16, 49, g)[0],
            lambda g: draw_copies(256, 49, g)[0],
        ),
        "text": (
            len(letters),
            2,
            lambda g: windows(train, 12, g),
            lambda g: windows(held_out, 64, g),
        ),
    }
    found: dict[str, Any] = {}
    maps: dict[str, Any] = {}
    for task, (vocab_size, layers, draw, draw_held_out) in tasks.items():
        held = draw_held_out(torch.Generator().manual_seed(99))
        found[task] = {}
        for kind in KINDS:
            runs = []
            for seed in seeds:
                torch.manual_seed(seed)
                model = make_model(kind, vocab_size, layers, held.shape[1] - 1)
                _train(model, draw, steps, seed)
                runs.append(_look(model, held))
                print(task, kind, seed, runs[-1], flush=True)
                if task == "copies" and seed == seeds[0]:
                    maps[kind] = _strongest(model, held[:1, :17])
            found[task][kind] = {name: [run[name] for run in runs] for name in runs[0]}
    return {
        "size": {"d_model": 64, "heads": 4, "steps": steps, "from position": FROM},
        "layers": {task: each[1] for task, each in tasks.items()},
        "seeds": list(seeds),
        "tokens": draw_held_tokens(),
        "found": found,
        "maps": maps,
    }


def draw_held_tokens() -> list[int]:
    """Return the sequence whose weights are in the record."""
    generator = torch.Generator().manual_seed(99)
    return draw_copies(256, 49, generator)[0][0, :16].tolist()


def _train(model: GPT, draw: _Draw, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LR, weight_decay=0.0, betas=(0.9, 0.98)
    )
    for step in range(steps):
        rate = LR * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
        optimizer.param_groups[0]["lr"] = rate
        loss = _loss(model, draw(generator))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _loss(model: GPT, tokens: Tensor) -> Tensor:
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def _layers(model: GPT, tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the weights of each layer, and what it passes on."""
    x = model.token_embedding(tokens)
    rotary = model.position_table[:, : tokens.shape[1]]
    for block in model.blocks:
        x, weights = block(x, rotary=rotary, return_weights=True)
        yield weights, x


@torch.no_grad()
def _look(model: GPT, held: Tensor) -> dict[str, float]:
    """Return the loss, the weight on the first token, and how large activations are."""
    first, own, ratio = list[Tensor](), list[Tensor](), 0.0
    largest = 0.0
    for weights, x in _layers(model, held[:, :-1]):
        size = weights.abs()
        share = size[..., FROM:, 0] / size[..., FROM:, :].sum(dim=-1)
        first.append(share.mean(dim=(0, 2)))  # a number for each head
        own.append(1 - weights[..., FROM:, :].sum(dim=-1).mean(dim=(0, 2)))
        largest = max(largest, x.abs().max().item())
        ratio = max(ratio, (x.abs().max() / x.abs().median()).item())
    shares = torch.cat(first)
    return {
        "loss": round(_loss(model, held).item(), 4),
        "first token": round(shares.mean().item(), 4),
        "first token, strongest head": round(shares.max().item(), 4),
        "not given away": round(torch.cat(own).mean().item(), 4),
        "largest activation": round(largest, 3),
        "largest by median": round(ratio, 2),
    }


@torch.no_grad()
def _strongest(model: GPT, tokens: Tensor) -> dict[str, Any]:
    """Return the table of weights of the head with the most on the first token."""
    every = torch.cat([w[0] for w, _ in _layers(model, tokens[:, :-1])])
    share = every.abs()[:, 4:, 0] / every.abs()[:, 4:].sum(dim=-1)
    head = int(share.mean(dim=1).argmax())
    table = [[round(w, 3) for w in row] for row in every[head].tolist()]
    return {"head": head, "weights": table}
