import os
import re
import shlex
import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from tested_transformer.attentions import ATTENTIONS, attention_named
from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.cli import train as module
from tested_transformer.cli.display import Display, reminder
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe, TrainingDivergedError
from tested_transformer.training.monitor import DivergenceWatch


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def stop_at(monkeypatch):
    """Have this process get a signal right after a step, and so in the next."""

    def arrange(at, number):
        report = Display.step

        def step(display, progress):
            report(display, progress)
            if progress.step == at:
                signal.raise_signal(number)

        monkeypatch.setattr(Display, "step", step)

    return arrange


@pytest.fixture
def kill(monkeypatch):
    """Have the next runs end before their first step."""

    def killed(*_, **__):
        raise KeyboardInterrupt

    return partial(monkeypatch.setattr, module.training, "train", killed)


def test_a_run_says_what_it_does(text, train):
    ended = train()
    assert (ended.status, ended.err) == (0, "")
    for text_shown in (
        "2 layers, 3 heads, d_model=12, max_seq_len=7; on ",
        f"text: {text}, 484 characters, 484 tokens, vocabulary of 17",
        "49 tokens of it are evaluated",
        "\n--- before ---\n",
        "\nstep 3: held-out loss ",
        "\n--- after ---\n",
        "tested-transformer generate ",
    ):
        assert text_shown in ended.out
    files = sorted(file.name.split("-")[0] for file in Path("runs/play").iterdir())
    assert files == [".lock", "checkpoint.json", "model", "training"]


def test_for_programs_there_is_json_alone(train):
    ended = train("--json")
    assert (ended.status, ended.err) == (0, "")
    start, before, *steps, after, end = ended.events
    assert [before["event"], after["event"], end["event"]] == [
        "sample",
        "sample",
        "end",
    ]
    assert [event["step"] for event in steps] == [1, 2, 3, 4, 5, 6]
    last = steps[-1]["validation"]
    model = load_checkpoint("runs/play").model()
    assert start["parameters"] == model.num_parameters()
    assert (end["status"], end["loss"]) == ("finished", last["loss"])
    assert abs(last["prefix"] - last["full"]) < 1e-5


def test_models_and_recipes_are_as_asked_for(train):
    more = "--recipe plain --num-kv-heads 1 --no-bias --lr 0.25 --seed 3 --out here"
    assert train(*more.split()).status == 0
    checkpoint = load_checkpoint("here")
    config, recipe = vars(checkpoint.config), checkpoint.settings["recipe"]
    names = ("num_kv_heads", "bias", "num_layers", "num_heads", "d_model", "qk_norm")
    assert [config[name] for name in names] == [1, False, 2, 3, 12, False]
    names = ("lr", "seed", "steps", "batch_size", "optimizer", "warmup")
    assert [recipe[name] for name in names] == [0.25, 3, 6, 5, "adamw", 0]


# Those that keep something else than keys and values.
@pytest.mark.parametrize("attention", ["latent", "kimi_delta", "indexer", "compressed"])
def test_every_kind_of_attention_trains_and_writes(attention, train, command):
    words = ["--num-heads", "2", "--sample", "0", "--steps", "1"]
    ended = train(*words, "--attention", attention)
    assert (ended.status, ended.err) == (0, "")
    assert load_checkpoint("runs/play").config.attention == ATTENTIONS[attention]
    # More than its context of seven holds.
    written = command("generate", "--temperature", "0", "--max-new-tokens", "9")
    assert (written.status, len(written.out)) == (0, 9 + len("\n"))


def test_an_attention_has_its_settings_as_flags(train, refused, text):
    words = ["--attention", "sink", "--soft-cap", "5"]
    assert train(*words).status == 0
    attention = load_checkpoint("runs/play").config.attention
    assert attention == attention_named("sink", {"soft_cap": 5.0})
    assert train("--resume", *words).status == 0
    assert train("--resume", "--soft-cap", "5").status == 0
    error = refused("train", str(text), "--resume", "--soft-cap", "6")
    assert "config.attention_settings.soft_cap=5.0, not 6.0" in error


def test_another_seed_draws_other_weights(kill, train):
    kill()
    for seed in ("1", "2"):
        assert train("--seed", seed, "--out", seed).status == 130
    first, second = (load_checkpoint(folder).model().head_weight for folder in "12")
    assert not torch.equal(first, second)


def test_a_run_that_is_stopped_goes_on_to_the_same_losses(text, tiny, command, stop_at):
    words = ["train", str(text), *tiny, "--dropout", "0.5", "--json"]
    losses = command(*words, "--out", "whole").losses
    assert len(losses) == 6

    stop_at(2, signal.SIGTERM)
    ended = command(*words, "--out", "parts")
    assert ended.status == 143
    assert ended.losses == losses[:3]
    end = ended.events[-1]
    assert (end["status"], end["step"], end["saved_step"]) == ("stopped", 3, 3)
    resume = shlex.split(end["resume"].replace("\\", "/"))
    assert resume == ["tested-transformer", *words, "--out", "parts", "--resume"]

    rest = command(*resume[1:])
    assert (rest.status, rest.losses) == (0, losses[3:])
    weights, resumed_weights = (
        load_checkpoint(folder).weights for folder in ("whole", "parts")
    )
    torch.testing.assert_close(weights, resumed_weights, rtol=0, atol=0)


def test_a_stopped_run_says_how_to_go_on(text, tiny, monkeypatch, train):
    monkeypatch.setattr(module.StopRequest, "__call__", lambda _: True)
    ended = train("--overwrite")
    assert "stopped after step 1 of 6, saved after step 1" in ended.out
    last = ended.out.splitlines()[-1].split()
    assert last == ["tested-transformer", "train", str(text), *tiny, "--resume"]


def test_a_run_that_was_killed_before_its_first_save_can_go_on(
    kill, monkeypatch, train
):
    losses = train("--json", "--out", "whole").losses
    going = module.training.train
    kill()
    ended = train()
    assert ended.status == 130
    assert "interrupted" in ended.err
    monkeypatch.setattr(module.training, "train", going)
    assert train("--json", "--resume").losses == losses


def test_a_run_that_diverges_names_what_is_left_and_what_to_try(train):
    ended = train("--lr", "1e30", "--muon-lr", "1e30")
    assert ended.status == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("tested-transformer: error: the loss is nan at step ")
    assert "the last state was saved at step 0; try lr=5e+29 and muon_lr=" in line
    assert f"it is in {Path('runs/play')}" in line
    assert load_checkpoint("runs/play").training[1]["step"] == 0


@pytest.fixture
def two_processes(monkeypatch):
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("two_processes")
def test_several_processes_speak_with_one_voice(monkeypatch, train):
    writers: list[object] = []
    world = module.World(rank=1, size=2, local_rank=1)
    monkeypatch.setattr(module.training, "join_world", lambda device: world)
    monkeypatch.setattr(module, "CheckpointWriter", writers.append)

    def diverge(*_, **settings):
        assert settings["save"] is None
        raise TrainingDivergedError(3, None, "the loss is nan", "less")

    monkeypatch.setattr(module.training, "train", diverge)
    ended = train("--batch-size", "4", "--json")
    assert (ended.status, ended.out, writers) == (1, "", [])
    assert ended.err.startswith("tested-transformer: error: process 1: the loss is nan")


@pytest.mark.usefixtures("two_processes")
def test_a_batch_has_to_go_round(text, tiny, refused):
    message = "process 1: batch_size=5 must be divisible by accumulate=1 times 2 proc"
    assert refused("train", str(text), *tiny).startswith(message)


# What is overwritten.


@pytest.mark.parametrize("way", ["killed", "diverged"])
def test_a_run_that_is_overwritten_stays_until_the_new_one_is_saved(
    way, trained, text, command, kill, train, tiny, refused
):
    before = contents(trained)
    words = [str(text), *tiny, "--seed", "2"]
    assert "already holds a run" in refused("train", *words)
    if way == "diverged":
        ended = train(*words[-2:], "--overwrite", "--lr", "1e30", "--muon-lr", "1e30")
        assert ended.status == 1
        assert "nothing was saved before" in ended.err
        assert f"{trained} is unchanged" in ended.err
    else:
        kill()
        assert train(*words[-2:], "--overwrite").status == 130
    assert contents(trained) == before
    if way == "diverged":
        ended = command("train", str(text), "--resume", "--json")
        assert ended.events[-1]["status"] == "finished"


def test_what_is_overwritten_is_exchanged_at_the_first_save(
    trained, text, tiny, command, stop_at
):
    stop_at(1, signal.SIGINT)
    words = ["train", str(text), *tiny, "--seed", "2", "--overwrite", "--json"]
    end = command(*words).events[-1]
    assert (end["step"], end["saved_step"]) == (2, 2)
    checkpoint = load_checkpoint(trained)
    assert checkpoint.training[1]["step"] == 2
    assert checkpoint.settings["recipe"]["seed"] == 2
    rest = command(*shlex.split(end["resume"])[1:])
    assert [len(rest.losses), rest.status] == [4, 0]


def test_what_is_stopped_before_anything_is_saved_begins_anew(
    trained, text, tiny, command, stop_at, monkeypatch
):
    """While its loss is up a run is not saved, and another run lies in its folder."""
    monkeypatch.setattr(DivergenceWatch, "calm", False)
    before = contents(trained)
    stop_at(1, signal.SIGINT)
    words = ["train", str(text), *tiny, "--seed", "2", "--overwrite"]
    report = command(*words).out
    assert f"nothing saved, {trained} is unchanged" in report
    assert report.rstrip().endswith(shlex.join(["tested-transformer", *words]))
    assert contents(trained) == before


# What does not fit.


def test_what_does_not_fit_is_refused_before_anything_is_written(text, tiny, refused):
    for words, message in (
        ("--num-heads 5", "d_model=12 must be divisible by num_heads=5"),
        ("--lr nan", "lr=nan must be positive"),
        ("--accumulate 3", "batch_size=5 must be divisible by accumulate=3"),
        ("--max-seq-len 435", "435 tokens are too few for seq_len=435: at least 436"),
        ("--seq-len 8", "seq_len=8 must be at most max_seq_len=7"),
        ("--vocab-size 300", "vocab_size needs --tokenizer bpe"),
        ("--num-characters 9 --max-seq-len 2", "9 tokens leave 1 for validation"),
        ("--device cuda:99", "device='cuda:99' is not available; it must be one of "),
        ("--save-every 0", "save_every=0 must be at least 1"),
        ("--eval-tokens -1", "eval_tokens=-1 must be at least 0"),
        ("--sample -1", "sample=-1 must be at least 0"),
        ("--threads 0", "threads=0 must be at least 1"),
        ("--resume", f"{Path('runs/play')} holds no run to resume"),
        ("--attention soft", "attention='soft' must be one of softmax, latent, "),
        ("--attention delta --qk-norm", "qk_norm=True does not fit attention=Delta"),
        ("--attention sink --latent-dim 3", "latent_dim=3 does not fit attention='sin"),
        ("--shard --precision fp16", "shard=True cannot be combined with precision='"),
        ("--graph", "graph=True needs a GPU; the model is on cpu"),
        ("--resume --overwrite", "--resume continues a run, --overwrite replaces it"),
        ("--out play.txt/run", "play.txt"),
    ):
        assert refused("train", str(text), *tiny, *words.split()).startswith(message)
        assert os.listdir() == ["play.txt"]


def test_a_precision_that_was_chosen_is_refused_too(text, tiny, refused, monkeypatch):
    monkeypatch.setattr(module.training, "training_precision", lambda *_, **__: "fp16")
    line = refused("train", str(text), *tiny, "--precision", "auto", "--shard")
    assert line.startswith("shard=True cannot be combined with precision='fp16'")
    assert os.listdir() == ["play.txt"]


def test_a_run_does_not_go_on_with_other_settings(trained, text, refused):
    lr = Recipe.fast().lr
    for words, message in (
        ("--num-layers 3", "num_layers=2, not 3"),
        ("--lr 0.25 --bias", f"bias=False, not True; recipe.lr={lr}, not"),
        ("--recipe plain", "recipe_name='fast', not 'plain'"),
        ("--tokenizer bpe", "tokenizer.kind='characters', not 'byte pairs'"),
        ("--num-characters 99", "text.limit=None, not 99"),
        ("--vocab-size 99", "vocab_size=17, not 99"),
    ):
        report = refused("train", str(text), "--resume", *words.split())
        assert message in report
        assert report.endswith("omit what differs, or start over with --overwrite")


def test_a_run_goes_on_with_the_same_settings_or_none(trained, text, tiny, command):
    for words in (
        ["--evaluate-every", "2", "--out", str(trained)],
        [str(text), *tiny, "--tokenizer", "char"],
    ):
        ended = command("train", *words, "--resume")
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.startswith("this run is complete, with ")
    before = contents(trained)
    ended = command("train", str(text), "--resume", "--json")
    assert (ended.status, ended.losses) == (0, [])
    assert ended.events[-1]["status"] == "finished"
    assert contents(trained) == before


def test_a_run_finds_its_text_and_no_other(
    trained_here, text, command, refused, monkeypatch
):
    words = ["train", "--out", str(trained_here.resolve()), "--resume"]
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert command(*words).status == 0
    moved = text.rename(text.with_name("moved.txt"))
    assert refused(*words).startswith(f"there is no file '{text}'")
    assert command(*words, str(moved)).status == 0
    moved.write_text(moved.read_text() + "!")
    assert re.search(f"{moved}.*is not the expected text", refused(*words, str(moved)))


@pytest.mark.skipif(os.name == "nt", reason="paths are written in another way there")
def test_a_mistaken_run_says_what_to_type(trained, refused, text):
    model = GPT(GPTConfig(vocab_size=5, d_model=12, num_heads=3, num_layers=1))
    save_checkpoint("alone", config=model.config, weights=model.state_dict())
    for words, message in (
        (
            ["--resume"],
            "runs/grammar holds no run to resume: omit --resume to start one, or type "
            "--out runs/play",
        ),
        (
            ["runs/play", "--resume"],
            "runs/play is a run, not a text: to continue it, type "
            "tested-transformer train --resume --out runs/play",
        ),
        (
            [str(text), "--out", "alone", "--resume"],
            "alone holds a model but no run to",
        ),
    ):
        assert refused("train", *words).startswith(message)


def test_a_few_steps_have_a_short_warm_up_and_some_evaluations():
    # The evaluations are rounded up, so that the last one is the end.
    for typed, expected in (
        ({"steps": 20}, (2, 5)),
        ({"steps": 3}, (0, 1)),
        ({"steps": 21}, (2, 6)),
        ({"steps": 20, "warmup": 1, "evaluate_every": 11}, (1, 11)),
    ):
        recipe = module._fitting_recipe(Recipe.plain(), typed)
        assert (recipe.warmup, recipe.evaluate_every) == expected


def test_a_long_preparation_is_told(train, monkeypatch, capsys):
    monkeypatch.setattr(module, "reminder", partial(reminder, seconds=0))
    ended = train("--tokenizer", "bpe", "--vocab-size", "260")
    assert ended.status == 0
    *_, last = ended.err.splitlines()
    characters = f"{len(Path('play.txt').read_text()):,}"
    assert last == f"encoding the text: {characters} of {characters} characters"
    monkeypatch.setenv("RANK", "1")
    reminder(seconds=0)(1, 2)
    assert capsys.readouterr().err == ""


def test_a_model_is_like_one_of_a_family(train, refused):
    words = ["--like", "llama", "--num-heads", "2", "--sample", "0"]
    assert train(*words, "--no-tie-head").status == 0
    config = load_checkpoint("runs/play").config
    assert (config.positions, config.norm, config.activation, config.bias) == (
        *("rotary", "rms", "swiglu", False),
    )
    assert (config.qk_norm, config.smear, config.num_heads) == (False, False, 2)
    assert train(*words, "--resume").status == 0
    line = refused("train", "--like", "qwen3", "--resume", "--out", "runs/play")
    assert "was saved with config.qk_norm=False, not 'heads'" in line
