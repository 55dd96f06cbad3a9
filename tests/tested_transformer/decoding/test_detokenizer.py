"""Streamed text is the text decoded at once, whatever the tokenizer."""

from itertools import chain

import hypothesis.strategies as st
from hypothesis import given, settings
from tokenizers import Tokenizer, decoders, models

from tested_transformer.data import BytePairTokenizer
from tested_transformer.decoding import Detokenizer

# Pieces that some decoder joins, strips or puts a space before.
PIECES = [
    *("▁", "▁▁", "▁the", "▁a", "the", "cat", "##ing", "ing", ".", ",", "'", "n't"),
    *("▁.", "Ġ", "Ġthe", "Ċ", "Ã", "©", "â", "Ĥ", "¬", "a</w>", "b</w>", "|", "<pad>"),
    *("é", "<unk>", "</s>", "€", "\N{REPLACEMENT CHARACTER}", "", "do", "not"),
]
BYTES = [f"<0x{byte:02X}>" for byte in (0x41, 0x20, 0xE2, 0x82, 0xAC, 0xC3, 0xA9, 0xFF)]
VOCABULARY = {piece: at for at, piece in enumerate([*PIECES, *BYTES])}

LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
DECODERS = {
    "none": None,
    "bytes": decoders.ByteLevel(),
    "sentencepiece": decoders.Metaspace(),
    "sentencepiece, never": decoders.Metaspace(prepend_scheme="never"),
    "wordpiece": decoders.WordPiece(),
    "wordpiece as it is": decoders.WordPiece(cleanup=False),
    "suffixes": decoders.BPEDecoder(),
    "ctc": decoders.CTC(),
    "byte fallback": decoders.ByteFallback(),
    "llama": decoders.Sequence([*LLAMA, decoders.Strip(" ", 1, 0)]),
    "gemma": decoders.Sequence(LLAMA),
    "two spaces": decoders.Sequence([*LLAMA, decoders.Strip(" ", 2, 0)]),
}


def tokenizer_with(decoder: object) -> BytePairTokenizer:
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    if decoder is not None:
        tokenizer.decoder = decoder
    return BytePairTokenizer(tokenizer.to_str())


TOKENIZERS = {name: tokenizer_with(decoder) for name, decoder in DECODERS.items()}
TOKEN = st.integers(0, len(VOCABULARY) - 1)


@settings(max_examples=500)
@given(
    name=st.sampled_from([*DECODERS]),
    before=st.just([]) | st.lists(TOKEN, max_size=9),
    runs=st.lists(st.lists(TOKEN, max_size=2), max_size=12),
    stop=st.sampled_from(["", "the", " a", "\N{REPLACEMENT CHARACTER}"]),
)
def test_any_tokens_after_any_prompt(name, before, runs, stop):
    tokenizer = TOKENIZERS[name]
    detokenizer = Detokenizer(
        tokenizer.decode,
        [stop] if stop else [],
        before=before,
        byte_tokens=tokenizer.byte_tokens,
    )
    shown = "".join(map(detokenizer.feed, runs)) + detokenizer.finish()
    at_once = tokenizer.decode([*before, *chain(*runs)])
    # Bytes can make those before them invalid, which have been shown.
    answer = at_once[len(tokenizer.decode(before)) :]
    assert shown == (answer.partition(stop)[0] if stop else answer)
    assert detokenizer.stopped == (bool(stop) and stop in answer)


def test_words_are_shown_as_they_come():
    tokenizer = TOKENIZERS["llama"]
    first, *words = (VOCABULARY[piece] for piece in ("▁the", "cat", "▁a", "▁the"))
    detokenizer = Detokenizer(tokenizer.decode, before=[first])
    assert [detokenizer.feed([word]) for word in words] == ["cat", " a", " the"]
    # A long text is not decoded again and again.
    sizes: list[int] = []

    def measured(ids):
        sizes.append(len(ids))
        return tokenizer.decode(ids)

    detokenizer = Detokenizer(measured, before=[first] * 100)
    assert "".join(detokenizer.feed([first]) for _ in range(100)) == " the" * 100
    assert sum(sizes) < 1000


def test_only_tokens_for_bytes_are_held_back():
    assert TOKENIZERS["bytes"].byte_tokens == frozenset()
    assert TOKENIZERS["llama"].byte_tokens == {VOCABULARY[token] for token in BYTES}


def test_a_byte_waits_for_the_one_that_makes_both_invalid():
    tokenizer = TOKENIZERS["llama"]
    tokens = [VOCABULARY[token] for token in ("▁the", "<0x41>", "<0xFF>", "cat")]
    detokenizer = Detokenizer(tokenizer.decode, byte_tokens=tokenizer.byte_tokens)
    shown = [detokenizer.feed([token]) for token in tokens]
    assert (shown[:3], "".join(shown)) == (["the", "", ""], tokenizer.decode(tokens))


def as_bytes(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", errors="replace")


def test_a_letter_is_shown_when_it_is_complete_or_at_the_end():
    detokenizer = Detokenizer(as_bytes, ["€", "\n\n"])
    shown = [detokenizer.feed([byte]) for byte in "aéb".encode() + b"\xe2\x82"]
    assert shown == ["a", "", "é", "b", "", ""]
    assert detokenizer.finish() == "\N{REPLACEMENT CHARACTER}"
    assert detokenizer.finish() == ""
