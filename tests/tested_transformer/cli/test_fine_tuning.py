"""``train --from``: a model that was trained before goes on, on another text."""

import json
import shlex
from pathlib import Path

import pytest
import torch
import transformers
from tests.tested_transformer.data.published import TEXT, put

from tested_transformer.checkpoints import load_checkpoint, load_pretrained
from tested_transformer.cli import train as module
from tested_transformer.cli.sources import load_source
from tested_transformer.training import Recipe

SHORT = ["--steps", "6", "--precision", "fp32", "--sample", "0", "--json"]


@pytest.fixture
def folder():
    """Return the folder of a tiny Llama in half precision, made by transformers."""
    path = Path("published")
    put("llama", path, eos_token_id=7).to(torch.bfloat16).save_pretrained(path)
    return path


@pytest.fixture
def poem():
    path = Path("poem.txt")
    path.write_text(TEXT * 8)
    return path


def test_a_published_model_is_tuned_and_exported_again(folder, poem, command):
    def loss_of(model):
        words = ["--seq-len", "30", "--json"]
        return command("evaluate", str(model), str(poem), *words).json["loss"]

    words = ["--steps", "20", "--lr", "0.01", "--seq-len", "30", *SHORT[2:]]
    ended = command("train", str(poem), "--from", str(folder), *words)
    assert (ended.status, ended.err) == (0, "")
    run = Path("runs/poem")
    assert loss_of(run) < loss_of(folder) - 0.5
    checkpoint = load_checkpoint(run)
    assert checkpoint.settings["from"] == "published"
    assert checkpoint.config == load_pretrained(folder).config
    assert {weight.dtype for weight in checkpoint.weights.values()} == {torch.float32}
    source = load_source(str(run), torch.device("cpu"))
    assert source.end_tokens == [7]
    assert source.opening == load_source(str(folder), torch.device("cpu")).opening
    assert command("generate", str(run), "--max-new-tokens", "3").status == 0
    assert command("export", str(run), "out").status == 0
    exported = json.loads(Path("out/config.json").read_text())
    assert (exported["model_type"], exported["eos_token_id"]) == ("llama", 7)
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    assert theirs("The cat")["input_ids"][0] == source.opening[0]


def test_the_recipe_is_gentle_and_windows_are_short(folder, poem, command, monkeypatch):
    seen: list[Recipe] = []

    def note(model, tokens, recipe, **settings):
        seen.append(recipe)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.training, "train", note)
    poem.write_text(TEXT * 50)
    assert command("train", str(poem), "--from", str(folder)).status == 130
    expected = {"steps": 200, "batch_size": 4, "lr": 1e-4, "warmup": 20}
    assert seen == [Recipe(**expected, seq_len=1024, evaluate_every=50)]


def test_a_run_that_was_stopped_gives_the_losses_of_one_that_was_not(
    trained, poem, command, monkeypatch
):
    """From a run of this library, too."""
    poem.write_text("not to be, to be.\n" * 30)
    words = ["train", str(poem), "--from", str(trained), *SHORT, "--lr", "0.01"]
    losses = command(*words, "--out", "whole").losses
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    with monkeypatch.context() as patch:
        calls = iter([False, False, True])
        patch.setattr(module.StopRequest, "__call__", lambda _: next(calls))
        part = command(*words, "--out", "parts")
    assert part.losses == losses[:3]
    rest = command(*shlex.split(part.events[-1]["resume"])[1:])
    assert (rest.status, rest.losses) == (0, losses[3:])
    weights, resumed_weights = (
        load_checkpoint(folder).weights for folder in ("whole", "parts")
    )
    torch.testing.assert_close(weights, resumed_weights, rtol=0, atol=0)


def test_what_the_model_decides_is_refused(trained, text, refused):
    for words, named in (
        ("--d-model 8 --recipe fast --like llama", "recipe, like, d_model"),
        ("--attention latent --latent-dim 4", "attention, latent_dim"),
        ("--tokenizer bpe --vocab-size 300", "tokenizer, vocab_size"),
    ):
        words = f"--from {trained} --out tuned {words}"
        line = refused("train", str(text), *words.split())
        assert line == f"{named}: --from takes these from the model; leave them out"


def test_a_run_is_resumed_only_from_the_same_model(trained, text, command, refused):
    words = [str(text), "--out", "tuned", *SHORT, "--steps", "1"]
    assert command("train", *words, "--from", str(trained)).status == 0
    line = refused("train", *words, "--resume", "--from", "gpt2")
    assert f"tuned was saved with from='{trained}', not 'gpt2'" in line
    line = refused("train", str(text), "--from", "nowhere", "--out", "other")
    assert line.startswith("there is no folder 'nowhere'")


def test_a_sample_makes_room_for_itself_alone(folder, poem, command, monkeypatch):
    lengths: list[int | None] = []
    new_cache = module.GPT.new_cache

    def note(self, batch_size=1, *, max_length=None):
        lengths.append(max_length)
        return new_cache(self, batch_size, max_length=max_length)

    monkeypatch.setattr(module.GPT, "new_cache", note)
    words = ["--steps", "1", "--seq-len", "9", "--sample", "5", "--precision", "fp32"]
    ended = command("train", str(poem), "--from", str(folder), *words)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("training published: ")
    assert lengths == [6, 6]
