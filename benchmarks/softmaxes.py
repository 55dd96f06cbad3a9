"""Measure what other softmaxes change: first-token weights and large activations.

One layer of each kind learns when to be silent: half of the tokens must return the mean
of what they see, the others zeros. And a small GPT of each kind is trained on text.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.learning import (
    Descent,
    as_characters,
    fit,
    fit_to_text,
    guess_loss,
    seeded,
    windows,
)
from benchmarks.run import Results, Run
from tested_transformer.attentions import (
    AdjustedSoftmax,
    Differential,
    DifferentialCore,
)
from tested_transformer.data import load_corpus
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.multihead import MultiHeadAttention, Softmax

__all__ = ["KINDS", "WIDER", "draw_questions", "make_layer", "measure"]

KINDS: dict[str, Softmax] = {
    "softmax": Softmax(),
    "soft cap": AdjustedSoftmax(soft_cap=5.0),
    "learned sink": AdjustedSoftmax(learned_sink=True),
    "gate": AdjustedSoftmax(gate="features"),
    "differential": Differential(),
}
# On text also softmax with a wider feed-forward, which has about a gate's parameters.
WIDER = "softmax, wider"
EXTRA = 32  # rows of the feed-forward: two matrices of them, and a bias
WIDTH, LENGTH, HEADS = 16, 24, 2  # of the layer that learns to be silent
LONGER = 4  # times the steps
TIMES = (0.5, 2, 4)  # the learning rate of the GPTs
D_MODEL, NUM_HEADS, NUM_LAYERS, WINDOW = 64, 4, 2, 64  # of the GPT
FROM = 8  # measure from this position on


def make_layer(
    kind: str, d_model: int, num_heads: int, layer: int, *, bias: bool
) -> MultiHeadAttention:
    """Return a layer of a kind."""
    return MultiHeadAttention(
        d_model=d_model, num_heads=num_heads, bias=bias, core=KINDS[kind], layer=layer
    )


class _Followed(nn.Module):
    """A layer, and a feed-forward that reads the token and what the layer returns."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.up = nn.Linear(2 * WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, **options: bool) -> Tensor:
        read = self.layer(x, **options)
        return self.down(self.up(torch.cat([x, read], dim=-1)).relu())


def draw_questions(
    batch: int, generator: torch.Generator, *, marked: bool = True
) -> tuple[Tensor, Tensor]:
    """Draw sequences, and the target of the layer at each position.

    The second feature says whether a token asks (1) or not (-1). The features after it
    are random. The target of a token that asks is the mean of these random features up
    to itself; for other tokens it is zero. If the first token is marked, its first
    feature is 1, and it contributes no random features to the mean.
    """
    x = torch.randn(batch, LENGTH, WIDTH, generator=generator)
    asks = torch.rand(batch, LENGTH, generator=generator) < 0.5
    x[..., 1] = asks.float() * 2 - 1
    x[..., 0] = 0
    count = torch.arange(LENGTH)[:, None] + 1
    if marked:
        x[:, 0], asks[:, 0] = 0, False
        x[:, 0, 0] = 1
        count = (count - 1).clamp(min=1)
    targets = x.cumsum(dim=1) / count * asks[..., None]
    targets[..., :2] = 0
    return x, targets


def measure(run: Run) -> Results:
    """Train every kind with three seeds on both tasks, and measure its behavior."""
    steps, text_steps, seeds = (4, 2, (1,)) if run.quick else (300, 300, (1, 2, 3))
    silent: dict[str, Any] = {}
    for task, marked in (("marked", True), ("unmarked", False)):
        silent[task] = {}
        for kind in KINDS:
            layers = [_train_layer(kind, seed, steps, marked=marked) for seed in seeds]
            looks = [_look_at_layer(layer, marked=marked) for layer in layers]
            silent[task][kind] = _by_name(looks)
            print(task, kind, silent[task][kind], flush=True)
    changed = _changed(steps, seeds)
    characters = 20_000 if run.quick else 300_000
    corpus = load_corpus("grammar", num_characters=characters)
    train, held_out, vocab_size = as_characters(corpus.text)
    # As when the record was made, no window ends with the last token.
    train, held_out = train[:-1], held_out[:-1]

    def on_text(kind: str, steps: int, times: float = 1) -> dict[str, list[float]]:
        models = (
            _train_gpt(kind, seed, steps, train, vocab_size, times) for seed in seeds
        )
        looks = _by_name([_look_at_gpt(model, held_out) for model in models])
        print("text", kind, steps, times, looks, flush=True)
        return looks

    text = {kind: on_text(kind, text_steps) for kind in (*KINDS, WIDER)}
    longer = LONGER * text_steps
    later = {kind: on_text(kind, longer)["loss"] for kind in ("softmax", "gate")}
    rates = {
        f"{times:g}": {kind: on_text(kind, text_steps, times)["loss"] for kind in text}
        for times in TIMES
    }
    return {
        "size": {
            "silent": {"d_model": WIDTH, "heads": HEADS, "steps": steps},
            "text": {
                "d_model": D_MODEL,
                "heads": NUM_HEADS,
                "layers": NUM_LAYERS,
                "window": WINDOW,
                "steps": text_steps,
            },
            "from position": FROM,
        },
        "seeds": list(seeds),
        "silent": silent,
        "unmarked, changed": changed,
        "text": text,
        "text, longer": {"steps": longer, **later},
        "text, times the rate": rates,
    }


def _by_name(looks: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return each number of all seeds."""
    return {name: [look[name] for look in looks] for name in looks[0]}


def _unchanged(x: Tensor, *_: object, **__: object) -> Tensor:
    return x


def _nothing(_: DifferentialCore) -> Tensor:
    return torch.zeros(())


def _changed(steps: int, seeds: tuple[int, ...]) -> dict[str, list[float]]:
    """Return the errors if no first token is marked, with one thing changed."""
    bare = patch.object(F, "rms_norm", _unchanged)
    alone = patch.object(DifferentialCore, "share", _nothing)
    longer = LONGER * steps
    ways: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "softmax, 8 heads": ("softmax", nullcontext(), {"heads": 8}),
        "softmax, 4 × steps": ("softmax", nullcontext(), {"steps": longer}),
        "softmax, feed-forward": ("softmax", nullcontext(), {"followed": True}),
        "gate, 4 × steps": ("gate", nullcontext(), {"steps": longer}),
        "differential, no norm": ("differential", bare, {}),
        "differential, norm alone": ("differential", alone, {}),
    }
    errors = {}
    for name, (kind, context, options) in ways.items():
        how: dict[str, Any] = {"steps": steps, "marked": False, **options}
        with context:
            errors[name] = [_error(_train_layer(kind, n, **how)) for n in seeds]
        print("unmarked", name, errors[name], flush=True)
    return errors


def _train_layer(
    kind: str,
    seed: int,
    steps: int,
    *,
    marked: bool,
    heads: int = HEADS,
    followed: bool = False,
) -> nn.Module:
    torch.manual_seed(seed)
    layer: nn.Module = make_layer(kind, WIDTH, heads, 0, bias=True)
    if followed:
        layer = _Followed(layer)
    generator = seeded(seed)

    def loss_at(step: int) -> Tensor:
        x, targets = draw_questions(64, generator, marked=marked)
        return F.mse_loss(layer(x, causal=True), targets)

    fit(layer, loss_at, Descent(steps, 1e-2))
    return layer


def _first_share(weights: Tensor) -> Tensor:
    """Return the weight that each query gives to the first token."""
    size = weights.abs()[:, :, FROM:]
    return size[..., 0] / size.sum(dim=-1)


@torch.no_grad()
def _error(layer: nn.Module) -> float:
    """Return the error of a layer if no first token is marked."""
    x, targets = draw_questions(512, seeded(0), marked=False)
    return round(_relative(layer(x, causal=True), targets).item(), 4)


def _relative(output: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error, relative to that of a layer that is always silent."""
    right = targets[:, FROM:] - output[:, FROM:]
    return right.square().mean() / targets[:, FROM:].square().mean()


@torch.no_grad()
def _look_at_layer(layer: nn.Module, *, marked: bool) -> dict[str, float]:
    """Return the error, and the weights that asking and silent tokens give."""
    generator = seeded(0)
    x, targets = draw_questions(512, generator, marked=marked)
    output, weights = layer(x, causal=True, return_weights=True)
    silent = (x[:, FROM:, 1] < 0)[:, None].expand_as(weights[:, :, FROM:, 0])
    first, sums = _first_share(weights), weights[:, :, FROM:].sum(dim=-1)
    measured = {
        "error": _relative(output, targets),
        "first, silent": first[silent].mean(),
        "first, asking": first[~silent].mean(),
        "given, silent": sums[silent].mean(),
        "given, asking": sums[~silent].mean(),
    }
    return {name: round(value.item(), 4) for name, value in measured.items()}


def _train_gpt(
    kind: str, seed: int, steps: int, ids: Tensor, vocab_size: int, times: float = 1
) -> GPT:
    torch.manual_seed(seed)
    config = GPTConfig(
        vocab_size=vocab_size,
        max_seq_len=WINDOW,
        d_model=D_MODEL,
        num_heads=NUM_HEADS,
        num_layers=NUM_LAYERS,
        positions="rotary",
        d_ff=4 * D_MODEL + (EXTRA if kind == WIDER else 0),
    )
    model = GPT(config)
    layer = "softmax" if kind == WIDER else kind
    for number, block in enumerate(model.blocks):
        block.attention = make_layer(layer, D_MODEL, NUM_HEADS, number, bias=False)
    descent = Descent(steps, times * 3e-3, warm_up=30, clip=1.0)
    fit_to_text(model, ids, descent, batch=8, length=WINDOW, seed=seed)
    return model


def _layers(model: GPT, tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the weights and the output of each layer."""
    x, rotary = model.token_embedding(tokens), model.position_table
    for block in model.blocks:
        x, weights = block(x, rotary=rotary, return_weights=True)
        yield weights, x


@torch.no_grad()
def _look_at_gpt(model: GPT, ids: Tensor) -> dict[str, float]:
    """Return size, loss, weight on the first token, and how large activations are."""
    tokens = windows(ids, 64, WINDOW + 1, seeded(0))
    layers = [*_layers(model, tokens[:, :-1])]
    shares = torch.cat([_first_share(weights).mean((0, 2)) for weights, _ in layers])
    return {
        "parameters": model.num_parameters(),
        "loss": round(guess_loss(model, tokens).item(), 4),
        "first": round(shares.mean().item(), 4),
        "first, strongest head": round(shares.max().item(), 4),
        "largest": round(max(x.abs().max().item() for _, x in layers), 2),
        "largest by median": round(
            max((x.abs().max() / x.abs().median()).item() for _, x in layers), 2
        ),
    }
