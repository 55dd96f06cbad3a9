import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tested_transformer.cli import generate as module
from tested_transformer.cli.writing import write

Command = Callable[..., Any]


def test_the_text_alone_goes_to_the_standard_output(
    trained: Path, command: Command
) -> None:
    words = ["generate", str(trained), "--prompt", "to be", "--tokens", "9"]
    one = command(*words, "--seed", "3")
    assert (one.status, one.err) == (0, "")
    assert one.out.startswith("to be")
    assert len(one.out) == len("to be") + 9 + 1
    assert command(*words, "--seed", "3") == one
    assert command(*words, "--seed", "4").out != one.out


def test_a_seed_that_was_drawn_is_told(trained: Path, command: Command) -> None:
    words = ["generate", "--prompt", "be", "--tokens", "20"]
    drawn = command(*words)
    assert drawn.err.startswith("the same again with --seed ")
    seed = drawn.err.split()[-1]
    assert command(*words, "--seed", seed).out == drawn.out
    greedy = command(*words, "--temperature", "0")
    assert greedy.err == ""
    assert greedy == command(*words, "--temperature", "0")


def test_settings_reach_the_model(
    trained: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def note(*args: Any, **settings: Any) -> Any:
        seen.append(settings)
        return write(*args, **settings)

    monkeypatch.setattr(module, "write", note)
    words = (
        "--tokens 2 --temperature 0.5 --top-k 4 --top-p 0.75 --min-p 0.125 "
        "--repetition-penalty 1.5 --samples 3 --seed 7 --stop x"
    )
    assert command("generate", *words.split(), "--stop", "be\\n").status == 0
    assert [each.pop("seed") for each in seen] == [7, 8, 9]
    wanted = {
        "max_new_tokens": 2,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.75,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "stop": ["x", "be\n"],
    }
    assert seen == [wanted] * 3


def test_several_texts_are_told_apart(trained: Path, command: Command) -> None:
    words = ["generate", "--prompt", "be", "--tokens", "5", "--samples", "2"]
    text = command(*words, "--seed", "3").out
    assert text.count("\n--- sample 2 of 2 ---\nbe") == 1
    told = [
        json.loads(x)
        for x in command(*words, "--seed", "3", "--json").out.split("\n")[:-1]
    ]
    assert [each["sample"] for each in told] == [1, 2]
    assert [each["seed"] for each in told] == [3, 4]
    first, second = (each["prompt"] + each["text"] for each in told)
    assert text == f"{first}\n\n--- sample 2 of 2 ---\n{second}\n"


def test_a_stop_string_ends_the_text(trained: Path, command: Command) -> None:
    words = ["generate", "--prompt", "to be", "--tokens", "50", "--seed", "3"]
    whole = command(*words).out.removeprefix("to be")
    stop = whole[20:22]
    short = command(*words, "--stop", stop).out.removeprefix("to be")
    assert short == whole[: whole.index(stop)] + "\n"


def test_a_context_that_is_full_is_no_end(trained: Path, command: Command) -> None:
    prompt = "to be, or not to be: that is the question."
    ended = command("generate", "--prompt", prompt, "--tokens", "100", "--seed", "3")
    assert len(ended.out) == len(prompt) + 100 + 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--prompt xyz", "'x', 'y', 'z' (first at position 0) not in the alphabet of"),
        ("--prompt=", "--prompt '' must not be empty: the model goes on from it"),
        ("--temperature=-1", "--temperature -1.0 must "),
        ("--temperature nan", "--temperature nan must "),
        ("--top-p 0", "--top-p 0.0 must "),
        ("--top-k 0", "--top-k 0 must "),
        ("--min-p 2", "--min-p 2.0 must "),
        ("--repetition-penalty 0", "--repetition-penalty 0.0 must "),
        ("--tokens -1", "--tokens -1 must not be negative"),
        ("--samples 0", "--samples 0 must be positive"),
        ("--stop=", "--stop '' must not be empty"),
        ("--device toaster", "--device 'toaster' is not there; there is "),
        ("--json --top-p 0", "--top-p 0.0 must "),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str, message: str, trained: Path, command: Command
) -> None:
    ended = command("generate", *words.split())
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"tested-transformer: error: {message}")
