"""Folders of a tiny GPT-2, with its weights in one file or in two and an index."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from tested_transformer.gpt import GPTConfig

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
