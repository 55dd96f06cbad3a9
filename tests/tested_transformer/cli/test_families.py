"""The commands on folders of today's models, which transformers made."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tests.tested_transformer.data.published import FAMILIES, TEXT, put

from tested_transformer.cli.sources import load_source
from tested_transformer.data import BytePairTokenizer
from tested_transformer.decoding import Decoder


def written_by(model: Any, folder: Path, prompt: str) -> tuple[list[int], str]:
    """Return what transformers writes after a prompt: tokens, and the text of all."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt)["input_ids"]
    answer = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    return answer[0, len(ids) :].tolist(), tokenizer.decode(answer[0])


GREEDY = ["--temperature", "0", "--max-new-tokens", "12", "--json"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_that_of_transformers(family, command):
    model = put(family, Path("m"))
    opening = load_source("m", torch.device("cpu")).opening
    tokenizer = BytePairTokenizer.from_file("m/tokenizer.json")
    for prompt, *more in (
        ("The cat",),
        ("",),
        ("The cat", "--draft", "ngram"),
        ("", "--draft", "m"),
    ):
        _, text = written_by(model, Path("m"), prompt)
        start = tokenizer.decode([*opening, *tokenizer.encode(prompt)])
        ended = command("generate", "m", "--prompt", prompt, *GREEDY, *more)
        assert (ended.status, ended.err) == (0, "")
        assert start + ended.json["text"] == text


def test_a_token_that_ends_a_text_ends_it(command):
    model = put("llama", Path("m"))
    tokens, _ = written_by(model, Path("m"), "The cat")
    end = tokens[4]
    shown = tokens[: tokens.index(end)]
    text = BytePairTokenizer.from_file("m/tokenizer.json").decode(
        [token for token in shown if token < 300]
    )
    config = json.loads(Path("m/config.json").read_text())
    for in_config, in_generation in ((end, None), ([end, 7], None), (tokens[0], end)):
        content = config | {"eos_token_id": in_config}
        Path("m/config.json").write_text(json.dumps(content))
        content = (
            {} if in_generation is None else {"eos_token_id": [383, in_generation]}
        )
        Path("m/generation_config.json").write_text(json.dumps(content))
        for more in ([], ["--draft", "ngram"]):
            ended = command("generate", "m", "--prompt", "The cat", *GREEDY, *more)
            assert (ended.status, ended.err) == (0, "")
            assert ended.json["text"] == text


def test_there_is_room_for_the_text_and_no_more(command, monkeypatch):
    put("llama", Path("m"))
    longest: list[int] = []
    make_room = Decoder._make_room

    def note(self, batch_size):
        longest.append(self.longest)
        make_room(self, batch_size)

    monkeypatch.setattr(Decoder, "_make_room", note)
    words = ["generate", "m", "--prompt", "a", "--max-new-tokens", "9"]
    assert command(*words).status == 0
    assert longest == [1 + 1 + 9]


def test_heads_begin_their_windows_as_the_model_was_trained(command):
    put("gemma2", Path("m"))
    Path("text.txt").write_text(TEXT * 40)
    ended = command("heads", "m", "text.txt", "--num-tokens", "2100", "--json")
    assert (ended.status, ended.err) == (0, "")
    report = ended.json
    assert (report["windows"], report["seq_len"]) == (2, 1024)
    assert [len(layer) for layer in report["scores"]["induction"]] == [2, 2]
    # 1 of 2, 3, ..., 1025 tokens: the first one is the opening.
    even = sum(1 / length for length in range(2, 1026)) / 1024
    assert report["even"]["first"] == pytest.approx(even)


def test_evaluate_begins_its_windows_as_the_model_was_trained(command):
    model = put("llama", Path("m"))
    Path("text.txt").write_text(TEXT)
    ended = command("evaluate", "m", "text.txt", "--seq-len", "16", "--json")
    assert (ended.status, ended.err) == (0, "")
    report = ended.json
    tokenizer = BytePairTokenizer.from_file("m/tokenizer.json")
    losses: list[float] = []
    tokens = torch.tensor(tokenizer.encode(TEXT))
    for inputs, targets in zip(
        tokens[:-1].split(16), tokens[1:].split(16), strict=True
    ):
        ids = torch.tensor([[*tokenizer.opening, *inputs]])
        with torch.no_grad():
            logits = model(ids).logits[0, 1:]
        losses += F.cross_entropy(logits, targets, reduction="none").tolist()
    assert report["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert report["agrees"]


def test_windows_are_at_most_1024_unless_asked(command):
    put("llama", Path("m"))
    Path("text.txt").write_text(TEXT)
    for words, length in (([], 1024), (["--seq-len", "2000"], 2000)):
        report = command("evaluate", "m", "text.txt", "--json", *words).json
        assert report["seq_len"] == length


def test_what_is_missing_is_named(refused):
    put("llama", Path("m"))
    for name in ("heads", "evaluate"):
        assert refused(name, "m") == "m has no text of its own: pass a text"
    Path("text.txt").write_text(TEXT)
    Path("m/tokenizer.json").unlink()
    for words in (["generate"], ["heads", "text.txt"], ["evaluate", "text.txt"]):
        line = refused(words[0], "m", *words[1:])
        assert line.startswith("m does not say what its tokens are: put the tokenizer.")
