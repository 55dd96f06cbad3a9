import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tested_transformer.cli import train as module
from tested_transformer.cli.display import JsonLines
from tested_transformer.training import Progress, TrainingDivergedError

Command = Callable[..., Any]


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def losses(out: str) -> list[float]:
    return [each["loss"] for each in events(out) if each["event"] == "step"]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("model-*.safetensors")
    return load_file(file)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Have this process get a signal right after a step, and so in the next."""

    def arrange(at: int, number: int) -> None:
        told = JsonLines.step

        def step(display: JsonLines, progress: Progress) -> None:
            told(display, progress)
            if progress.step == at:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(JsonLines, "step", step)

    return arrange


def test_a_run_says_what_it_does(text: Path, tiny: list[str], command: Command) -> None:
    ended = command("train", str(text), *tiny)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("training: ")
    assert "2 layers, 3 heads, width 12, context 7; on " in lines[0]
    assert lines[1] == f"text: {text}, 484 characters, 484 tokens of 17 kinds"
    assert [lines.index(f"--- {when} ---") > 0 for when in ("before", "after")]
    assert [line[:20] for line in lines if "held-out" in line][:2] == [
        "step 3: held-out los",
        "step 6: held-out los",
    ]
    assert lines[-1] == (
        "saved in runs/play; next: tested-transformer generate runs/play"
    )
    files = sorted(file.name.split("-")[0] for file in Path("runs/play").iterdir())
    assert files == [".lock", "checkpoint.json", "model", "training"]


def test_for_programs_there_is_json_alone(
    text: Path, tiny: list[str], command: Command
) -> None:
    ended = command("train", str(text), *tiny, "--json")
    assert (ended.status, ended.err) == (0, "")
    told = events(ended.out)
    kinds = ["start", "sample", *["step"] * 6, "sample", "end"]
    assert [each["event"] for each in told] == kinds
    assert [each["step"] for each in told[2:8]] == [1, 2, 3, 4, 5, 6]
    found = told[7]["validation"]
    assert told[0]["parameters"] == sum(
        x.numel() for x in weights(Path("runs/play")).values()
    )
    assert (told[-1]["status"], told[-1]["loss"]) == ("finished", found["loss"])
    assert abs(found["prefix"] - found["full"]) < 1e-5


def test_the_text_is_the_default_one_unless_named(
    tiny: list[str], command: Command
) -> None:
    ended = command("train", *tiny, "--characters", "2000", "--json")
    assert ended.status == 0
    start, *_, end = events(ended.out)
    assert (start["text"], start["folder"]) == ("grammar", "runs/grammar")
    assert 0 < end["bound"] < end["loss"]


def test_models_and_recipes_are_as_asked_for(
    text: Path, tiny: list[str], command: Command
) -> None:
    more = "--recipe plain --kv-heads 1 --no-bias --lr 0.25 --seed 3 --out here"
    assert command("train", str(text), *tiny, *more.split()).status == 0
    saved = json.loads(Path("here/checkpoint.json").read_text())
    config, recipe = saved["config"], saved["settings"]["recipe"]
    names = ("num_kv_heads", "bias", "num_layers", "num_heads", "d_model", "qk_norm")
    assert [config[name] for name in names] == [1, False, 2, 3, 12, False]
    names = ("lr", "seed", "steps", "batch_size", "optimizer", "warmup")
    assert [recipe[name] for name in names] == [0.25, 3, 6, 5, "adamw", 0]


def test_another_seed_is_another_model(
    text: Path, tiny: list[str], command: Command
) -> None:
    told = [
        losses(command("train", str(text), *tiny, "--json", *more.split()).out)
        for more in ("--out a", "--out b", "--out c --seed 1")
    ]
    assert told[0] == told[1]
    # At first they are all alike: the head begins with zeros.
    assert told[0][1] != told[2][1]


def test_another_seed_draws_other_weights(
    text: Path, tiny: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train", killed)
    for seed in ("1", "2"):
        words = ["train", str(text), *tiny, "--seed", seed, "--out", seed]
        assert command(*words).status == 130
    name = "token_embedding.weight"
    assert not torch.equal(weights(Path("1"))[name], weights(Path("2"))[name])


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_run_that_is_stopped_goes_on_to_the_same_losses(
    number: int,
    status: int,
    text: Path,
    tiny: list[str],
    command: Command,
    stop_at: Callable[[int, int], None],
) -> None:
    words = ["train", str(text), *tiny, "--dropout", "0.5", "--json"]
    whole = losses(command(*words, "--out", "whole").out)
    assert len(whole) == 6

    stop_at(2, number)
    ended = command(*words, "--out", "parts")
    assert ended.status == status
    assert losses(ended.out) == whole[:3]
    end = events(ended.out)[-1]
    assert (end["status"], end["step"], end["saved_step"]) == ("stopped", 3, 3)
    told = f"tested-transformer {' '.join(words)} --out parts --resume"
    assert end["resume"] == told

    rest = command(*end["resume"].split()[1:])
    assert rest.status == 0
    assert losses(rest.out) == whole[3:]
    one, other = weights(Path("whole")), weights(Path("parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_stopped_run_says_how_to_go_on(
    text: Path,
    tiny: list[str],
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module.StopRequest, "__call__", lambda _: True)
    ended = command("train", str(text), *tiny, "--overwrite")
    assert ended.out.splitlines()[-2:] == [
        "stopped after step 1 of 6, saved after step 1 in runs/play; go on with:",
        f"  tested-transformer train {text} {' '.join(tiny)} --resume",
    ]


def test_a_run_that_has_ended_only_says_so_again(
    trained: Path, text: Path, command: Command
) -> None:
    before = (trained / "checkpoint.json").read_bytes()
    ended = command("train", str(text), "--resume", "--json")
    assert (ended.status, losses(ended.out)) == (0, [])
    assert events(ended.out)[-1]["status"] == "finished"
    assert (trained / "checkpoint.json").read_bytes() == before


def test_a_run_that_was_killed_before_its_first_save_can_go_on(
    text: Path, tiny: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["train", str(text), *tiny, "--json"]
    whole = losses(command(*words, "--out", "whole").out)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "train", killed)
    ended = command(*words)
    assert (ended.status, ended.err) == (130, "\ntested-transformer: interrupted\n")
    monkeypatch.undo()
    monkeypatch.chdir(text.parent)
    assert losses(command(*words, "--resume").out) == whole


@pytest.mark.parametrize(
    ("start", "what"), [([], "loss"), (["--zero-init"], "gradient's norm")]
)
def test_a_run_that_diverges_names_what_is_left_and_what_to_try(
    text: Path, tiny: list[str], command: Command, start: list[str], what: str
) -> None:
    rates = ["--lr", "1e30", "--muon-lr", "1e30"]
    ended = command("train", str(text), *tiny, *start, *rates)
    assert ended.status == 1
    (line,) = ended.err.splitlines()
    assert line.startswith(f"tested-transformer: error: the {what} is nan at")
    assert "the last good state is that of step 0; try --lr 5e+29 and --muon-lr" in line
    assert line.endswith("; it is in runs/play, and --overwrite begins anew")
    assert (
        json.loads(Path("runs/play/checkpoint.json").read_text())["training"]["step"]
        == 0
    )


def test_several_processes_speak_with_one_voice(
    text: Path, tiny: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    world = module.World(rank=1, size=2, local_rank=1)
    monkeypatch.setattr(module, "join_world", lambda device: world)
    monkeypatch.setattr(module, "CheckpointWriter", made.append)

    def train(*_: object, **settings: object) -> None:
        assert settings["save"] is None
        raise TrainingDivergedError(3, None, "the loss is nan", "less")

    monkeypatch.setattr(module, "train", train)
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    ended = command("train", str(text), *tiny, "--batch", "4", "--json")
    assert (ended.status, ended.out, made) == (1, "", [])
    assert ended.err.startswith("tested-transformer: error: process 1: the loss is nan")
