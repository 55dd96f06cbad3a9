import json
import os
import sys
from pathlib import Path
from threading import Thread

import pytest
import torch
from tests.tested_transformer.checkpoints.folders import put

from tested_transformer.checkpoints import (
    CheckpointError,
    hub,
    load_checkpoint,
    save_checkpoint,
    ship_model,
    to_gpt2,
)
from tested_transformer.cli.sources import (
    Source,
    find_checkpoint,
    load_source,
    load_text,
)
from tested_transformer.data import bpe_tokenizer
from tested_transformer.gpt import GPT, GPTConfig

CPU = torch.device("cpu")


TOKENIZER = bpe_tokenizer("to be, or not to be " * 5, 260)


def put_gpt2(folder: Path) -> GPT:
    """Make a tiny GPT-2, as it is published."""
    sizes = {"max_seq_len": 7, "d_model": 12, "num_heads": 3, "num_layers": 2}
    model = GPT(GPTConfig(vocab_size=260, activation="gelu_tanh", **sizes))
    put(folder, *to_gpt2(model))
    definition = TOKENIZER.to_dict()["tokenizer"]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    return model


def check_reads(source: Source, text: str = "to be") -> None:
    assert source.tokenizer.decode(source.tokenizer.encode(text)) == text
    assert not source.model.training


def test_the_latest_run_is_the_default(text, tiny, command):
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


def test_a_run_has_its_tokenizer(trained):
    source = load_source("runs/play", CPU)
    check_reads(source)
    assert Path(source.name) == Path("runs/play")
    assert source.about == load_checkpoint("runs/play").settings


def test_a_model_with_a_card_is_read():
    config = GPTConfig(vocab_size=260, d_model=12, num_heads=3, num_layers=1)
    card = {"tokenizer": TOKENIZER.to_dict(), "text": {"name": "play"}}
    ship_model("tiny", GPT(config), card)
    source = load_source("tiny", CPU)
    check_reads(source)
    assert (source.name, source.about["text"]) == ("tiny", {"name": "play"})
    ship_model("tiny", GPT(config))
    with pytest.raises(
        CheckpointError, match=r"^tiny does not say what its tokens are"
    ):
        load_source("tiny", CPU)


@pytest.mark.parametrize(
    ("name", "repo"), [("gpt2", "gpt2"), ("hub:some/tiny", "some/tiny")]
)
def test_models_on_the_hub_go_by_name(name, repo, monkeypatch):
    model = put_gpt2(Path("kept"))
    seen: list[object] = []

    def fetch(name, file, *, revision):
        seen.append((name, file, revision))
        path = Path("kept") / file
        return path if path.is_file() else None

    monkeypatch.setattr(hub, "_fetch", fetch)
    source = load_source(name, CPU)
    assert torch.equal(source.model.head_weight, model.head_weight)
    files = ["tokenizer.json", "config.json", "model.safetensors"]
    files += ["generation_config.json", "config.json"]  # for the tokens that end a text
    assert (source.name, seen) == (repo, [(repo, file, None) for file in files])


def test_a_model_in_the_cache_needs_no_network_for_what_it_may_lack(monkeypatch):
    put_gpt2(Path("kept"))

    def fetch(name, file, *, revision):
        if file == "generation_config.json":
            raise ConnectionError
        return Path("kept") / file

    monkeypatch.setattr(hub, "_fetch", fetch)
    settings = json.loads(Path("kept/config.json").read_text())
    Path("kept/config.json").write_text(json.dumps(settings | {"eos_token_id": 5}))
    assert load_source("gpt2", CPU).end_tokens == [5]


def test_a_text_that_is_not_known_is_named():
    for about in ({}, {"text": None}, {"text": {}}, {"text": "play.txt"}):
        with pytest.raises(ValueError, match=r"^alone has no text of its own: pass a"):
            load_text(about, "alone")


def test_gpt2_is_read_as_it_is_published_by_every_command(text, command):
    model = put_gpt2(Path("tiny"))
    source = load_source("tiny", CPU)
    check_reads(source)
    assert source.name == "tiny"
    state = source.model.state_dict()
    torch.testing.assert_close(state, model.state_dict(), rtol=0, atol=0)
    for name in ("generate", "evaluate", "heads"):
        more = ["--max-new-tokens", "3"] if name == "generate" else [str(text)]
        assert command(name, "tiny", *more).status == 0
    # The tokenizer of the folder serves any model.
    Path("tiny/config.json").unlink()
    Path("tiny/model.safetensors").unlink()
    save_checkpoint("tiny", config=model.config, weights=model.state_dict())
    check_reads(load_source("tiny", CPU))


def test_a_tokenizer_that_does_not_fit_is_refused():
    put_gpt2(Path("tiny"))
    larger = bpe_tokenizer("to be, or not to be " * 5, 263).to_dict()["tokenizer"]
    for content, message in (
        (json.dumps(larger), "tiny has a tokenizer of 263 tokens"),
        ("[]", r".*tokenizer\.json: definition is not"),
    ):
        Path("tiny/tokenizer.json").write_text(content)
        with pytest.raises(CheckpointError, match=f"^{message}"):
            load_source("tiny", CPU)


@pytest.mark.skipif(os.name == "nt", reason="paths are written in another way there")
def test_what_is_no_model_says_what_to_type(trained):
    Path("nano").mkdir()
    Path("nano/ckpt.pt").touch()
    file = "runs/play/checkpoint.json"
    for name, message in {
        "play": "there is no folder 'play'; type runs/play",
        "runs/plya": "there is no folder 'runs/plya'; a model on the hub is",
        "some/model": "there is no folder 'some/model'; a model on the hub is hub:OWN",
        "To be": "there is no folder 'To be'",
        "": "there is no folder ''",
        "~nobody-at-all/x": "there is no folder '~nobody-at-all/x'",
        "runs": "runs holds no model: name one of those in it, such as runs/play",
        file: f"{file} is a file: name the ",
        "nano": "nano holds no model: ckpt.pt is a pickle, which can run any code wh",
    }.items():
        with pytest.raises(CheckpointError) as error:
            load_source(name, CPU)
        assert str(error.value).startswith(message)
        if message.startswith("there is no folder"):
            with pytest.raises(CheckpointError, match=r"^there is no folder"):
                find_checkpoint(name, training=True)


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pipes in folders")
def test_a_run_from_a_pipe_asks_for_its_text(text, tiny, command):
    os.mkfifo("pipe")
    writer = Thread(target=Path("pipe").write_text, args=(text.read_text(),))
    writer.start()
    assert command("train", "pipe", *tiny).status == 0
    writer.join()
    about = load_checkpoint("runs/pipe").settings
    with pytest.raises(ValueError, match=r"^there is no file 'pipe'; runs/pipe was "):
        load_text(about, "runs/pipe")
    assert len(load_text(about, "runs/pipe", str(text)).tokens) == len(text.read_text())


def test_a_text_that_is_gone_is_named(trained_here, text):
    about = load_checkpoint(trained_here).settings
    text.rename("moved.txt")
    with pytest.raises(ValueError, match=r"play was trained on .*: pass the path of"):
        load_text(about, trained_here)
    assert load_text(about, trained_here, "moved.txt").num_characters > 0
