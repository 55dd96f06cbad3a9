"""Streamed text is the text decoded at once, whatever the tokenizer."""

import json
from collections.abc import Iterable, Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from tested_transformer.data import BytePairTokenizer
from tested_transformer.decoding import Detokenizer

# Pieces that some decoder joins, strips or puts a space before.
PIECES = [
    *(
        "▁",
        "▁▁",
        "▁the",
        "▁a",
        "the",
        "cat",
        "##ing",
        "ing",
        ".",
        ",",
        "'",
        "n't",
        "▁.",
    ),
    *("Ġ", "Ġthe", "Ċ", "Ã", "©", "â", "Ĥ", "¬", "a</w>", "b</w>", "|", "<pad>", "é"),
    *("<unk>", "</s>", "€", "\N{REPLACEMENT CHARACTER}", "", "do", "not"),
]
BYTES = [f"<0x{byte:02X}>" for byte in (0x41, 0x20, 0xE2, 0x82, 0xAC, 0xC3, 0xA9, 0xFF)]
VOCABULARY = {piece: at for at, piece in enumerate([*PIECES, *BYTES])}

LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
DECODERS = {
    "none": None,
    "bytes": decoders.ByteLevel(),
    "sentencepiece": decoders.Metaspace(),
    "sentencepiece, first": decoders.Metaspace(prepend_scheme="first"),
    "sentencepiece, never": decoders.Metaspace(prepend_scheme="never"),
    "wordpiece": decoders.WordPiece(),
    "wordpiece as it is": decoders.WordPiece(cleanup=False),
    "suffixes": decoders.BPEDecoder(),
    "ctc": decoders.CTC(),
    "fused": decoders.Fuse(),
    "byte fallback": decoders.ByteFallback(),
    "llama": decoders.Sequence([*LLAMA, decoders.Strip(" ", 1, 0)]),
    "gemma": decoders.Sequence(LLAMA),
    "two spaces": decoders.Sequence([*LLAMA, decoders.Strip(" ", 2, 0)]),
    "byte fallback and words": decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace()]
    ),
}


def tokenizer_with(decoder: object) -> BytePairTokenizer:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    if decoder is not None:
        tokenizer.decoder = decoder
    return BytePairTokenizer(tokenizer.to_str())


TOKENIZERS = {name: tokenizer_with(each) for name, each in DECODERS.items()}


def streamed(
    tokenizer: BytePairTokenizer,
    before: list[int],
    runs: list[list[int]],
    stops: tuple[str, ...] = (),
) -> Iterator[str]:
    detokenizer = Detokenizer(
        tokenizer.decode, stops, before=before, byte_tokens=tokenizer.byte_tokens
    )
    for run in runs:
        yield detokenizer.feed(run)
    yield detokenizer.finish()


TOKENS = st.lists(st.integers(0, len(VOCABULARY) - 1), max_size=12)


@pytest.mark.parametrize("name", DECODERS)
@given(runs=st.lists(TOKENS, max_size=5))
def test_any_tokens_from_the_start(name: str, runs: list[list[int]]):
    tokenizer = TOKENIZERS[name]
    at_once = tokenizer.decode([token for run in runs for token in run])
    assert "".join(streamed(tokenizer, [], runs)) == at_once


@pytest.mark.parametrize("name", DECODERS)
@given(before=TOKENS, tokens=TOKENS)
def test_any_tokens_after_a_prompt(name: str, before: list[int], tokens: list[int]):
    tokenizer = TOKENIZERS[name]
    text, at_once = tokenizer.decode(before), tokenizer.decode(before + tokens)
    shown = "".join(streamed(tokenizer, before, [[token] for token in tokens]))
    # Bytes can make those before them invalid, which have been shown.
    assert shown == at_once[len(text) :]


@given(tokens=TOKENS)
def test_a_stop_that_begins_with_a_space_is_found(tokens: list[int]):
    tokenizer = TOKENIZERS["llama"]
    the, cat = VOCABULARY["▁the"], VOCABULARY["cat"]
    runs = [[token] for token in [*tokens, the, cat]]
    at_once = tokenizer.decode([cat, *(token for [token] in runs)])
    shown = "".join(streamed(tokenizer, [cat], runs, (" thecat",)))
    assert shown == at_once[len("cat") :].partition(" thecat")[0]


def trained(normalizer: object, splitter: object, decoder: object) -> BytePairTokenizer:
    words = ["the", "cat", "sat", "on", "mat,", "naïve", "café;", "猫", "sat."]
    letters = sorted({*"".join(words), *"▁abcdefghijklmnopqrstuvwxyz.,;"})
    vocabulary = ["<unk>", *BYTES, *letters, *(f"▁{word}" for word in words)]
    pieces = [(piece, -float(at)) for at, piece in enumerate(dict.fromkeys(vocabulary))]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, byte_fallback=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoder
    return BytePairTokenizer(tokenizer.to_str())


REAL = [
    trained(
        normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
    ),
    trained(
        normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(Regex(" "), "▁")]
        ),
        pre_tokenizers.Split(Regex("(?=▁)"), "isolated"),
        DECODERS["llama"],
    ),
]


@pytest.mark.parametrize("tokenizer", REAL)
@given(text=st.text("the cat sat, naïve café. 猫€😀 A\n"), cut=st.integers(0, 9))
def test_whatever_is_encoded(tokenizer: BytePairTokenizer, text: str, cut: int):
    ids = tokenizer.encode(text)
    shown = "".join(streamed(tokenizer, ids[:cut], [[each] for each in ids[cut:]]))
    assert shown == tokenizer.decode(ids)[len(tokenizer.decode(ids[:cut])) :]


def test_words_are_shown_as_they_come():
    tokenizer = TOKENIZERS["llama"]
    words = [VOCABULARY[piece] for piece in ("▁the", "cat", "▁a", "▁the")]
    pieces = [*streamed(tokenizer, words[:1], [[each] for each in words[1:]])]
    assert pieces == ["cat", " a", " the", ""]


def test_a_long_text_is_not_decoded_again_and_again():
    sizes: list[int] = []
    decode = TOKENIZERS["llama"].decode

    def measured(ids: list[int]) -> str:
        sizes.append(len(ids))
        return decode(ids)

    word = VOCABULARY["▁the"]
    detokenizer = Detokenizer(measured, before=[word] * 100)
    assert "".join(detokenizer.feed([word]) for _ in range(100)) == " the" * 100
    assert sum(sizes) < 1000


def test_only_tokens_for_bytes_are_held_back():
    assert TOKENIZERS["bytes"].byte_tokens == frozenset()
    assert TOKENIZERS["llama"].byte_tokens == {VOCABULARY[each] for each in BYTES}
    definition = json.loads(Tokenizer(models.WordLevel({"<0x41>": 0})).to_str())
    assert BytePairTokenizer(json.dumps(definition)).byte_tokens == frozenset()


def feed(detokenizer: Detokenizer, runs: Iterable[list[int]]) -> list[str]:
    return [detokenizer.feed(run) for run in runs]


def as_bytes(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", errors="replace")


def test_a_letter_is_shown_when_it_is_whole():
    detokenizer = Detokenizer(as_bytes)
    assert feed(detokenizer, [[b] for b in "aé€b".encode()]) == [
        *("a", "", "é", "", "", "€", "b"),
    ]


def test_a_letter_that_is_never_whole_is_shown_at_the_end():
    detokenizer = Detokenizer(as_bytes, ["€"])
    assert feed(detokenizer, [[97], [0xE2], [0x82]]) == ["a", "", ""]
    assert detokenizer.finish() == "\N{REPLACEMENT CHARACTER}"
    assert detokenizer.finish() == ""


def test_stop_strings_across_tokens():
    detokenizer = Detokenizer(as_bytes, ["\n\n", "é!"])
    assert feed(detokenizer, [list(b"a\nb"), list("é".encode()), [33, 34]]) == [
        *("a\nb", "", ""),
    ]
    assert detokenizer.stopped
    assert detokenizer.finish() == ""


def test_an_empty_stop_is_refused():
    with pytest.raises(
        ValueError, match=r"^stop\[1\] is empty: it would stop at once$"
    ):
        Detokenizer(str, ["a", ""])
