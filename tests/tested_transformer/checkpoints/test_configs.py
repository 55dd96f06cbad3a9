"""Files from before attention was an object, and weights from before it had a core."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tested_transformer.attentions import (
    AdjustedSoftmax,
    ChosenBlocks,
    DeltaRule,
    Differential,
    Latent,
)
from tested_transformer.checkpoints import CheckpointError, load_checkpoint, ship_model
from tested_transformer.checkpoints.configs import describe_config, read_config
from tested_transformer.checkpoints.shipping import load_shipped
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.interfaces import Attention
from tested_transformer.multihead import Softmax

# The config of a checkpoint of version 0.1, as it stands in its file.
OLD = """
{"vocab_size": 11, "max_seq_len": 9, "d_model": 12, "num_heads": 2, "num_layers": 2,
"attention": "softmax", "softmax_every": null, "latent_dim": null, "soft_cap": null,
"block_size": null, "num_chosen": null, "num_kv_heads": null, "d_ff": null,
"positions": "learned", "rotary_base": 10000.0, "rotary_rates": null,
"rotary_attention_factor": 1.0, "windows": null, "activation": "gelu", "norm": "layer",
"bias": true, "tie_head": true, "dropout": 0.0, "num_experts": 0,
"experts_per_token": 2, "qk_norm": false, "smear": false, "zero_init": false,
"fused": true, "kept_heads": null}
"""
SIZES: dict[str, int] = {
    "vocab_size": 11,
    "max_seq_len": 9,
    "d_model": 12,
    "num_heads": 2,
    "num_layers": 2,
}
PATH = Path("checkpoint.json")


def old(**changes: Any) -> dict[str, Any]:
    return json.loads(OLD) | changes


OF_OLD: list[tuple[dict[str, Any], Attention]] = [
    ({}, Softmax()),
    ({"attention": "latent", "positions": "rotary"}, Latent()),
    (
        {"attention": "latent", "latent_dim": 5, "positions": "rotary"},
        Latent(latent_dim=5),
    ),
    ({"attention": "gated_delta", "softmax_every": 2}, DeltaRule(gated=True)),
    ({"attention": "gated"}, AdjustedSoftmax(gate="features")),
    ({"attention": "soft_capped"}, AdjustedSoftmax(soft_cap=50.0)),
    ({"attention": "soft_capped", "soft_cap": 5.0}, AdjustedSoftmax(soft_cap=5.0)),
    ({"attention": "blocks"}, ChosenBlocks(block_size=16, num_chosen=3)),
    ({"attention": "blocks", "block_size": 2}, ChosenBlocks(block_size=2)),
]


def test_old_settings_are_read() -> None:
    for changes, attention in OF_OLD:
        rest = {"positions": "learned", "softmax_every": None} | changes
        more = {name: rest[name] for name in ("positions", "softmax_every")}
        wanted = GPTConfig(**SIZES, attention=attention, **more)
        assert read_config(old(**changes), PATH) == wanted
        again = json.loads(json.dumps(describe_config(wanted)))
        assert read_config(again, PATH) == wanted


def test_settings_are_written_with_the_name_and_all_that_belongs_to_it() -> None:
    config = GPTConfig(**SIZES, attention=Latent(latent_dim=5), positions="rotary")
    described = describe_config(config)
    assert described["attention"] == "latent"
    assert described["attention_settings"] == {"latent_dim": 5}
    assert described["d_model"] == 12


def test_what_no_attention_has_is_refused_with_the_file() -> None:
    changes: dict[str, Any]
    for changes, message in (
        ({"attention": "none"}, ".*attention='none' must be one of softmax, latent"),
        ({"latent_dim": 5}, ".*latent_dim=5 does not fit attention='softmax'"),
        ({"attention_settings": {"x": 1}}, ".*x=1 does not fit attention='softmax'"),
        ({"attention": {"name": "latent"}}, ".*unhashable type"),
        ({"colour": 1}, "config has colour, which this library does not know"),
    ):
        with pytest.raises(CheckpointError, match=rf"^checkpoint\.json: {message}"):
            read_config(old(**changes), PATH)


OF_CORES = {
    "sink": AdjustedSoftmax(learned_sink=True),
    "gated": AdjustedSoftmax(gate="features"),
    "differential": Differential(),
}


def save_as_before(folder: Path, model: GPT, name: str) -> None:
    """Save a checkpoint whose weights and optimizer know nothing of cores."""
    weights = {
        key.replace(".core.", "."): each for key, each in model.state_dict().items()
    }
    training = {f"optimizer/{key}/exp_avg": each for key, each in weights.items()}
    content: dict[str, Any] = {
        "format": "tested-transformer checkpoint",
        "version": 1,
        "config": old(attention=name),
        "settings": {},
        "training": {"step": 3},
        "files": {},
    }
    for kind, tensors in {"model": weights, "training": training}.items():
        data = safetensors.torch.save(tensors)
        digest = hashlib.sha256(data).hexdigest()
        file = f"{kind}-{digest[:16]}.safetensors"
        (folder / file).write_bytes(data)
        record = {"file": file, "bytes": len(data), "sha256": digest}
        content["files"][kind] = record
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "checkpoint.json").write_text(json.dumps(content))


def test_old_weights_and_their_optimizer_are_read(tmp_path: Path) -> None:
    for name, attention in OF_CORES.items():
        model = GPT(GPTConfig(**SIZES, attention=attention))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        (tmp_path / name).mkdir()
        save_as_before(tmp_path / name, model, name)
        checkpoint = load_checkpoint(tmp_path / name)
        tokens = torch.arange(9)[None]
        assert torch.equal(checkpoint.model()(tokens), model(tokens)), name
        assert checkpoint.training is not None
        names = {f"optimizer/{key}/exp_avg" for key in model.state_dict()}
        assert checkpoint.training[0].keys() == names


def test_an_old_shipped_model_is_read(tmp_path: Path) -> None:
    model = GPT(GPTConfig(**SIZES, attention=OF_CORES["sink"])).half().float()
    ship_model(tmp_path, model)
    card = json.loads((tmp_path / "card.json").read_text())
    file = tmp_path / "model.safetensors"
    weights = safetensors.torch.load(file.read_bytes())
    data = safetensors.torch.save(
        {key.replace(".core.", "."): each for key, each in weights.items()}
    )
    file.write_bytes(data)
    card["config"] = old(attention="sink")
    card["weights"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (tmp_path / "card.json").write_text(json.dumps(card))
    tokens = torch.arange(9)[None]
    assert torch.equal(load_shipped(tmp_path).model(tokens), model.eval()(tokens))
