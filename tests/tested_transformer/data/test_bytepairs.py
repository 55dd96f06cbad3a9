import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    bpe_tokenizer,
    tokenizer_from_dict,
)

TEXT = "the cat that the dog sees\nthe dog that the cat sees\n" * 3


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    return bpe_tokenizer(TEXT, 270)


def test_the_most_frequent_pair_is_joined_first():
    # "ab" comes 4 times, "bc" twice; then "ab" and "c" come together twice.
    tokenizer = bpe_tokenizer("abc\nabc\nabd\nabe\n", 258)
    assert tokenizer.vocab_size == 258
    assert [tokenizer.decode([token]) for token in (256, 257)] == ["ab", "abc"]
    assert [tokenizer.decode([token]) for token in tokenizer.encode("cabcabd")] == [
        "c",
        "abc",
        "ab",
        "d",
    ]


def test_a_text_has_fewer_tokens_than_characters(tokenizer: BytePairTokenizer):
    assert tokenizer.vocab_size == 270
    ids = tokenizer.encode(TEXT)
    assert len(ids) < len(TEXT) / 2
    assert max(ids) < 270
    assert tokenizer.decode(ids) == TEXT


def test_the_same_text_makes_the_same_tokenizer(tokenizer: BytePairTokenizer):
    assert bpe_tokenizer(TEXT, 270).to_dict() == tokenizer.to_dict()


def test_no_more_tokens_than_there_are_pairs_that_come_twice():
    assert bpe_tokenizer("abcd", 300).vocab_size == 256
    assert bpe_tokenizer("ab ab", 300).vocab_size == 257


def test_bytes_alone_will_do():
    tokenizer = bpe_tokenizer("ab", 256)
    assert len(tokenizer.encode("abé—")) == 1 + 1 + 2 + 3


@given(text=st.text())
def test_whatever_is_encoded_is_decoded(tokenizer: BytePairTokenizer, text: str):
    ids = tokenizer.encode(text)
    assert len(ids) <= len(text.encode())
    assert tokenizer.decode(iter(ids)) == text


def test_half_a_character_is_no_character(tokenizer: BytePairTokenizer):
    ids = tokenizer.encode("é")
    assert len(ids) == 2
    assert tokenizer.decode(ids[:1]) == "\ufffd"


def test_it_survives_json_and_files(tokenizer: BytePairTokenizer, tmp_path: Path):
    data = json.loads(json.dumps(tokenizer.to_dict()))
    assert data["kind"] == "byte pairs"
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data["tokenizer"]), "utf-8")
    for again in (
        tokenizer_from_dict(data),
        BytePairTokenizer.from_file(path),
    ):
        assert again.vocab_size == 270
        assert again.encode(TEXT + "né") == tokenizer.encode(TEXT + "né")


def test_special_tokens_are_neither_added_nor_dropped(tokenizer: BytePairTokenizer):
    definition = tokenizer.to_dict()["tokenizer"]
    assert isinstance(definition, dict)
    token = {"id": 270, "content": "<|end|>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    definition["added_tokens"] = [token | flags]
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<|end|>", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {
            "<|end|>": {"id": "<|end|>", "ids": [270], "tokens": ["<|end|>"]}
        },
    }
    special = BytePairTokenizer(json.dumps(definition))
    assert special.vocab_size == 271
    assert special.encode("the cat") == tokenizer.encode("the cat")
    assert special.decode([*tokenizer.encode("cat"), 270]) == "cat<|end|>"


@pytest.mark.parametrize("token", [-1, 270])
def test_ids_beyond_the_vocabulary_are_named(tokenizer: BytePairTokenizer, token: int):
    with pytest.raises(
        ValueError, match=f"^token id {token} must lie between 0 and 269$"
    ):
        tokenizer.decode([5, token])


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for make in (
        lambda: bpe_tokenizer("abc", 300),
        lambda: BytePairTokenizer("{}"),
    ):
        with pytest.raises(
            ImportError,
            match=r"^byte pairs need the package tokenizers: "
            r'pip install "tested-transformer\[bpe\]"$',
        ):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: bpe_tokenizer("abc", 255),
            "vocab_size=255 must be at least 256, for the bytes",
        ),
        (lambda: bpe_tokenizer("", 300), "the text is empty: it has no pairs"),
        (lambda: BytePairTokenizer("no"), "definition is not a tokenizer.json: .*"),
        (
            lambda: tokenizer_from_dict({"kind": "byte pairs"}),
            "definition is not a tokenizer.json: .*",
        ),
    ],
)
def test_what_makes_no_tokenizer_is_named(make, message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
