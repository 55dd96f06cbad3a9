"""What checkpoint.json says, and what is refused of it."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tested_transformer.checkpoints import CheckpointError, saving
from tested_transformer.checkpoints.configs import describe_config
from tested_transformer.checkpoints.saving import FileRecord, Manifest
from tested_transformer.gpt import GPTConfig

PATH = Path("run/checkpoint.json")
CONFIG = GPTConfig(vocab_size=11, d_model=12, num_heads=3, d_ff=20, tie_head=False)
SETTINGS = {"tokenizer": {"characters": 'ab"ü\n🙂'}, "rate": 0.1, "none": None}
MODEL = FileRecord("model-0123456789abcdef.safetensors", 123, "01" * 32)
TRAINING = FileRecord(f"training-{'f' * 16}.safetensors", 45, "23" * 32)
MANIFEST = Manifest(
    CONFIG, SETTINGS, {"step": 7, "loss": 1 / 3}, {"model": MODEL, "training": TRAINING}
)


def text_with(**changes: Any) -> bytes:
    """Give the JSON with other content, and a hash that is right for it."""
    content = {**json.loads(MANIFEST.to_text()), **changes}
    del content["sha256"]
    content = {name: value for name, value in content.items() if value != "gone"}
    return json.dumps({**content, "sha256": saving._hash(content)}).encode()


def test_it_comes_back():
    text = MANIFEST.to_text()
    assert Manifest.from_text(text.encode(), PATH) == MANIFEST
    content = json.loads(text)
    assert [*content] == [
        *("format", "version", "config", "settings", "training", "files", "sha256")
    ]
    assert content["config"] == describe_config(CONFIG)
    assert text.endswith("\n}\n")
    assert Manifest.from_text(text_with(), PATH) == MANIFEST
    # Files of before have the hash of this text: sorted and without spaces.
    assert saving._hash({"b": "ü", "a": [1, 0.1]}).startswith("a6ad39c9b0729846")


def test_a_manifest_that_was_cut_short_anywhere_is_refused():
    text = MANIFEST.to_text().encode()
    for size in range(len(text) - 2):
        with pytest.raises(CheckpointError, match=f"^{PATH} is cut short or not JSON$"):
            Manifest.from_text(text[:size], PATH)


def test_a_manifest_that_was_altered_is_refused():
    text = MANIFEST.to_text()
    message = f"^{PATH} was altered: its sha256 does not match$"
    for what, by in (
        ('"d_model": 12', '"d_model": 24'),
        ('"step": 7', '"step": 8'),
        ('"step"', '"stop"'),
        ("0.3333333333333333", "0.3333333333333334"),
        ('"bytes": 45', '"bytes": 46'),
        ('"none": null', '"none": 0'),
        ('"sha256": "', '"sha": "'),
    ):
        assert what in text
        altered = by.join(text.rsplit(what, 1))
        with pytest.raises(CheckpointError, match=message):
            Manifest.from_text(altered.encode(), PATH)


NO_MANIFESTS = [
    (b"\xff\xfe", " is cut short or not JSON"),
    (b"[" * 100_000, " is cut short or not JSON"),
    (b"[1]", " holds no settings"),
    (b'{"step": 3}', " is not a checkpoint of this library"),
    (text_with(version=2), " is of version 2; this library reads version 1"),
    (text_with(files="gone"), " is not a complete checkpoint"),
    (text_with(files={"model": {"file": "x"}}), " is not a complete checkpoint"),
    (
        text_with(files={"model": {**asdict(MODEL), "file": "../../secret"}}),
        " names an unexpected file, '../../secret'",
    ),
    (
        text_with(config={**describe_config(CONFIG), "d_model": "wide"}),
        ": config: d_model='wide' must be an int",
    ),
]


@pytest.mark.usefixtures("as_a_caller")
def test_what_is_no_manifest_of_ours_is_refused():
    for text, message in NO_MANIFESTS:
        with pytest.raises(CheckpointError, match=f"^{PATH}{re.escape(message)}$"):
            Manifest.from_text(text, PATH)


def test_what_json_would_change_is_refused():
    changed = "would not survive JSON: it holds tuples, or keys that are not strings"
    invalid = "cannot be written as JSON: "
    for settings, training, message in (
        ({"betas": (0.9, 0.99)}, None, f"settings {changed}"),
        ({}, {"names": {1: "one"}}, f"training {changed}"),
        ({"path": PATH}, None, f"settings {invalid}Object of type "),
        ({}, {"loss": float("nan")}, f"training {invalid}Out of range float values "),
    ):
        manifest = Manifest(CONFIG, settings, training, {"model": MODEL})
        with pytest.raises(ValueError, match=f"^{message}"):
            manifest.to_text()
