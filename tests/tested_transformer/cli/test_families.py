"""The commands on folders of today's models, which transformers made."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.tested_transformer.data.published import FAMILIES, TEXT, put

from tested_transformer.cli.sources import Source, load_source
from tested_transformer.data import BytePairTokenizer
from tested_transformer.decoding import Decoder
from tested_transformer.training import evaluate


def written_by(model: Any, folder: Path, prompt: str) -> tuple[list[int], str]:
    """Return what transformers writes after a prompt: tokens, and the text of all."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(prompt)["input_ids"]
    answer = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    return answer[0, len(ids) :].tolist(), tokenizer.decode(answer[0])


ON_A_TEXT = ("heads", "evaluate")
GREEDY = ["--temperature", "0", "--max-new-tokens", "12", "--json"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_that_of_transformers(family, command):
    model = put(family, Path("m"))
    for prompt in ("The cat", ""):
        _, text = written_by(model, Path("m"), prompt)
        opening = load_source("m", torch.device("cpu")).opening
        tokenizer = BytePairTokenizer.from_file("m/tokenizer.json")
        start = tokenizer.decode([*opening, *tokenizer.encode(prompt)])
        for more in ([], ["--draft", "ngram"], ["--draft", "m"]):
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
    for file, value in (
        ("config.json", end),
        ("config.json", [end, 7]),
        ("generation_config.json", [383, end]),
    ):
        put("llama", Path("m"))
        Path("m/generation_config.json").unlink()
        content = json.loads(Path("m/config.json").read_text())
        if file != "config.json":
            content["eos_token_id"] = tokens[0]  # the other file comes first
            Path("m/config.json").write_text(json.dumps(content))
            content = {}
        Path("m", file).write_text(json.dumps(content | {"eos_token_id": value}))
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
    told = ended.json
    assert (told["windows"], told["seq_len"]) == (2, 1024)
    assert [len(layer) for layer in told["scores"]["induction"]] == [2, 2]
    # 1 of 2, 3, ..., 1025 tokens: the first one is the opening.
    even = sum(1 / length for length in range(2, 1026)) / 1024
    assert told["even"]["first"] == pytest.approx(even)


def test_evaluate_begins_its_windows_as_the_model_was_trained(command):
    model = put("llama", Path("m"))
    Path("text.txt").write_text(TEXT)
    ended = command("evaluate", "m", "text.txt", "--seq-len", "16", "--json")
    assert (ended.status, ended.err) == (0, "")
    told = ended.json
    tokenizer = BytePairTokenizer.from_file("m/tokenizer.json")
    tokens = tokenizer.encode(TEXT)
    losses: list[float] = []
    for start in range(0, len(tokens) - 1, 16):
        window = tokens[start : start + 17]
        ids = torch.tensor([[*tokenizer.opening, *window]])
        with torch.no_grad():
            logs = model(ids).logits[0, 1:-1].log_softmax(-1)
        losses += (-logs[range(len(window) - 1), window[1:]]).tolist()
    assert told["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert told["agrees"]


def test_windows_are_at_most_1024_unless_asked(command):
    put("llama", Path("m"))
    Path("text.txt").write_text(TEXT)
    for words, length in (([], 1024), (["--seq-len", "2000"], 2000)):
        told = command("evaluate", "m", "text.txt", "--json", *words)
        assert told.json["seq_len"] == length
    source: Source = load_source("m", torch.device("cpu"))
    assert source.model.config.max_seq_len == 131072
    assert evaluate(source.model, torch.arange(20), seq_len=9) > 0


def test_what_is_missing_is_named(refused):
    Path("text.txt").write_text(TEXT)
    for file, line in (
        (
            "tokenizer.json",
            "m does not say what its tokens are: put the tokenizer.json",
        ),
        ("config.json", "m holds no model: it must have checkpoint.json, card.json or"),
        (
            "model.safetensors",
            "m has no model.safetensors and no model.safetensors.ind",
        ),
    ):
        put("llama", Path("m"))
        Path("m", file).unlink()
        for words in (["generate", "m"], *([x, "m", "text.txt"] for x in ON_A_TEXT)):
            assert refused(*words).startswith(line)


def test_a_text_is_needed(refused):
    put("llama", Path("m"))
    for name in ON_A_TEXT:
        assert refused(name, "m") == "m has no text of its own: pass a text"
