import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import torch

from tested_transformer.checkpoints import load_checkpoint, save_checkpoint
from tested_transformer.cli import heads as module
from tested_transformer.data import (
    FEW_NAMES,
    CharTokenizer,
    agreements,
    name_target,
    story_entropy,
    subject_target,
    tokenizer_from_dict,
    word_agreements,
    word_name_target,
    word_subject_target,
    write_stories,
)
from tested_transformer.interpret import (
    delimiter_target,
    first_token_target,
    head_scores,
    induction_target,
    previous_token_target,
    record_heads,
    repeated_tokens,
    same_token_target,
    uniform_score,
)
from tested_transformer.surgery import prune_heads


def near(scores: torch.Tensor) -> Any:
    return [pytest.approx(row, abs=1e-6) for row in scores.tolist()]


def test_heads_are_scored_on_the_text_of_the_run(trained_here, text, command):
    ended = command("heads", "--json")
    assert (ended.status, ended.err) == (0, "")
    report = ended.json
    model = load_checkpoint(trained_here).model()
    tokenizer = CharTokenizer.from_text(text.read_text())
    tokens = torch.tensor(tokenizer.encode(text.read_text()))
    windows = tokens[: len(tokens) // 7 * 7].view(-1, 7)
    assert (report["windows"], report["seq_len"]) == (len(windows), 7)
    assert (report["checkpoint"], report["text"]) == ("runs/play", str(text))
    targets = {
        "previous": previous_token_target(windows),
        "first": first_token_target(windows),
        "same": same_token_target(windows),
        "delimiter": delimiter_target(windows, tokenizer.encode(" ,:.\n")),
    }
    # Half a context of seven, twice.
    drawn = repeated_tokens(tokenizer.vocab_size, 3, num_sequences=16)
    targets["induction"] = induction_target(drawn)
    assert report["scores"].keys() == report["even"].keys() == targets.keys()
    for kind, target in targets.items():
        read = drawn if kind == "induction" else windows
        scores = head_scores(record_heads(model, read).weights, target)
        assert report["scores"][kind] == near(scores), kind
        assert report["even"][kind] == pytest.approx(uniform_score(target))


@pytest.mark.parametrize(
    ("name", "kind", "stories"),
    [
        ("grammar", "characters", write_stories(900, seed=1000)),
        # As long as 900 words may be.
        ("stories", "words", write_stories(5400, seed=1000, names=FEW_NAMES)),
    ],
)
def test_of_texts_by_rule_subjects_and_names_are_known(
    name, kind, stories, tiny, command
):
    words = ["train", name, *tiny, "--num-characters", "40000", "--max-seq-len", "32"]
    end = command(*words, "--sample", "0", "--json").events[-1]
    report = command("heads", "--num-tokens", "900", "--json").json
    checkpoint = load_checkpoint(f"runs/{name}")
    settings = checkpoint.settings["tokenizer"]
    assert settings["kind"] == kind
    tokens = torch.tensor(tokenizer_from_dict(settings).encode(stories.text))
    windows = tokens[: 28 * 32].view(28, 32)
    starts = [32 * row for row in range(28)]
    if kind == "words":
        entropy = story_entropy(FEW_NAMES, per="word")
        subject = word_subject_target([*word_agreements(stories)], starts, 32)
        target = word_name_target(stories, starts, 32)
    else:
        entropy = story_entropy()
        subject = subject_target([*agreements(stories)], starts, 32)
        target = name_target(stories, starts, 32, letter=2)
    # Both are per token.
    assert end["bound"] == pytest.approx(entropy, rel=0.02)
    assert end["bound"] < end["loss"]
    weights = record_heads(checkpoint.model(), windows).weights
    assert report["scores"]["subject"] == near(head_scores(weights, subject))
    assert report["scores"]["name"] == near(head_scores(weights, target))


def maps() -> dict[str, Any]:
    return json.loads(Path("maps.json").read_text("utf-8"))


def test_a_file_of_maps_has_a_byte_for_each_weight(trained, text, command):
    words = ["heads", str(trained), str(text), "--out", "maps.json"]
    ended = command(*words, "--show", "5")
    assert ended.out.splitlines()[-1].startswith("maps.json: ")
    report, shown = maps(), text.read_text()[:5]
    assert report["tokens"] == [*shown]
    tokens = CharTokenizer.from_text(text.read_text()).encode(shown)
    model = load_checkpoint(trained).model()
    layers = record_heads(model, torch.tensor([tokens])).weights
    for packed, weights in zip(report["maps"], layers, strict=True):
        for head, values in zip(packed, weights[0], strict=True):
            expected = 255 * values[torch.ones(5, 5).tril() > 0]
            assert [*b64decode(head)] == pytest.approx(expected.tolist(), abs=0.51)
    for kind, scores in command(*words, "--json").json["scores"].items():
        assert report["scores"][kind] == [pytest.approx(x, abs=1e-4) for x in scores]
    # Keys and values of two layers, twelve numbers of four bytes each.
    assert (report["cache_bytes_per_token"], report["dtype"]) == (
        2 * 2 * 12 * 4,
        "float32",
    )
    assert (report["model"], report["text"]) == ("runs/play", str(text))
    # A window at most.
    assert len(maps()["tokens"]) == 7


def test_tokens_before_a_text_are_in_its_maps(trained, text, command, monkeypatch):
    monkeypatch.setattr(CharTokenizer, "opening", (0,), raising=False)
    command("heads", str(trained), str(text), "--out", "maps.json", "--show", "3")
    assert maps()["tokens"] == ["\n", *text.read_text()[:2]]


def test_a_kind_without_a_target_is_left_out(trained, command):
    Path("word.txt").write_text("question" * 9)
    report = command("heads", "runs/play", "word.txt", "--json").json
    assert list(report["scores"]) == ["previous", "first", "induction"]


def test_what_does_not_fit_is_refused(trained, train, text, refused):
    for words, message in (
        ("--seq-len 1", "seq_len=1 must lie between 2 and the model's max_seq_len=7"),
        ("--num-tokens 0", "num_tokens=0 must be at least 1"),
        ("--show 0", "show=0 must be at least 1"),
        ("--show 257", "show=257 must be at most 256"),
        ("--out gone/maps.json", "there is no folder 'gone'"),
        ("--num-tokens 6", "6 tokens do not fill a window of seq_len=7"),
    ):
        line = refused("heads", str(trained), str(text), *words.split())
        assert line.startswith(message)
    assert train("--max-seq-len", "1", "--out", "short").status == 0
    line = refused("heads", "short", str(text))
    assert line.startswith("max_seq_len=1 of the model must be at least 2: nothing ")
    # A file of maps is written whole or not at all.
    Path("maps.json").mkdir()
    refused("heads", str(trained), str(text), "--out", "maps.json")
    assert [*Path("maps.json").iterdir()] == [*Path().glob(".maps*")] == []


def test_few_windows_at_a_time_give_the_same(trained, text, command, monkeypatch):
    words = ["heads", str(trained), str(text), "--json"]
    at_once = command(*words).json["scores"]
    monkeypatch.setattr(module, "_WEIGHTS", 1)
    for kind, scores in command(*words).json["scores"].items():
        assert scores == near(torch.tensor(at_once[kind])), kind


def test_layers_may_differ_in_their_heads(trained, text, command):
    checkpoint = load_checkpoint(trained)
    small, settings = prune_heads(checkpoint.model(), [(1, 0)]), checkpoint.settings
    state = small.state_dict()
    save_checkpoint("small", config=small.config, weights=state, settings=settings)
    report = command("heads", "small", str(text), "--json").json
    assert [len(of_layer) for of_layer in report["scores"]["previous"]] == [3, 2]
    rows = command("heads", "small", str(text)).out.splitlines()
    assert [row.split()[0] for row in rows[2:7]] == ["0.0", "0.1", "0.2", "1.0", "1.1"]


def test_people_read_a_row_for_each_head(trained, text, command):
    words = ["heads", str(trained), str(text)]
    report = command(*words, "--json").json
    lines = command(*words).out.splitlines()
    assert lines[0] == f"runs/play: {report['windows']} windows of 7 tokens of {text}"
    assert lines[1].split() == ["head", *report["scores"]]
    rows = [line.split() for line in lines[2:]]
    for column, (kind, scores) in enumerate(report["scores"].items(), start=1):
        flat = [score for of_layer in scores for score in of_layer]
        marks = ["*" if score == max(flat) else "" for score in flat]
        shown = [f"{s:.2f}{m}" for s, m in zip(flat, marks, strict=True)]
        assert [row[column] for row in rows[:6]] == shown
        assert rows[6][column + 1] == f"{report['even'][kind]:.2f}"
    assert rows[6][:2] == ["even", "head"]
    assert lines[-1].startswith("* the best score in a column;")
