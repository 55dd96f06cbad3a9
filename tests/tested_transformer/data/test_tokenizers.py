import json
import re

import pytest
import torch
from hypothesis import given, strategies as st

from tested_transformer.data.stories import FEW_NAMES, write_stories
from tested_transformer.data.tokenizers import (
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    tokenizer_from_dict,
)


def test_characters_are_numbered_in_the_order_of_their_codes():
    tokenizer = CharTokenizer.from_text("to be\nor not")
    assert (tokenizer.alphabet, tokenizer.vocab_size) == ("\n benort", 8)
    assert tokenizer.encode("not\nb") == [4, 5, 7, 0, 2]
    assert tokenizer.decode([7, 5, 1, 2, 3]) == "to be"
    assert (tokenizer.encode(""), tokenizer.decode([])) == ([], "")
    for text in ("", "b", "beet"):
        ids = tokenizer.encode_tensor(text)
        assert ids.tolist() == tokenizer.encode(text)
        assert (ids.dtype, ids.shape) == (torch.int32, (len(text),))


@given(text=st.text(min_size=1))
def test_what_is_encoded_is_decoded(text):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert set(ids) == set(range(tokenizer.vocab_size))
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(iter(ids)) == text
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert isinstance(again, CharTokenizer)
    assert again.alphabet == tokenizer.alphabet


def test_what_a_tokenizer_lacks_is_named():
    long = CharTokenizer("".join(map(chr, range(48, 98))))
    words = WordTokenizer(["a", "b"])
    for call, of, message in (
        (
            CharTokenizer("\nab").encode,
            "bé—éa",
            "'é', '—' (first at position 1) not in the alphabet of 3 characters, "
            r"'\nab'",
        ),
        (
            long.encode,
            "TUVW\0XYZbcdefg",
            r"'\x00', 'b', 'c', 'd', 'e' and 2 more (first at position 4) not in the "
            "alphabet of 50 characters, '0123456789:;<=>?@ABCDEFGHIJKLM...[\\\\]^_`a'",
        ),
        (
            words.encode,
            "the a wolf the",
            "'the', 'wolf' not in the vocabulary of 2 words (... a b)",
        ),
        (words.encode, "1 2 3 4 5 6", "'1', '2', '3', '4', '5' and 1 more not in the "),
        (long.decode, [0, 50], "token id 50 must lie between 0 and 49"),
        (long.decode, [-1], "token id -1 must lie between 0 and 49"),
        (words.decode, [2], "token id 2 must lie between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            call(of)


def test_what_makes_no_tokenizer_is_named():
    for make, of, message in (
        (CharTokenizer, "", "alphabet must have at least one character; it is empty"),
        (CharTokenizer, "abca", "'a' occurs twice in the alphabet 'abca'"),
        (CharTokenizer.from_text, "", "the text is empty: it has no alphabet"),
        (WordTokenizer, [], "vocabulary must have at least one word; it is empty"),
        (WordTokenizer, ["a", "b", "a"], "'a' occurs twice in the vocabulary"),
        (WordTokenizer, ["a", "b c"], "'b c' in the vocabulary is not one word or mar"),
        (WordTokenizer.from_text, "  ", "the text has no words"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            make(of)
    for values, message in (
        ({}, "kind=None must be 'characters', 'words' or 'byte pairs'"),
        ({"kind": "characters", "alphabet": ["a"]}, "alphabet=.* must be a string"),
        (
            {"kind": "words", "vocabulary": "ab"},
            "vocabulary='ab' must be a list of wor",
        ),
        ({"kind": "byte pairs"}, "definition is not a tokenizer.json: ."),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            tokenizer_from_dict(values)


def test_words_are_numbered_in_their_order():
    tokenizer = WordTokenizer.from_text("Rika sees cats, and Nilo.\nRika runs.\n")
    assert tokenizer.vocabulary == (
        *("\n", ",", ".", "Nilo", "Rika", "and", "cats", "runs", "sees"),
    )
    assert tokenizer.vocab_size == 9
    ids = tokenizer.encode("Nilo sees cats.\nRika")
    assert ids == [3, 8, 6, 2, 0, 4]
    assert tokenizer.decode(ids) == "Nilo sees cats.\nRika"
    assert tokenizer.decode(iter([5, 1])) == "and,"
    assert (tokenizer.encode(""), tokenizer.decode([])) == ([], "")
    # Other white space is not kept.
    assert tokenizer.decode(tokenizer.encode(" and\t cats  ")) == "and cats"


def test_the_stories_are_read_word_by_word_and_written_again():
    tales = write_stories(5_000, seed=4, names=FEW_NAMES)
    tokenizer = WordTokenizer.from_text(tales.text)
    assert isinstance(tokenizer, Tokenizer)
    ids = tokenizer.encode(tales.text)
    assert len(ids) == len(tales.words) + tales.text.count("\n")
    assert tokenizer.decode(ids) == tales.text
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert again.encode(tales.text) == ids


@given(ids=st.lists(st.integers(0, 6)), count=st.integers(0, 9))
def test_a_longer_list_of_words_begins_as_a_shorter_one(ids, count):
    tokenizer = WordTokenizer(["\n", ",", ".", "a", "b", "cd", "-"])
    assert tokenizer.decode(ids).startswith(tokenizer.decode(ids[:count]))
