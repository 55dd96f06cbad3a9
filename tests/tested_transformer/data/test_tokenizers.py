import json
import re

import pytest
import torch
from hypothesis import given, strategies as st

from tested_transformer.data.tokenizers import (
    CharTokenizer,
    Tokenizer,
    bpe_tokenizer,
    tokenizer_from_dict,
)


def test_characters_are_numbered_in_the_order_of_their_codes():
    tokenizer = CharTokenizer.from_text("to be\nor not")
    assert tokenizer.alphabet == "\n benort"
    assert tokenizer.vocab_size == 8
    assert tokenizer.encode("not\nb") == [4, 5, 7, 0, 2]
    assert tokenizer.decode([7, 5, 1, 2, 3]) == "to be"
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("text", ["", "b", "abba"])
def test_a_tensor_holds_the_same_numbers(text: str):
    tokenizer = CharTokenizer("ab")
    ids = tokenizer.encode_tensor(text)
    assert ids.tolist() == tokenizer.encode(text)
    assert (ids.dtype, ids.shape) == (torch.int32, (len(text),))


@given(text=st.text(min_size=1))
def test_what_is_encoded_is_decoded(text: str):
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert set(ids) == set(range(tokenizer.vocab_size))
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(iter(ids)) == text


@given(text=st.text(min_size=1))
def test_a_tokenizer_survives_json(text: str):
    tokenizer = CharTokenizer.from_text(text)
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert isinstance(again, CharTokenizer)
    assert again.encode(text) == tokenizer.encode(text)
    assert again.alphabet == tokenizer.alphabet


def test_a_dictionary_for_every_kind():
    assert CharTokenizer("ba").to_dict() == {"kind": "characters", "alphabet": "ba"}
    for tokenizer in (CharTokenizer("ab"), bpe_tokenizer("abab", 257)):
        assert isinstance(tokenizer, Tokenizer)
        again = tokenizer_from_dict(tokenizer.to_dict())
        assert type(again) is type(tokenizer)
        assert again.encode("aba") == tokenizer.encode("aba")


@pytest.mark.parametrize(
    ("alphabet", "text", "message"),
    [
        (
            "abc",
            "abxca",
            "'x' (first at position 2) not in the alphabet of 3 characters, 'abc'",
        ),
        (
            "\nab",
            "bé—éa",
            "'é', '—' (first at position 1) not in the alphabet of 3 characters, "
            r"'\nab'",
        ),
        (
            "a",
            "TUVWXYZ",
            "'T', 'U', 'V', 'W', 'X' and 2 more (first at position 0) not in the "
            "alphabet of 1 characters, 'a'",
        ),
        (
            "".join(map(chr, range(48, 98))),
            "b",
            "'b' (first at position 0) not in the alphabet of 50 characters, "
            "'0123456789:;<=>?@ABCDEFGHIJKLM...[\\\\]^_`a'",
        ),
    ],
)
def test_unknown_characters_are_named(alphabet: str, text: str, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        CharTokenizer(alphabet).encode(text)


@pytest.mark.parametrize("ids", [[0, 3], [-1]])
def test_ids_beyond_the_alphabet_are_named(ids: list[int]):
    wrong = ids[-1]
    with pytest.raises(
        ValueError, match=f"^token id {wrong} must lie between 0 and 2$"
    ):
        CharTokenizer("abc").decode(ids)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CharTokenizer(""),
            "alphabet must have at least one character; it is empty",
        ),
        (lambda: CharTokenizer("abca"), "'a' occurs twice in the alphabet 'abca'"),
        (
            lambda: CharTokenizer.from_text(""),
            "the text is empty: it has no alphabet",
        ),
        (
            lambda: tokenizer_from_dict({"kind": "characters", "alphabet": ["a"]}),
            r"alphabet=\['a'\] must be a string",
        ),
        (
            lambda: tokenizer_from_dict({"kind": "characters"}),
            "alphabet=None must be a string",
        ),
        (
            lambda: tokenizer_from_dict({"kind": "words"}),
            "kind='words' must be 'characters' or 'byte pairs'",
        ),
        (
            lambda: tokenizer_from_dict({}),
            "kind=None must be 'characters' or 'byte pairs'",
        ),
    ],
)
def test_what_makes_no_tokenizer_is_named(make, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
