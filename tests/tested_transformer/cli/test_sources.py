import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tested_transformer.checkpoints import (
    CheckpointError,
    hub,
    load_checkpoint,
    save_checkpoint,
    ship_model,
    to_gpt2,
)
from tested_transformer.cli.sources import find_checkpoint, load_source, load_text
from tested_transformer.data import bpe_tokenizer
from tested_transformer.gpt import GPT, GPTConfig

CPU = torch.device("cpu")


def put_gpt2(folder: Path) -> GPT:
    """Make a tiny GPT-2, as it is published."""
    tokenizer = bpe_tokenizer("to be, or not to be " * 5, 260)
    model = GPT(
        GPTConfig(
            vocab_size=tokenizer.vocab_size,
            max_seq_len=7,
            d_model=12,
            num_heads=3,
            num_layers=2,
            activation="gelu_tanh",
        )
    )
    folder.mkdir()
    weights, settings = to_gpt2(model)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings))
    definition = tokenizer.to_dict()["tokenizer"]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    return model


def test_the_latest_run_is_the_default(
    text: Path, tiny: list[str], command: Callable[..., Any]
) -> None:
    with pytest.raises(
        CheckpointError, match=r"^there is no run in runs: name a folder"
    ):
        find_checkpoint(None, training=False)
    for name, when in (("one", 200), ("two", 300), ("three", 100)):
        words = [str(text), *tiny, "--steps", "1", "--sample", "0"]
        assert command("train", *words, "--out", f"runs/{name}").status == 0
        os.utime(f"runs/{name}/checkpoint.json", (when, when))
    assert find_checkpoint(None, training=False).folder == Path("runs/two")
    assert find_checkpoint(None, training=False).training is None
    assert find_checkpoint("runs/one", training=True).training is not None


def test_a_run_has_its_tokenizer(trained: Path) -> None:
    source = load_source("runs/play", CPU)
    assert source.tokenizer.decode(source.tokenizer.encode("to be")) == "to be"
    assert (Path(source.name), source.model.training) == (Path("runs/play"), False)
    assert source.about == load_checkpoint("runs/play").settings


def test_a_model_with_a_card_is_read() -> None:
    tokenizer = bpe_tokenizer("to be, or not to be " * 5, 260)
    config = GPTConfig(vocab_size=260, d_model=12, num_heads=3, num_layers=1)
    card = {"tokenizer": tokenizer.to_dict(), "text": {"name": "play"}}
    ship_model("given", GPT(config), card)
    source = load_source("given", CPU)
    assert source.tokenizer.decode(source.tokenizer.encode("to be")) == "to be"
    assert (source.name, source.model.training) == ("given", False)
    assert source.about["text"] == {"name": "play"}
    ship_model("given", GPT(config))
    with pytest.raises(CheckpointError) as error:
        load_source("given", CPU)
    assert str(error.value).startswith("given does not say what its tokens are: put")


def test_gpt2_is_read_as_it_is_published() -> None:
    model = put_gpt2(Path("tiny"))
    source = load_source("tiny", CPU)
    assert torch.equal(source.model.head_weight, model.head_weight)
    assert source.tokenizer.decode(source.tokenizer.encode("to be")) == "to be"
    assert (source.name, source.model.training) == ("tiny", False)
    Path("tiny/tokenizer.json").unlink()
    with pytest.raises(CheckpointError) as error:
        load_source("tiny", CPU)
    assert str(error.value).startswith("tiny does not say what its tokens are: put")


@pytest.mark.parametrize(
    ("name", "asked"), [("gpt2", "gpt2"), ("hub:some/tiny", "some/tiny")]
)
def test_models_on_the_hub_go_by_name(
    name: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = put_gpt2(Path("kept"))
    seen: list[object] = []

    def fetch(name: str, file: str, *, revision: str | None) -> Path | None:
        seen.append((name, file, revision))
        path = Path("kept") / file
        return path if path.is_file() else None

    monkeypatch.setattr(hub, "_fetch", fetch)
    source = load_source(name, CPU)
    assert torch.equal(source.model.head_weight, model.head_weight)
    files = ["tokenizer.json", "config.json", "model.safetensors"]
    assert (source.name, seen) == (asked, [(asked, file, None) for file in files])


def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub() -> None:
    with pytest.raises(CheckpointError) as error:
        load_source("runs/plya", CPU)
    assert str(error.value).startswith("there is no folder runs/plya; type hub:runs/")


def test_a_model_without_a_tokenizer_is_refused() -> None:
    model = GPT(GPTConfig(vocab_size=5, d_model=12, num_heads=3, num_layers=1))
    save_checkpoint("alone", config=model.config, weights=model.state_dict())
    with pytest.raises(CheckpointError) as error:
        load_source("alone", CPU)
    assert str(error.value).startswith("alone does not say what its tokens are: put")


def test_a_text_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="alone has no text of its own: pass a text"):
        load_text({}, "alone")
