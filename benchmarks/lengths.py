"""Measure the loss by position beyond the trained length.

Small character models are trained on texts of 64 tokens, three seeds of each kind, and
read texts of 512 tokens. The rotary models also read them with their pairs slowed by
each rule and several factors, before and after a little training on longer texts, and
through a rolling cache of 64 tokens, with and without sinks. Controls tell what harms
them: only the fast pairs slowed, only the slow ones, and no pair slowed but every key
beyond the trained length read as if it stood just within it, by all pairs, by the fast
ones, by the slow ones or by the third alone.
"""

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.learning import (
    Descent,
    as_characters,
    fit_to_text,
    seeded,
    windows,
)
from benchmarks.run import Results, Run
from tested_transformer.caches import rolling_cache, stream_logits
from tested_transformer.data import write_stories
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.positions import rotate
from tested_transformer.rotary_scaling import (
    linear_rates,
    ntk_rates,
    plain_rates,
    scaled_table,
    yarn_attention_factor,
    yarn_rates,
)
from tested_transformer.surgery import stretched

__all__ = ["measure"]

TRAINED, READ, BIN = 64, 512, 16
FACTORS, FURTHER_FACTOR = (2.0, 4.0, 8.0), 4.0
SINKS = (0, 1, 4)
LR, FURTHER_LR = 4e-3, 1e-3


def measure(run: Run) -> Results:
    """Train the models, and return the losses of each bin of positions."""
    seeds, steps, further = ((0,), 1, 1) if run.quick else ((0, 1, 2), 600, 60)
    read = 80 if run.quick else READ
    text = write_stories(20_000 if run.quick else 700_000, seed=9).text
    training, held_out, vocab_size = as_characters(text)
    # As when the record was made, no window ends with the last token.
    training, held_out = training[:-1], held_out[:-1]
    texts = windows(held_out, 2 if run.quick else 32, read + 1, seeded(1))
    losses: dict[str, dict[str, list[float]]] = {}

    def note(way: str, seed: int, bins: list[float]) -> None:
        losses.setdefault(way, {})[str(seed)] = [round(loss, 4) for loss in bins]

    for seed in seeds:
        config = {"vocab_size": vocab_size, "max_seq_len": READ}
        rotary = _train(_make("rotary", seed, config), training, seed, steps)
        note("plain", seed, _losses(rotary, texts))
        for factor in FACTORS:
            for way, model in _slowed(rotary, factor).items():
                note(f"{way}, {factor:g}", seed, _losses(model, texts))
        for way, model in _slowed_in_part(rotary).items():
            note(way, seed, _losses(model, texts))
        for way, near in _no_farther_than(TRAINED - 1, rotary.config.d_k).items():
            with patch("tested_transformer.multihead.fused_attention", near):
                note(f"{way} cut at 63", seed, _losses(rotary, texts))
        slowed = _slowed(rotary, FURTHER_FACTOR)
        slowed["plain"] = GPT.from_weights(rotary.config, rotary.state_dict())
        length = int(TRAINED * FURTHER_FACTOR)
        for way, model in slowed.items():
            model.requires_grad_()
            _train(model, training, seed, further, (6, length), FURTHER_LR)
            note(f"{way}, trained on", seed, _losses(model, texts))
        for sinks in SINKS:
            bins = _rolling_losses(rotary, texts, sinks)
            note(f"cache of {TRAINED}, {sinks} sinks", seed, bins)
        alibi = _train(_make("alibi", seed, config), training, seed, steps)
        note("ALiBi", seed, _losses(alibi, texts))
    return {
        "size": {
            "trained_length": TRAINED,
            "read_length": read,
            "bin": BIN,
            "texts": len(texts),
            "steps": steps,
            "further_steps": further,
            "further_length": int(TRAINED * FURTHER_FACTOR),
            "parameters": rotary.num_parameters(),
            "characters": vocab_size,
        },
        "losses": losses,
    }


def _make(positions: str, seed: int, config: dict[str, Any]) -> GPT:
    torch.manual_seed(seed)
    sizes = {"d_model": 64, "num_heads": 4, "num_layers": 3, "bias": False}
    return GPT(GPTConfig(positions=positions, **config, **sizes))


def _train(
    model: GPT,
    tokens: Tensor,
    seed: int,
    steps: int,
    shape: Sequence[int] = (24, TRAINED),
    lr: float = LR,
) -> GPT:
    """Train a model on windows of a text, with a warm-up and a linear decay."""
    batch, length = shape
    descent = Descent(steps, lr, warm_up=20, clip=1.0)
    fit_to_text(model, tokens, descent, batch=batch, length=length, seed=seed)
    return model.requires_grad_(requires_grad=False)


def _slowed(model: GPT, factor: float) -> dict[str, GPT]:
    """Return copies whose pairs are slowed by each of the rules."""
    head_dim = model.config.d_k
    scale = yarn_attention_factor(factor)
    yarn = yarn_rates(head_dim, factor=factor, trained_length=TRAINED)
    return {
        "interpolation": stretched(model, READ, linear_rates(head_dim, factor=factor)),
        "NTK": stretched(model, READ, ntk_rates(head_dim, factor=factor)),
        "YaRN": stretched(model, READ, yarn, attention_factor=scale),
    }


def _slowed_in_part(model: GPT) -> dict[str, GPT]:
    """Return copies in which some pairs turn half as fast as they did in training."""
    rates = plain_rates(model.config.d_k)
    fast = _fast(rates)
    parts = {"fast pairs halved": fast, "slow pairs halved": ~fast}
    return {
        way: stretched(model, READ, torch.where(part, rates / 2, rates))
        for way, part in parts.items()
    }


def _fast(rates: Tensor) -> Tensor:
    """Return which pairs made a full turn in training."""
    return TRAINED * rates >= 2 * torch.pi


def _no_farther_than(most: int, head_dim: int) -> dict[str, Callable[..., Tensor]]:
    """Return causal attention in which some pairs see far keys as if at ``most``."""
    rates = plain_rates(head_dim)
    fast = _fast(rates)
    parts = {"distances": fast | ~fast, "fast pairs": fast, "slow pairs": ~fast}
    parts["third pair"] = torch.arange(len(rates)) == 2  # one full turn in training
    return {way: _cutting(most, rates * part) for way, part in parts.items()}


def _cutting(most: int, rates: Tensor) -> Callable[..., Tensor]:
    """Return causal attention that cuts the distances of pairs with a rate."""

    def attend(q: Tensor, k: Tensor, v: Tensor, **_: object) -> Tensor:
        at = torch.arange(q.shape[-2])
        back, ahead = (
            scaled_table(-at, rates),
            scaled_table(torch.full_like(at, most), rates),
        )
        far = rotate(rotate(q, back), ahead) @ rotate(k, back).mT
        distance = at[:, None] - at
        scores = torch.where(distance <= most, q @ k.mT, far) * q.shape[-1] ** -0.5
        return scores.masked_fill(distance < 0, float("-inf")).softmax(dim=-1) @ v

    return attend


def _losses(model: GPT, texts: Tensor) -> list[float]:
    with torch.no_grad():
        logits = [model(part[:, :-1]) for part in texts.split(8)]
    return _by_position(torch.cat(logits), texts)


def _rolling_losses(model: GPT, texts: Tensor, sinks: int) -> list[float]:
    window = TRAINED - sinks
    cache = rolling_cache(model, sinks=sinks, window=window, batch_size=len(texts))
    with torch.no_grad():
        return _by_position(stream_logits(model, texts[:, :-1], cache), texts)


def _by_position(logits: Tensor, texts: Tensor) -> list[float]:
    """Return the mean loss of each bin of positions, over all texts."""
    targets = texts[:, 1:]
    losses = F.cross_entropy(logits.mT, targets, reduction="none")
    return losses.unflatten(1, (-1, BIN)).mean(dim=(0, 2)).tolist()
