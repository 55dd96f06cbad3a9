import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.tested_transformer.large_weights import with_large_weights

from tested_transformer.cli import generate as module
from tested_transformer.cli.generate import default_prompt, write, write_with_drafts
from tested_transformer.data import CharTokenizer, WordTokenizer
from tested_transformer.decoding import (
    CachedReader,
    Decoder,
    ModelDrafter,
    NgramDrafter,
    Sampling,
    generate,
)
from tested_transformer.gpt import GPT, GPTConfig


def test_the_text_alone_goes_to_the_standard_output(trained, command):
    words = ["generate", str(trained), "--prompt", "to be", "--max-new-tokens", "20"]
    one = command(*words, "--seed", "3")
    assert (one.status, one.err) == (0, "")
    assert one.out.startswith("to be")
    assert len(one.out) == len("to be") + 20 + 1
    assert command(*words, "--seed", "4").out != one.out
    drawn = command(*words)
    assert drawn.err.startswith("for the same text, add --seed ")
    seed = drawn.err.split()[-1]
    assert command(*words, "--seed", seed).out == drawn.out
    greedy = command(*words, "--temperature", "0")
    assert greedy.err == ""
    assert greedy == command(*words, "--temperature", "0")


@pytest.mark.parametrize(
    ("attention", "reader"), [("softmax", "Decoder"), ("gated", "CachedReader")]
)
def test_the_decoder_reads_where_the_model_fits_it(
    attention, reader, train, command, monkeypatch
):
    assert train("--attention", attention, "--sample", "0").status == 0
    steps: set[str] = set()
    for kind in (Decoder, CachedReader):

        def step(self, tokens, kind=kind, real=kind.step):
            steps.add(kind.__name__)
            return real(self, tokens)

        monkeypatch.setattr(kind, "step", step)
    assert command("generate", "--max-new-tokens", "5", "--seed", "1").err == ""
    assert steps == {reader}


def test_another_cache_writes(trained, command):
    words = ["generate", str(trained), "--temperature", "0", "--seed", "1"]
    words += ["--max-new-tokens", "30"]
    usual = command(*words)
    for cache in ("rolling", "int8", "int4"):
        ended = command(*words, "--cache", cache)
        assert (ended.status, ended.err, len(ended.out)) == (0, "", 31), cache
        if cache != "rolling":  # in a context of 7 a group of 32 tokens never fills
            assert ended.out == usual.out, cache


def test_pages_change_no_text_and_are_told(trained, command):
    words = ["generate", str(trained), "--prompt", "to be", "--seed", "3"]
    words += ["--num-samples", "3", "--max-new-tokens", "2"]
    paged, usual = command(*words, "--cache", "paged"), command(*words)
    assert paged.out == usual.out
    # Six tokens each: the prompt and one of the two that were written.
    report = "kept in 3 pages of 16 tokens, 38% in use (in one piece each: 86%)\n"
    assert paged.err == report
    assert command(*words, "--cache", "paged", "--json").err == ""
    nothing = command(*words[:-1], "0", "--cache", "paged")
    assert (nothing.status, nothing.err) == (0, "")


def test_a_draft_changes_no_text(trained, command, text, tiny):
    small = ["--num-layers", "1", "--sample", "0", "--out", "small"]
    assert command("train", str(text), *tiny, *small).status == 0
    words = ["generate", str(trained), "--prompt", "to", "--max-new-tokens", "5"]
    usual = command(*words, "--temperature", "0")
    assert usual.status == 0
    for draft in ("small", "ngram"):
        assert command(*words, "--temperature", "0", "--draft", draft) == usual
    words += ["--draft", "small", "--seed", "3", "--num-samples", "2"]
    drawn = command(*words)
    assert drawn.status == 0
    assert "\n--- sample 2 of 2 ---\n" in drawn.out
    assert drawn == command(*words)


def test_a_draft_that_does_not_fit_is_refused(trained, command, refused, text, tiny):
    tiny += ["--steps", "1", "--sample", "0"]
    digits = Path("other.txt")
    digits.write_text("0123456789" * 50)
    for path, *settings in (
        (digits, "--out", "other"),
        (text, "--max-seq-len", "5", "--out", "short"),
        (text, "--attention", "delta", "--out", "state"),
    ):
        assert command("train", str(path), *tiny, *settings).status == 0
    for words, message in (
        ("other", "draft='other' has another tokenizer"),
        ("ngram", ".*are more than max_seq_len=7"),
        ("ngram --max-new-tokens 7", "1 tokens of prompt and .*: write at most 6$"),
        ("ngram --prompt 'to be, or'", ".*shorten the prompt"),
        (
            "short --max-new-tokens 2",
            ".*; draft='short' does not fit this model: leave",
        ),
        ("ngram --repetition-penalty 2", "repetition_penalty=2.0 does not fit draft="),
        ("ngram --num-drafted 0", "num_drafted=0"),
        (
            "ngram --cache int8",
            "cache='int8' does not fit draft='ngram'.*: leave out one",
        ),
        (
            "ngram --cache paged",
            "cache='paged' does not fit draft='ngram'.*: leave out",
        ),
    ):
        line = refused("generate", str(trained), "--draft", *shlex.split(words))
        assert re.match(message, line), line
    assert refused("generate", str(trained), "--cache", "x").startswith("cache='x'")
    for model, draft in ((str(trained), "state"), ("state", "ngram")):
        words = ["generate", model, "--draft", draft, "--max-new-tokens", "2"]
        assert command(*words).status == 0


def test_settings_reach_the_model(trained, command, monkeypatch):
    seen: dict[str, Any] = {}

    def note(*args, **settings):
        seen.update(settings)
        return write(*args, **settings)

    monkeypatch.setattr(module, "write", note)
    words = (
        "--max-new-tokens 2 --temperature 0.5 --top-k 4 --top-p 0.75 --min-p 0.125 "
        "--repetition-penalty 1.5 --num-samples 3 --seed 7 --stop x"
    )
    assert command("generate", *words.split(), "--stop", "be\\n").status == 0
    assert seen == {
        "max_new_tokens": 2,
        "sampling": Sampling(
            temperature=0.5, top_k=4, top_p=0.75, min_p=0.125, repetition_penalty=1.5
        ),
        "num_samples": 3,
        "seed": 7,
        "stop": ["x", "be\n"],
        "end_tokens": [],
    }


def test_each_text_is_that_of_its_own_seed(trained, command, monkeypatch):
    """However many are written side by side, and with a stop that some meet first."""
    words = ["generate", "--max-new-tokens", "9", "--prompt", "be", "--stop", "t"]
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    alone = [command(*words, "--seed", str(seed)).out for seed in range(3, 8)]
    assert len({*alone}) > 1
    words += ["--seed", "3", "--num-samples", "5"]
    marks = ["", *(f"\n--- sample {n} of 5 ---\n" for n in range(2, 6))]
    expected = [mark + text for mark, text in zip(marks, alone, strict=True)]
    assert command(*words).out == "".join(expected)
    events = command(*words, "--json").events
    assert [f"be{event['text']}\n" for event in events] == alone
    assert [event["sample"] for event in events] == [1, 2, 3, 4, 5]
    assert [event["seed"] for event in events] == [3, 4, 5, 6, 7]


def test_what_does_not_fit_is_refused(trained, refused):
    for words, message in (
        ("--prompt xyz", "'x', 'y', 'z' (first at position 0) not in the alphabet of"),
        ("--prompt=", "prompt='' must not be empty"),
        ("--temperature=-1", "temperature=-1.0 must "),
        ("--max-new-tokens -1", "max_new_tokens=-1 must not be negative"),
        ("--num-samples 0", "num_samples=0 must be at least 1"),
        ("--stop=", "stop[0] is empty"),
        ("--rotary-factor 2", "positions='alibi' of model must be 'rotary'"),
        ("--prompt to\udce9", "'\\udce9'"),
        ("--stop to\udce9", "stop: '\\udce9'"),
    ):
        assert message in refused("generate", *words.split())[: len(message) + 40]


def test_a_new_line_is_the_prompt_where_it_is_known():
    words = WordTokenizer(["x", "y"])
    for tokenizer, prompt in (
        (CharTokenizer("\nab"), "\n"),
        (CharTokenizer("ba"), "b"),
        (words, "x"),
    ):
        assert default_prompt(tokenizer) == prompt
    with pytest.raises(ValueError, match=r"^prompt=' ' has no tokens: the model cont"):
        write(writer(2), words, " ", max_new_tokens=1, seed=0, sampling=Sampling())


def writer(vocab_size: int) -> GPT:
    sizes = {"d_model": 12, "num_heads": 3, "num_layers": 2, "max_seq_len": 50}
    config = GPTConfig(vocab_size=vocab_size, tie_head=False, **sizes)
    return with_large_weights(GPT(config), 1.0)


def test_drafts_are_shown_as_they_are_accepted():
    """As plain writing would: nothing of a stop, and no pass after it."""
    tokenizer, model = CharTokenizer("abcdefghij"), writer(10)
    greedy = Sampling(temperature=0.0)
    settings = {"max_new_tokens": 23, "seed": 0, "sampling": greedy}
    usual = "".join(piece for (piece,) in write(model, tokenizer, "a", **settings))
    assert len({*usual}) > 3
    # The model's own drafts are right, so each pass adds them all and one more.
    drafter = ModelDrafter(model, probabilities=greedy.probabilities)

    def pieces(num_drafted, **stops):
        steps = write_with_drafts(
            model, tokenizer, "a", drafter, num_drafted=num_drafted, **stops, **settings
        )
        return [piece for (piece,) in steps]

    for drafted, stop in ((2, []), (7, []), (1, [usual[8:11]]), (3, [usual[9], "x"])):
        written = pieces(drafted, stop=stop)
        shown = usual.partition(stop[0])[0] if stop else usual
        assert "".join(written) == shown
        read = len(shown) + sum(map(len, stop[:1]))
        assert len(written) == -(-read // (drafted + 1)) + (not stop)
        if not stop:
            assert {*map(len, written[:-2])} == {drafted + 1}
    shown = usual.partition(usual[9])[0]
    written = pieces(1, end_tokens=tokenizer.encode(usual[9]))
    assert "".join(written) == shown
    assert len(written) == (len(shown) + 2) // 2 + 1


def test_words_after_a_prompt_are_those_decoded_with_it():
    """The first of them has a space before it, which it lacks alone."""
    tokenizer, model = WordTokenizer(["the", "cat", "sat", "on"]), writer(4)
    greedy = Sampling(temperature=0.0)
    prompt = tokenizer.encode("the cat")
    [ids] = generate(model, [prompt], max_new_tokens=6, sampling=greedy)
    text = tokenizer.decode([*prompt, *ids])[len("the cat") :]
    before = (model, tokenizer, "the cat")
    for stop in ([], [text[3:7]]):
        how = {"max_new_tokens": 6, "seed": 0, "sampling": greedy, "stop": stop}
        shown = text.partition(stop[0])[0] if stop else text
        drafts = write_with_drafts(*before, NgramDrafter(4), **how)
        for pieces in (write(*before, **how), drafts):
            assert "".join(piece for (piece,) in pieces) == shown
