import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.cli.plans import MODELS, RECIPES, _make_recipe, text_of
from tested_transformer.gpt import GPT, GPTConfig
from tested_transformer.training import Recipe

Command = Callable[..., Any]
LR = Recipe.fast().lr


@pytest.fixture
def refused(command: Command) -> Callable[..., str]:
    """Run a command that has to fail with status 2 and one line; give the line."""

    def run(*words: str) -> str:
        ended = command(*words)
        assert (ended.status, ended.out) == (2, "")
        (line,) = ended.err.splitlines()
        assert line.startswith("tested-transformer: error: ")
        return line.removeprefix("tested-transformer: error: ")

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--heads 5", "--width 12 must be divisible by --heads 5"),
        ("--kv-heads 2", "--kv-heads 2 must divide --heads 3"),
        ("--layers 0", "--layers 0 must be positive"),
        ("--lr nan", "--lr nan must be positive"),
        ("--accumulate 3", "--batch 5 must be divisible by --accumulate 3"),
        ("--warmup 6", "--warmup 6 must be less than --steps 6"),
        ("--dropout 1.5", "--dropout 1.5 must lie between 0 and 1"),
        (
            "--context 435",
            "435 tokens are too few for --context 435: at least 436 are needed",
        ),
        ("--vocabulary 300", "--vocabulary goes with --tokenizer bpe alone"),
        ("--characters 0", "--characters 0 must be positive"),
        ("--characters 8", "7 tokens are too few for --context 7: at least 8 are"),
        (
            "--characters 9 --context 2",
            "9 tokens leave 1 to hold out; to predict one takes 2",
        ),
        ("--device cuda:99", "--device 'cuda:99' is not there; there is "),
        ("--device toaster", "--device 'toaster' is not there; there is "),
        ("--save-every 0", "--save-every 0 must be positive"),
        ("--eval-tokens 0", "--eval-tokens 0 must be positive"),
        ("--sample -1", "--sample -1 must not be negative"),
        ("--threads 0", "--threads 0 must be positive"),
        ("--resume", "runs/play holds no run to go on with: leave --resume out to"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    words: str,
    message: str,
    text: Path,
    tiny: list[str],
    refused: Callable[..., str],
) -> None:
    assert refused("train", str(text), *tiny, *words.split()).startswith(message)
    assert os.listdir() == ["play.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "'bad.txt' is empty"),
        (b"to be \xff or", "'bad.txt' is not UTF-8: byte 0xff at offset 6"),
        (b"!!!", "'bad.txt' has no character but '!': there is nothing to predict"),
        (None, "there is no file 'bad.txt', and no corpus of that name; wanted a path"),
    ],
)
def test_a_text_that_is_none_is_refused(
    content: bytes | None,
    message: str,
    tiny: list[str],
    refused: Callable[..., str],
) -> None:
    if content is not None:
        Path("bad.txt").write_bytes(content)
    assert refused("train", "bad.txt", *tiny).startswith(message)
    assert not Path("runs").exists()


def test_a_batch_has_to_go_round(
    text: Path,
    tiny: list[str],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert refused("train", str(text), *tiny) == (
        "--batch 5 must be divisible by 2, accumulate times the number of processes"
    )


def test_a_run_is_not_written_over_by_mistake(
    trained: Path, text: Path, tiny: list[str], command: Command, refused: Any
) -> None:
    before = (trained / "checkpoint.json").read_bytes()
    assert refused("train", str(text), *tiny, "--seed", "2") == (
        "runs/play holds a run already: go on with it by --resume, begin anew with "
        "--overwrite, or name another folder with --out"
    )
    assert (trained / "checkpoint.json").read_bytes() == before
    assert command("train", str(text), *tiny, "--seed", "2", "--overwrite").status == 0
    assert (trained / "checkpoint.json").read_bytes() != before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--layers 3", "--layers 2, not 3"),
        ("--lr 0.25 --bias", f"--bias False, not True; --lr {LR}, not 0.25"),
        ("--steps 7", "--steps 6, not 7"),
        ("--recipe plain", "--recipe 'fast', not 'plain'"),
        ("--tokenizer bpe", "--tokenizer 'characters', not 'byte pairs'"),
        ("--characters 99", "--characters None, not 99"),
    ],
)
def test_a_run_does_not_go_on_with_other_settings(
    words: str, message: str, trained: Path, text: Path, refused: Callable[..., str]
) -> None:
    hint = "leave out what differs, or begin anew with --overwrite"
    told = refused("train", str(text), "--resume", *words.split())
    assert told == f"{trained} was saved with {message}; {hint}"


def test_a_run_goes_on_with_the_same_settings_or_none(
    trained: Path, text: Path, tiny: list[str], command: Command
) -> None:
    assert load_checkpoint(trained).settings["recipe"]["evaluate_every"] == 3
    for words in (
        ["--eval-every", "2"],
        [str(text)],
        [str(text), *tiny, "--tokenizer", "char"],
    ):
        ended = command("train", *words, "--resume", "--out", str(trained))
        assert (ended.status, ended.err) == (0, "")


def test_another_text_is_another_run(
    trained_here: Path, text: Path, refused: Callable[..., str]
) -> None:
    about = json.loads((trained_here / "checkpoint.json").read_text())["settings"][
        "text"
    ]
    text.write_text(text.read_text() + "!")
    told = refused("train", "--out", str(trained_here), "--resume")
    found = hashlib.sha256(text.read_bytes()).hexdigest()
    assert told == (
        f"'{text}' is not the text that was meant: its sha256 is {found[:12]}..., and "
        f"{about['sha256'][:12]}... was wanted; {trained_here} was trained on {text}, "
        "484 characters"
    )
    text.unlink()
    told = refused("train", "--out", str(trained_here), "--resume")
    assert told.startswith(f"there is no file '{text}'")


def test_a_text_may_have_moved(
    trained_here: Path, text: Path, command: Command
) -> None:
    text.rename("elsewhere.txt")
    words = ["elsewhere.txt", "--out", str(trained_here), "--resume"]
    assert command("train", *words).status == 0
    with pytest.raises(FileNotFoundError):
        text_of(load_checkpoint(trained_here))


def test_a_run_finds_its_text_from_elsewhere(
    text: Path, tiny: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("train", text.name, *tiny, "--sample", "0").status == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    ended = command("train", "--out", "../runs/play", "--resume")
    assert (ended.status, ended.err) == (0, "")


def test_a_model_alone_is_no_run(
    command: Command, refused: Callable[..., str], text: Path
) -> None:
    model = GPT(GPTConfig(vocab_size=5, d_model=12, num_heads=3, num_layers=1))
    save_checkpoint("alone", config=model.config, weights=model.state_dict())
    assert refused("train", str(text), "--out", "alone", "--resume") == (
        "alone holds a model, and no run to go on with"
    )
    with pytest.raises(ValueError, match=r"^alone does not say what it was trained on"):
        text_of(load_checkpoint("alone"))


def test_a_folder_that_cannot_be_written_is_refused(
    text: Path, tiny: list[str], refused: Callable[..., str]
) -> None:
    Path("file").write_text("in the way")
    told = refused("train", str(text), *tiny, "--out", "file/run")
    assert "file" in told
    assert "directory" in told
    assert Path("file").read_text() == "in the way"


def test_a_few_steps_have_a_short_warm_up_and_some_evaluations() -> None:
    plain = RECIPES["plain"]()
    assert (plain.warmup, plain.evaluate_every) > (2, 5)
    made = _make_recipe("plain", {"steps": 20})
    assert (made.steps, made.warmup, made.evaluate_every) == (20, 2, 5)
    made = _make_recipe("plain", {"steps": 3})
    assert (made.warmup, made.evaluate_every) == (0, 1)
    # Rounded up, so that the last one is the end.
    assert _make_recipe("plain", {"steps": 21}).evaluate_every == 6
    typed = {"steps": 20, "warmup": 7, "evaluate_every": 11}
    made = _make_recipe("plain", typed)
    assert (made.warmup, made.evaluate_every) == (7, 11)
    assert _make_recipe("plain", {}) == plain


def test_each_recipe_has_a_model() -> None:
    assert MODELS.keys() == RECIPES.keys()
    for settings in MODELS.values():
        GPTConfig(vocab_size=3, **settings)
