"""What published models are made of, read from their ``config.json``.

The settings are in ``todays_models.json``, without those that change nothing in a pass,
such as the ids of special tokens. Each is read as a model of its family is loaded, so a
table of them says what the library would build.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tested_transformer.attentions import AdjustedSoftmax
from tested_transformer.checkpoints import FAMILIES
from tested_transformer.gpt import GPTConfig

__all__ = ["PublishedModel", "attention_table", "block_table", "published_models"]

_FILE = Path(__file__).with_name("todays_models.json")


class PublishedModel(NamedTuple):
    """A model that others have published.

    Attributes:
        name: Its name on the hub; its page there has the whole ``config.json``.
        settings: What its ``config.json`` says, shortened.
        config: What that means.
    """

    name: str
    settings: dict[str, Any]
    config: GPTConfig


def published_models() -> dict[str, PublishedModel]:
    """Return published models by what they are usually called."""
    models: dict[str, PublishedModel] = {}
    for called, entry in json.loads(_FILE.read_text("utf-8")).items():
        name, settings = entry["published"], entry["settings"]
        config = FAMILIES[settings["model_type"]].config(settings, name)
        models[called] = PublishedModel(name, settings, config)
    return models


def attention_table() -> str:
    """Return a table of published models against the parts of their attention."""
    names = ["heads", "KV", "d_k", "rotary base", "window", "in attention"]
    return _table(names, _attention)


def block_table() -> str:
    """Return a table of published models against the parts around attention."""
    names = ["layers", "width", "norms", "feed-forward", "and", "head"]
    return _table(names, _block)


def _attention(config: GPTConfig) -> list[str]:
    windows = [*filter(None, map(config.window_of, range(config.num_layers)))]
    window = f"{windows[0]}" if windows else "-"
    if 0 < len(windows) < config.num_layers:
        window += f" in {len(windows)} of {config.num_layers}"
    base = f"{config.rotary_base:,.0f}"
    if config.rotary_rates is not None:
        base += ", slowed"
    if config.local_rotary_base is not None:
        base += f"; {config.local_rotary_base:,.0f}"
    parts = []
    if config.qkv_bias or config.bias:
        parts.append("biases" if config.bias else "biases on q, k, v")
    if config.qk_norm:
        all_heads = config.qk_norm == "projection"
        parts.append("q, k normed" + ", all heads" * all_heads)
    if isinstance(adjusted := config.attention, AdjustedSoftmax):
        parts += ["sinks"] * adjusted.learned_sink
        parts += [f"cap {adjusted.soft_cap:g}"] if adjusted.soft_cap else []
    kv_heads = config.num_kv_heads or config.num_heads
    heads = [config.num_heads, kv_heads, config.d_k]
    return [*map(str, heads), base, window, ", ".join(parts) or "-"]


def _block(config: GPTConfig) -> list[str]:
    inside = f"{config.activation.partition('_')[0]} {config.d_ff}"
    more = []
    if config.num_experts:
        more.append(f"{config.experts_per_token} of {config.num_experts} experts")
    if config.embedding_scale != 1:
        more.append(f"embeddings x {config.embedding_scale:.0f}")
    if config.logit_cap:
        more.append(f"logits within {config.logit_cap:g}")
    head = "tied" if config.tie_head else "its own"
    sizes = [str(config.num_layers), str(config.d_model), config.norm_place]
    return [*sizes, inside, ", ".join(more) or "-", head]


def _table(names: Sequence[str], row_of: Callable[[GPTConfig], list[str]]) -> str:
    models = published_models().items()
    rows = ([called, *row_of(model.config)] for called, model in models)
    cells = [["", *names], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
