"""Tiny models of today's families, and which parts of the library work on each."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tested_transformer.checkpoints import FAMILIES
from tested_transformer.decoding import (
    CachedReader,
    Decoder,
    ModelDrafter,
    Reader,
    Request,
    Sampling,
    Server,
    generate,
    serve,
    speculate,
)
from tested_transformer.decoding.cache_readers import reader_with
from tested_transformer.gpt import GPT
from tested_transformer.interpret import gated_heads, record_heads, shut
from tested_transformer.surgery import prune_heads, stretched_by

__all__ = ["FEATURES", "SETTINGS", "row", "tiny"]

_WINDOW = {"sliding_window": 7}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_GEMMA = {"attn_logit_softcapping": None, "final_logit_softcapping": None, **_WINDOW}
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "smollm3": {"no_rope_layer_interval": 2},
    "mistral": _WINDOW,
    "mixtral": {**_EXPERTS, "sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": {**_EXPERTS, "moe_intermediate_size": 32, "norm_topk_prob": True},
    "olmo2": {},
    "gemma2": {
        **_GEMMA,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 16,
    },
    "gemma3_text": {**_GEMMA, "query_pre_attn_scalar": 16, "sliding_window_pattern": 2},
    "gpt_oss": {**_EXPERTS, **_WINDOW, "rope_scaling": {"rope_type": "default"}},
    "phi3": {},
}
"""What a tiny ``config.json`` of each family says in addition to the sizes."""

_SIZES = {
    "vocab_size": 61,
    "max_position_embeddings": 40,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def tiny(name: str, *, num_layers: int = 2) -> GPT:
    """Return a tiny model of a family, with random weights that all have an effect."""
    settings = {"model_type": name, "num_hidden_layers": num_layers, **_SIZES}
    model = GPT(FAMILIES[name].config({**settings, **SETTINGS[name]}, name))
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        nn.init.normal_(weight, float(weight.ndim == 1), 0.2, generator=generator)
    return model.eval().requires_grad_(False)


# How far results may be from those of the model itself, of the size of its logits.
_EQUAL, _EIGHT_BITS, _FOUR_BITS = 1e-5, 0.05, 0.5


def _gap(output: Tensor, expected: Tensor) -> float:
    return float((output - expected).norm() / expected.norm())


def _read(make: Callable[[GPT], Reader], model: GPT, text: Tensor) -> float:
    reader = make(model)
    # Longer than the group of tokens that a quantized cache rounds together.
    logits = [reader.read(text[:, :35].tolist())]
    logits += [reader.step(token) for token in text[:, 35:].T]
    return _gap(torch.stack(logits, dim=1), model(text)[:, 34:])


def _pad(model: GPT, text: Tensor) -> float:
    logits = CachedReader(model).read([text[0].tolist(), text[1, :5].tolist()])
    return _gap(logits[1], model(text[1:, :5])[0, -1])


def _speculate(model: GPT, text: Tensor) -> float:
    greedy, prompt, config = Sampling(temperature=0.0), text[0, :9], model.config
    [expected] = generate(model, prompt[None], max_new_tokens=7, sampling=greedy)
    one = {"num_layers": 1, "windows": config.window_of(0), "rotary_layers": None}
    small = GPT(replace(config, **one)).eval()
    speculation = speculate(
        model,
        prompt.tolist(),
        ModelDrafter(small, probabilities=greedy.probabilities),
        max_new_tokens=7,
        probabilities=greedy.probabilities,
    )
    return float(speculation.tokens != expected)


def _serve(model: GPT, text: Tensor) -> float:
    greedy, prompts = Sampling(temperature=0.0), [row.tolist() for row in text[:, :9]]
    expected = generate(model, prompts, max_new_tokens=5, sampling=greedy)
    requests = [Request(prompt=prompt, max_new_tokens=5) for prompt in prompts]
    server = Server(model, num_pages=8, page_size=4, probabilities=greedy.probabilities)
    serve(server, requests)
    return float([request.answer for request in requests] != expected)


def _stretch(model: GPT, text: Tensor) -> float:
    longer, twice = stretched_by(model, 2.0), text.repeat(1, 2)
    cache = longer.new_cache(len(text))
    pieces = [longer(piece, cache=cache) for piece in twice.split(33, dim=1)]
    return _gap(torch.cat(pieces, dim=1), longer(twice))


def _prune(model: GPT, text: Tensor) -> float:
    heads = [(0, 2), (0, 3)]  # which share a head of keys and values
    with gated_heads(model, shut(model, heads)):
        expected = model(text)
    return _gap(prune_heads(model, heads)(text), expected)


def _record(model: GPT, text: Tensor) -> float:
    recording = record_heads(model, text)
    sums = recording.weights[0].sum(-1)
    return max(_gap(recording.logits, model(text)), float(sums.max()) - 1.0)


FEATURES: dict[str, tuple[Callable[[GPT, Tensor], float], float]] = {
    "cache": (partial(_read, CachedReader), _EQUAL),
    "padding": (_pad, _EQUAL),
    "packed decoder": (partial(_read, Decoder), _EQUAL),
    "int8 matrices": (partial(_read, partial(Decoder, weights="int8")), _EIGHT_BITS),
    "rolling cache": (partial(_read, partial(reader_with, "rolling")), _EQUAL),
    "paged cache": (partial(_read, partial(reader_with, "paged")), _EQUAL),
    "int8 cache": (partial(_read, partial(reader_with, "int8")), _EIGHT_BITS),
    "int4 cache": (partial(_read, partial(reader_with, "int4")), _FOUR_BITS),
    "speculation": (_speculate, 0.0),
    "running batch": (_serve, 0.0),
    "longer texts": (_stretch, _EQUAL),
    "recorded heads": (_record, _EQUAL),
    "pruned heads": (_prune, _EQUAL),
}
"""What can be done with a model, and how exactly it should give the model's results.

Each returns how far from these it is, or raises what the library says against it.
"""


def row(name: str) -> dict[str, str]:
    """Try each feature on a tiny model of a family.

    Returns:
        For each feature ``yes``, or why not, in the words of the library.

    Raises:
        AssertionError: If a feature gives other results than the model itself.
    """
    return {feature: _try(name, feature) for feature in FEATURES}


@torch.no_grad()
def _try(name: str, feature: str) -> str:
    run, allowed = FEATURES[feature]
    text = torch.randint(61, (2, 40), generator=torch.Generator().manual_seed(1))
    try:
        gap = run(tiny(name), text)
    except ValueError as refused:
        return str(refused)
    if not gap <= allowed:
        raise AssertionError(f"{feature} of {name} is {gap:.1e} off, not {allowed}")
    return "yes"
