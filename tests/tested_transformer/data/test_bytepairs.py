import _thread
import json
import random
import signal
import sys
from threading import Event

import pytest
from hypothesis import given, strategies as st

from tested_transformer.data import tokenizers as module
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    between_words,
    bpe_tokenizer,
    tokenizer_from_dict,
)

TEXT = "the cat that the dog sees\nthe dog that the cat sees\n" * 3


@pytest.fixture(scope="module")
def tokenizer():
    return bpe_tokenizer(TEXT, 270)


def test_no_more_tokens_than_there_are_pairs_that_come_twice():
    assert bpe_tokenizer("abcd", 300).vocab_size == 256
    assert bpe_tokenizer("ab ab", 300).vocab_size == 257
    bytes_alone = bpe_tokenizer("ab", 256)
    assert len(bytes_alone.encode("abé—")) == 1 + 1 + 2 + 3
    assert bytes_alone.decode(bytes_alone.encode("é")[:1]) == "\ufffd"


@given(text=st.text())
def test_whatever_is_encoded_is_decoded(tokenizer, text):
    ids = tokenizer.encode(text)
    assert len(ids) <= len(text.encode())
    assert tokenizer.decode(iter(ids)) == text


def test_it_survives_json_and_files(tokenizer, tmp_path):
    data = json.loads(json.dumps(tokenizer.to_dict()))
    assert data["kind"] == "byte pairs"
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data["tokenizer"]), "utf-8")
    for again in (tokenizer_from_dict(data), BytePairTokenizer.from_file(path)):
        assert again.vocab_size == 270
        assert again.encode(TEXT + "né") == tokenizer.encode(TEXT + "né")


def test_what_does_not_fit_is_named(tokenizer):
    half = r"'\\udce9' \(at position 3\) is not a character: .* must be UTF-8$"
    for call, message in (
        (lambda: tokenizer.decode([5, 270]), "token id 270 must lie between 0 and 269"),
        (lambda: tokenizer.encode("caf\udce9"), half),
        (lambda: bpe_tokenizer("abc", 255), "vocab_size=255 must be at least 256, for"),
        (lambda: bpe_tokenizer("", 300), "the text is empty: it has no pairs"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call()


def test_without_the_package_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = r"^byte pairs need the package tokenizers: pip install \"tested-transform"
    for make in (lambda: bpe_tokenizer("abc", 300), lambda: BytePairTokenizer("{}")):
        with pytest.raises(ImportError, match=message):
            make()


# Texts without spaces.

DNA = "".join(random.Random(0).choices("ACGT", k=3000))


def test_words_of_more_than_256_bytes_are_cut_to_learn_from_them():
    words = [DNA[at : at + 256] for at in range(0, len(DNA), 256)]
    assert bpe_tokenizer(DNA, 300).to_dict() == bpe_tokenizer(words, 300).to_dict()
    longer = [DNA[at : at + 300] for at in range(0, len(DNA), 300)]
    assert bpe_tokenizer(DNA, 300).to_dict() != bpe_tokenizer(longer, 300).to_dict()


def test_shorter_words_are_those_of_the_package():
    import tokenizers

    text = "the cat's 12 naïve dogs,\n" + DNA[:256] + "\n" + "猫" * 85 + " x" * 300
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    expected = tokenizers.Tokenizer(tokenizers.models.BPE())
    expected.pre_tokenizer = byte_level(add_prefix_space=False)
    expected.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=310,
        min_frequency=2,
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    expected.train_from_iterator(text.splitlines(keepends=True), trainer)
    result = bpe_tokenizer(text, 310).to_dict()["tokenizer"]
    assert result == json.loads(expected.to_str())


def test_a_text_without_words_is_decoded_as_it_was():
    chinese = "".join(random.Random(1).choices("的一是不了人我在有他", k=1000))
    for text in (DNA, chinese, " " * 3000, "0" * 999, "+/=" * 333):
        tokenizer = bpe_tokenizer(text, 280)
        assert tokenizer.vocab_size > 257, text[:9]
        ids = tokenizer.encode(text)
        assert len(ids) < len(text.encode()), text[:9]
        assert tokenizer.decode(ids) == text


def test_only_so_much_of_a_text_is_learned_from(monkeypatch):
    monkeypatch.setattr(module, "_LEARNED", 700)
    pieces = [DNA[:300] + "\n", DNA[300:650] + "\n", DNA[650:], DNA]
    expected = bpe_tokenizer("".join(pieces)[:700], 290).to_dict()
    for text in ("".join(pieces), pieces):
        assert bpe_tokenizer(text, 290).to_dict() == expected


def test_a_text_without_spaces_is_cut_to_fit_in_memory():
    pieces = ["a", *["b" * 50_000] * 5, " c d", "e" * 50_000 + "\nf"]
    cut = [*between_words(pieces)]
    assert "".join(cut) == "".join(pieces)
    assert max(map(len, cut)) == 1 << 16
    assert cut[-1] == "\nf"


def test_ctrl_c_is_obeyed_while_pairs_are_learned():
    # Even in a background job of a shell, which ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = Event()

    def pieces():
        _thread.interrupt_main()
        while not interrupted.wait(0.01):
            yield "the cat sees the dog\n" * 100

    with pytest.raises(KeyboardInterrupt):
        bpe_tokenizer(pieces(), 300)
    interrupted.set()
    signal.signal(signal.SIGINT, before)


def test_an_error_in_the_text_arrives():
    def broken():
        yield "the cat\n"
        raise ConnectionError("the disk is gone")

    with pytest.raises(ConnectionError, match=r"^the disk is gone$"):
        bpe_tokenizer(broken(), 300)


def test_special_tokens_are_encoded_and_their_ids_may_leave_gaps(tokenizer):
    definition = tokenizer.definition
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": 300, "content": "<|end|>", "special": True}
    definition["added_tokens"] = [token | flags]
    definition["model"]["vocab"]["<|end|>"] = 300
    del definition["decoder"]  # which may be left out
    special = BytePairTokenizer(json.dumps(definition))
    assert special.encode("the cat<|end|>") == [*tokenizer.encode("the cat"), 300]
    assert (special.vocab_size, special.decode([300])) == (301, "<|end|>")
