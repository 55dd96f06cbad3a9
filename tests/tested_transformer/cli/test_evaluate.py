import math
from pathlib import Path

import pytest
import torch

from tested_transformer.checkpoints import load_checkpoint
from tested_transformer.cli import evaluate as module
from tested_transformer.data import CharTokenizer, split, tokenizer_from_dict
from tested_transformer.decoding import Sampling, generate
from tested_transformer.surgery import stretched_by
from tested_transformer.training import Validation, evaluate


def loss_of(folder: Path, text: str, part: int) -> float:
    tokens = torch.tensor(CharTokenizer.from_text(text).encode(text))
    return evaluate(load_checkpoint(folder).model(), split(tokens)[part], seq_len=7)


def test_a_run_is_evaluated_on_what_was_held_out(trained_here, text, command):
    ended = command("evaluate", "--json")
    assert (ended.status, ended.err) == (0, "")
    report = ended.json
    loss = loss_of(trained_here, text.read_text(), part=1)
    assert report["loss"] == pytest.approx(loss)
    assert report["bits_per_character"] == pytest.approx(loss / math.log(2))
    assert report["perplexity"] == pytest.approx(math.exp(loss))
    assert report["honest"] == pytest.approx(report["one_pass"], abs=1e-5)
    assert (report["agrees"], report["tokens"], report["bound"]) == (True, 49, None)
    saved = load_checkpoint(trained_here).training[1]["validations"][-1]
    assert report["loss"] == pytest.approx(saved["loss"])
    # People read the same.
    shown = command("evaluate", str(trained_here)).out
    assert shown.startswith(f"{trained_here}:\n")
    for value in ("loss", "honest", "one_pass", "bits_per_character"):
        assert f"{report[value]:.4f}" in shown
    assert f"of {text}, 49 tokens" in shown
    assert "they agree" in shown


def test_another_text_is_read_whole(trained, text, command):
    Path("other.txt").write_text("that is the question.\nto be not\n")
    words = ["evaluate", str(trained), "other.txt", "--seq-len", "5", "--json"]
    report = command(*words).json
    alphabet = CharTokenizer.from_text(text.read_text())
    tokens = torch.tensor(alphabet.encode(Path("other.txt").read_text()))
    model = load_checkpoint(trained).model()
    assert report["loss"] == pytest.approx(evaluate(model, tokens, seq_len=5))
    assert (report["tokens"], report["part"]) == (32, "all")


def test_a_rotary_run_reads_and_writes_texts_longer_than_its_own(train, command):
    assert train("--positions", "rotary", "--sample", "0").status == 0
    checkpoint = load_checkpoint("runs/play")
    alphabet = tokenizer_from_dict(checkpoint.settings["tokenizer"])
    writing = {"max_new_tokens": 200, "seed": 3, "sampling": Sampling(temperature=0.8)}
    losses, texts = set[float](), set[str]()
    for scaling in ("linear", "yarn"):
        words = "--json", "--rotary-factor", "2", "--rotary-scaling", scaling
        report = command("evaluate", *words).json
        assert report["seq_len"] == 14
        losses.add(report["loss"])
        model = stretched_by(checkpoint.model(), 2.0, scaling=scaling)
        (tokens,) = generate(model, [alphabet.encode("\n")], **writing)
        wrote = command("generate", *words, "--seed", "3", "--max-new-tokens", "200")
        assert wrote.json["text"] == alphabet.decode(tokens)
        texts.add(wrote.json["text"])
    assert (len(losses), len(texts)) == (2, 2)


def test_bits_are_counted_by_character_whatever_the_tokens(text, tiny, command):
    words = [str(text), *tiny, "--max-seq-len", "2", "--tokenizer", "bpe"]
    assert command("train", *words, "--vocab-size", "270").status == 0
    report = command("evaluate", "--json").json
    tokenizer = tokenizer_from_dict(load_checkpoint("runs/play").settings["tokenizer"])
    tokens = split(torch.tensor(tokenizer.encode(text.read_text())))[1]
    characters = len(tokenizer.decode(tokens[1:].tolist()))
    assert report["tokens"] == len(tokens) < characters
    bits = report["loss"] * (len(tokens) - 1) / math.log(2)
    assert report["bits_per_character"] == pytest.approx(bits / characters)


def test_a_loss_that_is_not_honest_is_status_1(trained, command, monkeypatch):
    result = Validation(step=0, loss=2.0, prefix=2.5, full=2.25, gap=0.5)
    monkeypatch.setattr(module.training, "validate", lambda *_, **__: result)
    ended = command("evaluate")
    assert ended.status == 1
    assert "2.5000; in one pass 2.2500" in ended.out
    assert "they DIFFER" in ended.out
    assert command("evaluate", "--json").status == 1


def test_the_bound_of_the_default_text_is_shown(tiny, command):
    start, *_, end = command(
        "train", *tiny, "--num-characters", "2000", "--json"
    ).events
    assert (start["text"], start["folder"]) == ("grammar", "runs/grammar")
    assert 0 < end["bound"] < end["loss"]
    assert "nats per character: the entropy of the text" in command("evaluate").out
    assert command("evaluate", "--json").json["bound"] == end["bound"]


def test_train_and_evaluate_measure_the_same_tokens(text, tiny, command):
    words = ["train", str(text), *tiny, "--eval-tokens", "20", "--json"]
    end = command(*words).events[-1]
    report = command("evaluate", "--json").json
    assert report["tokens"] == 21
    assert report["part"] == "the beginning of the held-out part"
    assert report["loss"] == pytest.approx(end["loss"], rel=1e-6)
    assert report["honest"] == pytest.approx(end["honest"], rel=1e-6)
    full_report = command("evaluate", "--num-tokens", "0", "--json").json
    assert (full_report["tokens"], full_report["part"]) == (49, "the held-out part")
    loss = loss_of(Path("runs/play"), text.read_text(), part=1)
    assert full_report["loss"] == pytest.approx(loss)
    assert command("evaluate", "--num-tokens", "9", "--json").json["tokens"] == 10


def test_what_does_not_fit_is_refused(trained, refused):
    Path("strange.txt").write_text("to be x")
    Path("one.txt").write_text("t")
    for words, message in (
        ("--seq-len 8", "seq_len=8 must lie between 2 and the model's max_seq_len=7"),
        ("--num-tokens -1", "num_tokens=-1 must be at least 0"),
        ("--precision fp8", "precision='fp8' must be one of "),
        ("runs/play runs/play/none", "there is no file 'runs/play/none', and no "),
        ("runs/play strange.txt", "'x' (first at position 6) not in the alphabet of"),
        ("runs/play one.txt", ""),
    ):
        assert refused("evaluate", *words.split()).startswith(message)
