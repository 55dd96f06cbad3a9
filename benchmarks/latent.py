"""Compare the losses of latent attention and shared keys at equal cache size.

Small models of one shape learn the stories of the grammar, character by character: two
layers, 64 features, four heads of 16, rotary positions. They differ in what the cache
of a layer holds for each token: keys and values of four, two or one heads, or a latent
with its rotary key, which is as wide as one head.
"""

import torch

from benchmarks.learning import (
    Descent,
    as_characters,
    fit_to_text,
    guess_loss,
    seeded,
    windows,
)
from benchmarks.run import Results, Run
from tested_transformer.attentions import LatentAttention
from tested_transformer.data import write_stories
from tested_transformer.gpt import GPT, GPTConfig

__all__ = ["KINDS", "make_model", "measure"]

D_MODEL, HEADS, LAYERS, LENGTH, BATCH, STEPS, RATE = 64, 4, 2, 64, 16, 600, 3e-3
WARM_UP = 60  # steps
SEEDS, LONGER = (1, 2, 3), 1500  # steps of two kinds that are trained once more
PAIRS = (("2 heads", "latent of 48"), ("1 head", "latent of 16"))  # of equal caches
# For each model the number of heads of keys and values, or the width of the latent.
KINDS = {
    "4 heads": (4, None),
    "2 heads": (2, None),
    "latent of 48": (4, 48),
    "1 head": (1, None),
    "latent of 16": (4, 16),
}


def make_model(kind: str, vocab_size: int) -> GPT:
    """Return a model of one of the ``KINDS``, with random weights."""
    num_kv_heads, latent_dim = KINDS[kind]
    config = GPTConfig(
        vocab_size=vocab_size,
        max_seq_len=LENGTH,
        d_model=D_MODEL,
        num_heads=HEADS,
        num_layers=LAYERS,
        num_kv_heads=num_kv_heads,
        positions="rotary",
    )
    model = GPT(config)
    if latent_dim is not None:
        for block in model.blocks:
            block.attention = LatentAttention(
                d_model=D_MODEL,
                num_heads=HEADS,
                head_dim=config.d_k,
                rotary_dim=config.d_k,
                latent_dim=latent_dim,
            )
        model.reset_parameters()
    return model


def measure(run: Run) -> Results:
    """Train each kind with each seed, and measure its loss on held-out text."""
    text = write_stories(20_000 if run.quick else 300_000, seed=9).text
    training, held_out, vocab_size = as_characters(text, 5 / 6)
    steps, seeds = (2, SEEDS[:1]) if run.quick else (STEPS, SEEDS)
    test = windows(held_out, 256, LENGTH + 1, seeded(0))

    warm_up = 1 if run.quick else WARM_UP

    def trained(
        kind: str, steps: int, seed: int, times: float = 1
    ) -> tuple[GPT, float]:
        torch.manual_seed(seed)
        model = make_model(kind, vocab_size)
        descent = Descent(steps, times * RATE, warm_up, weight_decay=0.01)
        fit_to_text(model, training, descent, seed=seed, batch=BATCH, length=LENGTH)
        with torch.no_grad():
            return model, guess_loss(model, test).item()

    results: dict[str, dict] = {}
    for kind, (num_kv_heads, latent_dim) in KINDS.items():
        width = D_MODEL // HEADS
        models, losses = zip(*(trained(kind, steps, n) for n in seeds), strict=True)
        kept = 2 * num_kv_heads * width if latent_dim is None else latent_dim + width
        results[kind] = {
            "numbers a token and layer": kept,
            "parameters": models[0].num_parameters(),
            "losses": [*losses],
        }
    longer = 2 * steps if run.quick else LONGER
    return {
        "size": {
            "d_model": D_MODEL,
            "heads": HEADS,
            "layers": LAYERS,
            "length": LENGTH,
            "batch": BATCH,
            "steps": steps,
            "warm-up": warm_up,
            "characters": vocab_size,
        },
        "seeds": [*seeds],
        "kinds": results,
        "longer": {
            "steps": longer,
            **{
                kind: [trained(kind, longer, seed)[1] for seed in seeds]
                for kind in PAIRS[0]
            },
        },
        "twice the rate": {
            kind: [trained(kind, steps, seed, times=2)[1] for seed in seeds]
            for pair in PAIRS
            for kind in pair
        },
    }
