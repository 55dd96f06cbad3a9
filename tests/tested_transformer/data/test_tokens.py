"""Texts in pieces have the tokens of the whole, and these are prepared once."""

import hashlib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, strategies as st

from tested_transformer.data import tokens as token_files
from tested_transformer.data.corpora import load_corpus
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    between_words,
    bpe_tokenizer,
)
from tested_transformer.data.tokens import load_tokens

TEXT = "".join(
    f"né {n} cats\r\nsee\u2028{n * n} dogs  \n\n and run\r" for n in range(300)
)


@pytest.fixture
def text(tmp_path, monkeypatch):
    """Write a text that is read in many pieces, and is large enough to be kept."""
    monkeypatch.setattr(token_files, "_KEPT_FROM", 1000)
    monkeypatch.setattr("tested_transformer.data.corpora._PIECE", 97)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    return path


def kept(path: Path) -> list[Path]:
    return [*(path.parent / "cache/tested-transformer/tokens").glob("*")]


def test_a_text_in_pieces_has_the_tokens_of_the_whole(text):
    corpus, tokens = load_corpus(text), load_tokens(text)
    assert corpus.text == TEXT.replace("\r\n", "\n").replace("\r", "\n")
    expected = CharTokenizer.from_text(corpus.text)
    assert tokens.tokenizer.to_dict() == expected.to_dict()
    assert tokens.tokens.dtype == torch.uint8
    assert tokens.tokens.tolist() == expected.encode(corpus.text)
    assert tokens.num_characters == len(corpus.text)
    assert tokens.sha256 == hashlib.sha256(corpus.text.encode()).hexdigest()
    assert (tokens.name, tokens.origin) == (str(text), str(text))
    start = load_tokens(text, num_characters=150)
    assert start.tokenizer.decode(start.tokens.tolist()) == corpus.text[:150]


def test_a_written_text_has_its_seed_and_tokens_their_folder(text):
    for seed in (3, 4):
        tokens = load_tokens("grammar", seed=seed, num_characters=700)
        corpus = load_corpus("grammar", seed=seed, num_characters=700)
        assert tokens.tokenizer.decode(tokens.tokens.tolist()) == corpus.text
    load_tokens(text, cache_folder=text.parent / "elsewhere")
    assert kept(text) == []
    assert len([*(text.parent / "elsewhere/tokens").iterdir()]) == 1


def test_byte_pairs_of_pieces_are_those_of_the_whole(text):
    corpus = load_corpus(text)
    tokenizer = bpe_tokenizer(corpus.text, 300)
    tokens = load_tokens(text, tokenizer=BytePairTokenizer.kind, vocab_size=300)
    assert tokens.tokenizer.to_dict() == tokenizer.to_dict()
    assert tokens.tokens.dtype == torch.uint16
    assert tokens.tokens.long().tolist() == tokenizer.encode(corpus.text)
    again = load_tokens(text, tokenizer=tokenizer)
    assert again.tokens.long().tolist() == tokenizer.encode(corpus.text)
    assert len(kept(text)) == 1


@given(pieces=st.lists(st.text(alphabet="ab \n\t\u2028."), max_size=9))
def test_a_text_is_cut_before_white_space_alone(pieces):
    cut = [*between_words(pieces)]
    assert "".join(cut) == "".join(pieces)
    for before, after in pairwise(cut):
        assert not before[-1].isspace()
        assert after[0] in " \n"


def test_tokens_are_kept_and_used_again(text, monkeypatch):
    first = load_tokens(text)
    monkeypatch.setattr(token_files, "_prepare", None)
    again = load_tokens(text)
    assert again.tokens.tolist() == first.tokens.tolist()
    assert (again.num_characters, again.sha256) == (first.num_characters, first.sha256)
    # With the tokenizer that a run was saved with, as well.
    resumed = load_tokens(text, tokenizer=again.tokenizer, sha256=first.sha256)
    assert resumed.tokens.tolist() == first.tokens.tolist()
    (file,) = kept(text)
    # Mapped: what is written to the file afterwards is there.
    with file.open("r+b") as opened:
        opened.write(b"\x09")
    assert int(first.tokens[0]) == int(again.tokens[0]) == 9


def test_a_changed_text_is_tokenized_anew_and_leaves_nothing_old(text):
    load_tokens(text)
    text.write_text(TEXT.replace("cats", "cows"))
    changed = load_corpus(text).text
    tokens = load_tokens(text)
    assert tokens.tokenizer.decode(tokens.tokens.tolist()) == changed
    assert len(kept(text)) == 1
    tokenizer = CharTokenizer(tokens.tokenizer.alphabet[::-1])
    assert (
        tokenizer.decode(load_tokens(text, tokenizer=tokenizer).tokens.tolist())
        == changed
    )
    assert load_tokens(text).tokens.tolist() == tokens.tokens.tolist()
    assert len(kept(text)) == 1


def test_what_is_kept_and_damaged_anywhere_is_made_anew(text):
    text.write_text("to be\n" * 200)
    expected = load_tokens(text).tokens.tolist()
    (file,) = kept(text)
    content = file.read_bytes()
    damaged = [b"", b"[]", b"\0" * 300, content[:-1], content[1:], content + b"\0"]
    damaged += [
        content[:at] + b"!" + content[at + 1 :] for at in range(0, len(content), 23)
    ]
    for data in damaged:
        file.write_bytes(data)
        assert load_tokens(text).tokens.tolist() == expected
        assert file.read_bytes() == content


def test_a_small_text_and_one_that_is_no_file_are_not_kept(text, monkeypatch):
    monkeypatch.setattr(token_files, "_KEPT_FROM", 1_000_000)
    for name, settings in ((text, {}), ("grammar", {"num_characters": 500})):
        corpus, tokens = load_corpus(name, **settings), load_tokens(name, **settings)
        assert tokens.tokenizer.decode(tokens.tokens.tolist()) == corpus.text
        assert (tokens.entropy, tokens.origin) == (corpus.entropy, corpus.origin)
    assert kept(text) == []


def test_where_nothing_can_be_kept_the_memory_serves(text, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    tokens = load_tokens(text)
    assert tokens.tokenizer.decode(tokens.tokens.tolist()) == load_corpus(text).text
    assert kept(text) == []


def test_a_text_is_never_whole_in_memory(text, monkeypatch):
    sizes: list[int] = []
    encode = CharTokenizer.encode_tensor

    def measured(self, piece, *, first):
        sizes.append(len(piece))
        return encode(self, piece, first=first)

    monkeypatch.setattr(CharTokenizer, "encode_tensor", measured)
    load_tokens(text)
    assert max(sizes) <= 97
    assert sum(sizes) > 40 * 97


def test_a_tokenizer_of_ones_own(text):
    lengths = SimpleNamespace(
        vocab_size=5,
        encode=lambda text: [len(word) for word in text.split()],
        decode=lambda ids: " ".join("x" * token for token in ids),
        to_dict=lambda: {"kind": "lengths"},
    )
    text.write_text("a bb ccc dddd\n" * 300)
    assert load_tokens(text, tokenizer=lengths).tokens.tolist() == [1, 2, 3, 4] * 300
    assert len(kept(text)) == 1
    text.write_text("a bb ccc " + "d" * 300 + " \n" * 900)
    message = r"^the tokenizer has ids from 300 to 300; .* less than its vocab_size=5$"
    with pytest.raises(ValueError, match=message):
        load_tokens(text, tokenizer=lengths)


def test_a_text_of_one_character_is_refused(text):
    message = f"^'{text}' has only the character 'a': there is nothing to predict$"
    for length in (5000, 1):
        text.write_text("a" * length)
        for load in (load_corpus, load_tokens):
            with pytest.raises(ValueError, match=message):
                load(text)
        with pytest.raises(ValueError, match=message):
            load_tokens(text, tokenizer=CharTokenizer("ab"))


def test_what_does_not_fit_is_named(text):
    alphabet = CharTokenizer.from_text(load_corpus(text).text)
    for change, message in (
        ({"sha256": "0" * 64}, "is not the expected text: its sha256 is .*; it must"),
        ({"tokenizer": CharTokenizer("abc")}, r"^'n', 'é', ' ', '0', 't' and 12 more"),
        ({"tokenizer": "bpe"}, "^tokenizer='bpe' must be a tokenizer, or one of 'char"),
        ({"vocab_size": 3}, "^vocab_size=3 needs tokenizer='byte pairs'$"),
    ):
        with pytest.raises(ValueError, match=message):
            load_tokens(text, **change)
        assert kept(text) == []
    # What is wrong in a text is named by its place.
    text.write_text("cats\n" * 1000 + "€")
    with pytest.raises(ValueError, match=r"^'€' \(first at position 5000\) not in"):
        load_tokens(text, tokenizer=alphabet)
    text.write_bytes(b"abc" * 1000 + b"\xff")
    with pytest.raises(ValueError, match=r"byte 0xff at offset 3000$"):
        load_tokens(text)
