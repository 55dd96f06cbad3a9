"""Folders of a tiny GPT-2, in one file or two, and its weights as nanoGPT has them."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from tested_transformer.checkpoints import to_gpt2
from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(
    vocab_size=13,
    max_seq_len=7,
    d_model=6,
    num_heads=3,
    num_layers=2,
    activation="gelu_tanh",
)
INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))


def put(folder: Path, weights: dict[str, Tensor], settings: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "config.json", settings)
    save_file(weights, folder / "model.safetensors")


def put_in_parts(folder: Path, weights: dict[str, Tensor], settings: dict) -> None:
    put(folder, weights, settings)
    (folder / "model.safetensors").unlink()
    places = {name: (ONE, TWO)[n % 2] for n, name in enumerate(sorted(weights))}
    for file in (ONE, TWO):
        part = {name: weights[name] for name in places if places[name] == file}
        save_file(part, folder / file)
    write(folder / INDEX, {"metadata": {"total_size": 1}, "weight_map": places})


def as_nanogpt(model: GPT, *, bias: bool = True) -> tuple[dict[str, Tensor], dict]:
    """Return a model's weights as nanoGPT stores them, and its model_args."""
    weights, settings = to_gpt2(model)
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    theirs = {
        name: (weight.T if name.endswith(turned) else weight).contiguous()
        for name, weight in weights.items()
        if bias or not name.endswith("bias")
    }
    theirs["lm_head.weight"] = weights["transformer.wte.weight"].clone()
    sizes = {name: settings[name] for name in ("vocab_size", "n_embd", "n_head")}
    sizes |= {"block_size": settings["n_positions"], "n_layer": settings["n_layer"]}
    return theirs, {**sizes, "bias": bias, "dropout": model.config.dropout}
