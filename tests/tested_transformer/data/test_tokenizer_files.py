"""A written tokenizer.json does in the package tokenizers what the tokenizer does."""

import json
from functools import cache

import pytest
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer as Opened

from tested_transformer.data import (
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    bpe_tokenizer,
    tokenizer_file,
)

# Umlauts, whole and as two characters, an emoji of three, digits that are no decimals,
# letters of other scripts, and white space of every kind.
ODD = (
    "äÖßa\u0308e\u0301ñ😀👩\u200d👩²½Ⅷ٣ⓐ猫あ'_-#\x00\x1c\x1f\x85\xa0\u2028\u3000\ufeff"
)
TEXT = f"The cat saw 12 dogs.\r\n\n\tYes; no: ## [UNK] <unk>, it did!?\n{ODD} ,\n"
WORDS = WordTokenizer.from_text(TEXT)
CHARS = CharTokenizer.from_text(TEXT)
BYTES = bpe_tokenizer(TEXT * 3, 280)


@cache
def opened(tokenizer: Tokenizer) -> Opened:
    return Opened.from_str(json.dumps(tokenizer_file(tokenizer), ensure_ascii=False))


def same_both_ways(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert opened(tokenizer).encode(text).ids == ids
    assert opened(tokenizer).decode(ids) == tokenizer.decode(ids)


@given(text=st.text([*TEXT]))
@example(TEXT)
def test_of_characters_and_of_bytes(text):
    same_both_ways(CHARS, text)
    same_both_ways(BYTES, text)


@given(
    words=st.lists(st.sampled_from([*WORDS.vocabulary, *" \t\r\n\x1c\x85\u2028"])),
    between=st.sampled_from([" ", " \n "]),
)
@example([TEXT], "")
def test_of_words(words, between):
    same_both_ways(WORDS, between.join(words))


@given(tokenizer=st.sampled_from([CHARS, WORDS, BYTES]), data=st.data())
def test_any_tokens_have_the_same_text(tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    assert opened(tokenizer).decode(ids) == tokenizer.decode(ids)


@given(text=st.text())
def test_any_text_is_cut_into_the_same_words(text):
    same_both_ways(WordTokenizer.from_text(f"{text} a"), text)


def test_what_the_vocabulary_lacks_is_an_error():
    for tokenizer in (CHARS, WORDS):
        with pytest.raises(Exception, match="UNK"):
            opened(tokenizer).encode("€")


def test_another_kind_of_tokenizer_is_refused(as_a_caller):
    with pytest.raises(TypeError, match="a str cannot become"):
        tokenizer_file("bytes")
