import json
from pathlib import Path
from typing import Any

import pytest
import torch

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
from tested_transformer.decoding.cache_readers import CACHES
from tested_transformer.gpt import GPT, GPTConfig


def test_the_text_alone_goes_to_the_standard_output(trained, command):
    words = ["generate", str(trained), "--prompt", "to be", "--max-new-tokens", "9"]
    one = command(*words, "--seed", "3")
    assert (one.status, one.err) == (0, "")
    assert one.out.startswith("to be")
    assert len(one.out) == len("to be") + 9 + 1
    assert command(*words, "--seed", "3") == one
    assert command(*words, "--seed", "4").out != one.out


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


def test_a_seed_that_was_drawn_is_told(trained, command):
    words = ["generate", "--prompt", "be", "--max-new-tokens", "20"]
    drawn = command(*words)
    assert drawn.err.startswith("for the same text, add --seed ")
    seed = drawn.err.split()[-1]
    assert command(*words, "--seed", seed).out == drawn.out
    greedy = command(*words, "--temperature", "0")
    assert greedy.err == ""
    assert greedy == command(*words, "--temperature", "0")


def test_another_cache_writes(trained, command):
    words = ["generate", str(trained), "--temperature", "0", "--seed", "1"]
    words += ["--max-new-tokens", "30"]
    usual = command(*words)
    for cache in ("rolling", "int8", "int4"):
        other = command(*words, "--cache", cache)
        assert (other.status, other.err, len(other.out)) == (0, "", 31), cache
        if cache != "rolling":  # in a context of 7 a group of 32 tokens never fills
            assert other.out == usual.out, cache


def test_pages_change_no_text_and_are_told(trained, command):
    words = ["generate", str(trained), "--prompt", "to be", "--seed", "3"]
    words += ["--num-samples", "3", "--max-new-tokens", "2"]
    paged, usual = command(*words, "--cache", "paged"), command(*words)
    assert paged.out == usual.out
    # Six tokens each: the prompt and one of the two that were written.
    told = "kept in 3 pages of 16 tokens, 38% in use (in one piece each: 86%)\n"
    assert paged.err == told
    assert command(*words, "--cache", "paged", "--json").err == ""
    nothing = command(*words[:-1], "0", "--cache", "paged")
    assert (nothing.status, nothing.err) == (0, "")


def test_a_draft_changes_no_text(trained, command, text, tiny):
    small = ["--num-layers", "1", "--out", "small"]
    assert command("train", str(text), *tiny, *small).status == 0
    words = ["generate", str(trained), "--prompt", "to", "--max-new-tokens", "5"]
    usual = command(*words, "--temperature", "0")
    assert usual.status == 0
    for draft in ("small", "ngram"):
        assert command(*words, "--temperature", "0", "--draft", draft) == usual
    drawn = command(*words, "--draft", "small", "--seed", "3", "--num-samples", "2")
    assert drawn.status == 0
    assert "\n--- sample 2 of 2 ---\n" in drawn.out
    assert drawn == command(
        *words, "--draft", "small", "--seed", "3", "--num-samples", "2"
    )


def test_a_draft_that_does_not_fit_is_refused(trained, command, refused, text, tiny):
    tiny += ["--steps", "1", "--sample", "0"]
    other = Path("other.txt")
    other.write_text("0123456789" * 50)
    assert command("train", str(other), *tiny, "--out", "other").status == 0
    words = ["generate", str(trained), "--draft"]
    assert refused(*words, "other").startswith("draft='other' has another tokenizer")
    assert "are more than max_seq_len=7" in refused(*words, "ngram")
    assert refused(*words, "ngram", "--max-new-tokens", "7").endswith(
        "1 tokens of prompt and max_new_tokens=7 are more than max_seq_len=7: write at "
        "most 6"
    )
    assert "shorten the prompt" in refused(*words, "ngram", "--prompt", "to be, or")
    for cache in CACHES:
        told = refused(*words, "ngram", "--cache", cache)
        assert told.startswith(f"cache={cache!r} does not fit draft='ngram'")
        assert told.endswith(": leave out one")
    short = ["--max-seq-len", "5", "--out", "short"]
    assert command("train", str(text), *tiny, *short).status == 0
    told = refused(*words, "short", "--max-new-tokens", "2")
    assert told.endswith("; draft='short' does not fit this model: leave it out")
    state = ["--attention", "delta", "--out", "state"]
    assert command("train", str(text), *tiny, *state).status == 0
    for model, draft in ((str(trained), "state"), ("state", "ngram")):
        drafted = command("generate", model, "--draft", draft, "--max-new-tokens", "2")
        assert drafted.status == 0
    assert refused(*words, "ngram", "--repetition-penalty", "2").startswith(
        "repetition_penalty=2.0 does not fit draft='ngram'"
    )
    assert refused(*words, "ngram", "--num-drafted", "0").startswith("num_drafted=0")
    assert refused("generate", str(trained), "--cache", "x").startswith("cache='x'")


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


@pytest.mark.parametrize("more", ["", "--json"])
def test_each_text_is_that_of_its_own_seed(more, trained, command, monkeypatch):
    """However many are written side by side, and with a stop that some meet first."""
    words = f"generate --max-new-tokens 9 --prompt be --stop t {more}".split()
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    alone = [command(*words, "--seed", str(seed)).out for seed in range(3, 8)]
    together = command(*words, "--seed", "3", "--num-samples", "5").out
    if more:
        told = [json.loads(line) for line in together.splitlines()]
        assert [each["text"] for each in told] == [json.loads(x)["text"] for x in alone]
        assert [each["sample"] for each in told] == [1, 2, 3, 4, 5]
        assert [each["seed"] for each in told] == [3, 4, 5, 6, 7]
    else:
        numbered = [f"\n--- sample {n} of 5 ---\n" for n in range(2, 6)]
        pairs = zip(["", *numbered], alone, strict=True)
        assert together == "".join(mark + each for mark, each in pairs)
    assert len({*alone}) > 1


def test_a_stop_string_ends_the_text(trained, command):
    words = ["generate", "--prompt", "to be", "--max-new-tokens", "50", "--seed", "3"]
    whole = command(*words).out.removeprefix("to be")
    stop = whole[20:22]
    short = command(*words, "--stop", stop).out.removeprefix("to be")
    assert short == whole[: whole.index(stop)] + "\n"


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
        ("--stop to\udce9", "'\\udce9'"),
    ):
        assert message in refused("generate", *words.split())[: len(message) + 40]


def test_a_new_line_is_the_prompt_where_it_is_known():
    assert default_prompt(CharTokenizer("\nab")) == "\n"
    assert default_prompt(CharTokenizer("ba")) == "b"


def writer(vocab_size: int) -> GPT:
    """Return a model with weights large enough for it to have an opinion."""
    sizes = {"d_model": 12, "num_heads": 3, "num_layers": 2, "max_seq_len": 50}
    model = GPT(GPTConfig(vocab_size=vocab_size, tie_head=False, **sizes))
    for weight in model.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight)
    return model


def test_drafts_are_shown_as_they_are_accepted():
    """As plain writing would: nothing of a stop, and no pass after it."""
    tokenizer, model = CharTokenizer("abcdefghij"), writer(10)
    greedy = Sampling(temperature=0.0)
    settings = {"max_new_tokens": 23, "seed": 0, "sampling": greedy}
    usual = "".join(piece for (piece,) in write(model, tokenizer, "a", **settings))
    assert len({*usual}) > 3
    # The model's own drafts are right, so each pass adds them all and one more.
    drafter = ModelDrafter(model, probabilities=greedy.probabilities)
    for drafted, stop in ((2, []), (7, []), (1, [usual[8:11]]), (3, [usual[9], "x"])):
        pieces = [
            piece
            for (piece,) in write_with_drafts(
                model,
                tokenizer,
                "a",
                drafter,
                stop=stop,
                num_drafted=drafted,
                **settings,
            )
        ]
        shown = usual.partition(stop[0])[0] if stop else usual
        assert "".join(pieces) == shown
        read = len(shown) + sum(map(len, stop[:1]))
        assert len(pieces) == -(-read // (drafted + 1)) + (not stop)
        if not stop:
            assert {*map(len, pieces[:-2])} == {drafted + 1}
    end, shown = tokenizer.encode(usual[9]), usual.partition(usual[9])[0]
    steps = write_with_drafts(
        model, tokenizer, "a", drafter, end_tokens=end, num_drafted=1, **settings
    )
    pieces = [piece for (piece,) in steps]
    assert "".join(pieces) == shown
    assert len(pieces) == (len(shown) + 2) // 2 + 1


def test_words_after_a_prompt_are_those_decoded_with_it():
    """The first of them has a space before it, which it lacks alone."""
    tokenizer, model = WordTokenizer(["the", "cat", "sat", "on"]), writer(4)
    greedy = Sampling(temperature=0.0)
    prompt = tokenizer.encode("the cat")
    [ids] = generate(model, [prompt], max_new_tokens=6, sampling=greedy)
    text = tokenizer.decode([*prompt, *ids])[len("the cat") :]
    settings = {"max_new_tokens": 6, "seed": 0, "sampling": greedy}
    for stop in ([], [text[3:7]]):
        shown = text.partition(stop[0])[0] if stop else text
        for pieces in (
            write(model, tokenizer, "the cat", stop=stop, **settings),
            write_with_drafts(
                model, tokenizer, "the cat", NgramDrafter(4), stop=stop, **settings
            ),
        ):
            assert "".join(piece for (piece,) in pieces) == shown


def test_a_tokenizer_without_a_new_line_starts_with_its_first_token():
    words = WordTokenizer(["x", "y"])
    assert default_prompt(words) == "x"
    model = GPT(GPTConfig(vocab_size=2, d_model=12, num_heads=3, num_layers=1))
    with pytest.raises(ValueError, match=r"^prompt=' ' has no tokens: the model cont"):
        write(model, words, " ", max_new_tokens=1, seed=0, sampling=Sampling())
