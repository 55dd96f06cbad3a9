import copy
import errno
import json
import re
from pathlib import Path

import pytest
import torch

from tested_transformer.checkpoints import CheckpointError, load_shipped, ship_model
from tested_transformer.gpt import GPT, GPTConfig

CONFIG = GPTConfig(vocab_size=13, max_seq_len=11, d_model=15, num_heads=3, num_layers=2)


@pytest.fixture
def model():
    return GPT(CONFIG)


def test_a_model_comes_back_in_half_its_digits(model, tmp_path):
    ship_model(tmp_path / "new", model, {"name": "ours"})
    shipped = load_shipped(tmp_path / "new")
    assert shipped.card["name"] == "ours"
    assert shipped.card["weights"]["dtype"] == "float16"
    assert shipped.model.config == CONFIG
    assert not shipped.model.training
    halved = copy.deepcopy(model).half().float().state_dict()
    torch.testing.assert_close(shipped.model.state_dict(), halved, rtol=0, atol=0)
    # Once halved, nothing more is lost.
    ship_model(tmp_path / "again", shipped.model)
    ours, theirs = (
        tmp_path / folder / "model.safetensors" for folder in ("new", "again")
    )
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_weight_beyond_half_precision_is_refused(model, tmp_path):
    with torch.no_grad():
        model.norm.weight[2] = 70_000.0
    message = "^norm.weight has numbers that are too large for half precision$"
    with pytest.raises(ValueError, match=message):
        ship_model(tmp_path / "new", model)
    assert not (tmp_path / "new").exists()


def test_what_a_card_cannot_say_is_refused_before_anything_is_written(model, tmp_path):
    for value, message in (
        ({1}, "Object of type set is not JSON serializable"),
        (float("nan"), "Out of range float values are not JSON compliant"),
        ("\ud800", "'utf-8' codec can't encode character"),
    ):
        message = f"^about cannot be written as JSON: {message}"
        with pytest.raises(ValueError, match=message):
            ship_model(tmp_path / "new", model, {"a": value})
        assert not (tmp_path / "new").exists()


def test_a_model_that_cannot_be_written_leaves_the_one_before(
    model, tmp_path, monkeypatch
):
    ship_model(tmp_path, model, {"name": "first"})
    write_bytes = Path.write_bytes

    def full(path, data):
        write_bytes(path, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        ship_model(tmp_path, GPT(CONFIG), {"name": "second"})
    monkeypatch.undo()
    shipped = load_shipped(tmp_path)
    assert shipped.card["name"] == "first"
    assert torch.equal(shipped.model.norm.weight, model.norm.weight.half().float())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "card.json",
        "model.safetensors",
    ]
    ship_model(tmp_path, GPT(CONFIG), {"name": "second"})
    assert load_shipped(tmp_path).card["name"] == "second"


def test_what_is_wrong_with_a_folder_is_named(model, tmp_path):
    weights, card = tmp_path / "model.safetensors", tmp_path / "card.json"
    ship_model(tmp_path, model)
    weight_bytes, content = weights.read_bytes(), json.loads(card.read_text())
    altered = "model.safetensors was altered: its sha256 begins with "
    ours, config = content["weights"], content["config"]
    lacking = "does not have the weights that its settings require: "
    for path, data, message in (
        (weights, weight_bytes[:-1] + bytes([weight_bytes[-1] ^ 1]), altered),
        (weights, None, "model.safetensors is missing"),
        (card, None, "card.json is missing"),
        (card, "{", "card.json is cut short or not JSON"),
        (card, {"weights": None}, "is not the card of a model"),
        (card, {"weights": ours | {"bytes": "many"}}, "is not the card of a model"),
        (card, {"weights": ours | {"sha256": None}}, "was altered: its sha256 begins"),
        (card, {"config": [1]}, "config=[1] must have a model's"),
        (
            card,
            {"config": config | {"d_model": 18}},
            f"{lacking}token_embedding.weight is (13, 15), not (13, 18)",
        ),
    ):
        ship_model(tmp_path, model)
        if data is None:
            path.unlink()
        elif isinstance(data, dict):
            path.write_text(json.dumps(content | data))
        else:
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        with pytest.raises(CheckpointError, match=re.escape(message)):
            load_shipped(tmp_path)
