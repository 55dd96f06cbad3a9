"""Train the book's GPT with the blocks of today's families, at equal parameters."""

import itertools
from typing import Any

import torch

from benchmarks.parts import RECIPE, SEEDS, SIZE, Part, rates, train_part
from benchmarks.run import Results, Run
from tested_transformer.data import WordTokenizer, load_corpus, split
from tested_transformer.training import honest_loss
from transformer_book.our_gpt import held_out_stories, number_right, sentences_right

__all__ = ["FAMILIES", "RATES", "measure"]

# The width of each feed-forward makes up for what the other parts save.
_LLAMA: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "bias": False,
    "activation": "swiglu",
    "num_kv_heads": 2,
    "d_ff": 207,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT-2": {"activation": "gelu_tanh"},
    "Llama": _LLAMA,
    "Qwen 3": {**_LLAMA, "qk_norm": "heads", "norm_eps": 1e-6},
    "OLMo 2": {
        **_LLAMA,
        "norm_place": "after",
        "qk_norm": "projection",
        "norm_eps": 1e-6,
    },
    "Gemma 3": {
        **_LLAMA,
        "norm_place": "both",
        "qk_norm": "heads",
        "norm_eps": 1e-6,
        "activation": "geglu_tanh",
        "embedding_scale": SIZE["d_model"] ** 0.5,
        "windows": (16, None),
        "rotary_base": 1e6,
        "local_rotary_base": 1e4,
        "d_ff": 206,
    },
}
# The recipe's rate was chosen with the first of them; another may want another.
RATES = (1.0, 2.0, 0.5)


def measure(run: Run) -> Results:
    """Train each family's block at some rates and seeds, and measure what it learns."""
    text = load_corpus("stories").text
    words = WordTokenizer.from_text(text)
    tokens, held_out = split(torch.tensor(words.encode(text)))
    stories = held_out_stories(10_000 if run.quick else 60_000)
    seeds = SEEDS[:1] if run.quick else SEEDS
    rows: dict[str, dict[str, Any]] = {name: {} for name in FAMILIES}
    for times, name in itertools.product(RATES, FAMILIES):
        recipe = rates(times) | ({"steps": 2} if run.quick else {})
        scores: dict[str, list[float]] = {"loss": [], "number": [], "sentences": []}
        for seed in seeds:
            part = Part(FAMILIES[name], recipe)
            model = train_part(part, seed, tokens, words.vocab_size)
            windows = 4 if run.quick else 256
            loss = honest_loss(model, held_out, num_windows=windows).prefix
            scores["loss"].append(round(loss, 4))
            right = number_right(model, words, stories)
            scores["number"].append(round(right, 4))
            scores["sentences"].append(round(sentences_right(model, words), 4))
            rows[name]["parameters"] = model.num_parameters()
        rows[name][f"rate x {times:g}"] = scores
        print(name, times, scores, flush=True)
    return {"seeds": [*seeds], "size": SIZE, "recipe": RECIPE, "rows": rows}
