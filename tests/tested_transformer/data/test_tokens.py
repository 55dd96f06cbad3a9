import hashlib
import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tested_transformer.data import tokens as token_files
from tested_transformer.data.batches import batch_at
from tested_transformer.data.corpora import load_corpus
from tested_transformer.data.tokenizers import (
    BytePairTokenizer,
    CharTokenizer,
    bpe_tokenizer,
)
from tested_transformer.data.tokens import load_tokens, open_tokens, save_tokens


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "a name with spaces.tokens"


@settings(max_examples=25)
@given(ids=st.lists(st.integers(0, 2**40), min_size=1), most=st.integers(0, 2**40))
def test_what_is_saved_is_opened(path: Path, ids: list[int], most: int):
    tokens = torch.tensor(ids).clamp(max=most)
    save_tokens(path, tokens)
    assert open_tokens(path).long().tolist() == tokens.tolist()


@pytest.mark.parametrize(
    ("most", "dtype", "size"),
    [
        (0, torch.uint8, 1),
        (255, torch.uint8, 1),
        (256, torch.uint16, 2),
        (65_535, torch.uint16, 2),
        (65_536, torch.int32, 4),
        (2**31 - 1, torch.int32, 4),
        (2**31, torch.int64, 8),
    ],
)
def test_ids_take_no_more_bytes_than_they_need(
    tmp_path: Path, most: int, dtype: torch.dtype, size: int
):
    path = tmp_path / "tokens"
    save_tokens(path, torch.tensor([0, most, 0]))
    tokens = open_tokens(path)
    assert tokens.dtype == dtype
    assert tokens.long().tolist() == [0, most, 0]
    assert path.stat().st_size == 256 + 3 * size


def test_the_file_byte_by_byte(tmp_path: Path):
    path = tmp_path / "tokens"
    save_tokens(str(path), torch.tensor([1, 256, 770], dtype=torch.int32))
    data = path.read_bytes()
    assert data[255:] == b"\n\x01\x00\x00\x01\x02\x03"
    assert json.loads(data[:256]) == {
        "format": "tested-transformer tokens 1",
        "dtype": "uint16",
        "byteorder": "little",
        "length": 3,
        "sha256": "5f3353b8709a8c56cce78dedf67f6a0e82a72f18d652c31ad7ff1378cafdbab9",
    }
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.int16])
def test_tokens_of_any_whole_number_type_and_any_stride(
    tmp_path: Path, dtype: torch.dtype
):
    save_tokens(tmp_path / "tokens", torch.arange(20).to(dtype)[1::3])
    expected = [1, 4, 7, 10, 13, 16, 19]
    assert open_tokens(tmp_path / "tokens").tolist() == expected


def test_opened_tokens_are_mapped_and_can_be_trained_on(tmp_path: Path):
    tokens = torch.arange(1_000) % 300
    save_tokens(tmp_path / "tokens", tokens)
    opened = open_tokens(tmp_path / "tokens", verify=False)
    # Mapped: what is written to the file afterwards is there.
    with (tmp_path / "tokens").open("r+b") as file:
        file.seek(256)
        file.write(b"\x07\x01")
    assert int(opened[0]) == 263
    which = {"step": 3, "batch_size": 5, "seq_len": 7}
    for got, expected in zip(
        batch_at(opened, **which), batch_at(tokens, **which), strict=True
    ):
        assert torch.equal(got, expected)


def test_what_is_done_to_opened_tokens_is_not_done_to_the_file(tmp_path: Path):
    save_tokens(tmp_path / "tokens", torch.tensor([1, 2, 3]))
    open_tokens(tmp_path / "tokens").fill_(9)
    assert open_tokens(tmp_path / "tokens").tolist() == [1, 2, 3]


def test_a_read_only_file_can_be_opened(tmp_path: Path):
    save_tokens(tmp_path / "tokens", torch.tensor([1, 2, 3]))
    (tmp_path / "tokens").chmod(0o444)
    assert open_tokens(tmp_path / "tokens").tolist() == [1, 2, 3]


def test_a_file_cut_short_or_lengthened_is_refused(tmp_path: Path):
    path = tmp_path / "tokens"
    save_tokens(path, torch.tensor([1, 2, 300]))
    whole = path.read_bytes()
    for wrong in (whole[:-1], whole[:256], whole + b"\x00"):
        path.write_bytes(wrong)
        with pytest.raises(
            ValueError, match=f"tokens has {len(wrong)} bytes, and 262 were written$"
        ):
            open_tokens(path, verify=False)


def test_an_altered_file_is_refused(tmp_path: Path):
    path = tmp_path / "tokens"
    save_tokens(path, torch.tensor([1, 2, 300]))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\x02")
    with pytest.raises(
        ValueError, match=r"tokens was altered: its sha256 is not that of its tokens$"
    ):
        open_tokens(path)
    assert open_tokens(path, verify=False).tolist() == [1, 2, 556]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"First Citizen:\n",
        b"\xff" * 300,
        b"[1]",
        b'{"format": "tested-transformer tokens 1"}',
        b'{"format": "tested-transformer tokens 2", "dtype": "uint8"}',
        b'{"format": "tested-transformer tokens 1", "dtype": "float32"}',
        b'{"format": "tested-transformer tokens 1", "dtype": ["uint8"]}',
        b'{"format": "tested-transformer tokens 1", "dtype": "uint8", "length": "3",'
        b' "byteorder": "little", "sha256": ""}',
        b'{"format": "tested-transformer tokens 1", "dtype": "uint8", "length": -3,'
        b' "byteorder": "little", "sha256": ""}',
    ],
)
def test_another_file_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "tokens"
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"tokens is not a file of tokens, as save_tokens writes it$"
    ):
        open_tokens(path)


def test_another_order_of_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "tokens"
    save_tokens(path, torch.tensor([1, 2]))
    monkeypatch.setattr(token_files, "sys", type("sys", (), {"byteorder": "big"}))
    with pytest.raises(
        ValueError, match=r"tokens is little-endian, and this machine is big-endian$"
    ):
        open_tokens(path)
    assert sys.byteorder == "little"


def test_a_disk_that_is_full_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "tokens"
    save_tokens(path, torch.tensor([1, 2]))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        save_tokens(path, torch.arange(1_000))
    assert open_tokens(path).tolist() == [1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="tokens"):
        open_tokens(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "there are no tokens to save"),
        ([3, -2, 5], "token ids must not be negative; the least is -2"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, ids: list[int], message: str):
    with pytest.raises(ValueError, match=f"^{message}$"):
        save_tokens(tmp_path / "tokens", torch.tensor(ids, dtype=torch.int64))
    assert list(tmp_path.iterdir()) == []


# The tokens of a text.

TEXT = "".join(
    f"né {n} cats\r\nsee\u2028{n * n} dogs  \n\n and run\r" for n in range(300)
)


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a text that is read in many pieces, and is large enough to be kept."""
    monkeypatch.setattr(token_files, "_KEPT_FROM", 1000)
    monkeypatch.setattr("tested_transformer.data.corpora._PIECE", 97)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    return path


def kept(path: Path) -> list[Path]:
    return [*(path.parent / "cache/tested-transformer/tokens").glob("*")]


def test_a_text_in_pieces_has_the_tokens_of_the_whole(text: Path):
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


def test_byte_pairs_of_pieces_are_those_of_the_whole(text: Path):
    corpus = load_corpus(text)
    whole = bpe_tokenizer(corpus.text, 300)
    tokens = load_tokens(text, tokenizer=BytePairTokenizer.kind, vocab_size=300)
    assert tokens.tokenizer.to_dict() == whole.to_dict()
    assert tokens.tokens.dtype == torch.uint16
    assert tokens.tokens.long().tolist() == whole.encode(corpus.text)
    given = load_tokens(text, tokenizer=whole)
    assert given.tokens.long().tolist() == whole.encode(corpus.text)
    assert len(kept(text)) == 1


@given(pieces=st.lists(st.text(alphabet="ab \n\t\u2028."), max_size=9))
def test_a_text_is_cut_before_white_space_alone(pieces: list[str]):
    cut = [*token_files._between_words(pieces)]
    assert "".join(cut) == "".join(pieces)
    for before, after in pairwise(cut):
        assert not before[-1].isspace()
        assert after[0] in " \n"


def test_tokens_are_kept_and_used_again(text: Path, monkeypatch: pytest.MonkeyPatch):
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
        opened.seek(256)
        opened.write(b"\x09")
    assert int(again.tokens[0]) == 9


def test_a_changed_text_is_tokenized_anew_and_leaves_nothing_old(text: Path):
    load_tokens(text)
    text.write_text(TEXT.replace("cats", "cows"))
    changed = load_corpus(text).text
    tokens = load_tokens(text)
    assert tokens.tokenizer.decode(tokens.tokens.tolist()) == changed
    assert len(kept(text)) == 1
    other = CharTokenizer(tokens.tokenizer.alphabet[::-1])
    assert other.decode(load_tokens(text, tokenizer=other).tokens.tolist()) == changed
    assert load_tokens(text).tokens.tolist() == tokens.tokens.tolist()
    assert len(kept(text)) == 1


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"cut"])
def test_what_is_kept_and_damaged_is_made_anew(text: Path, damage: bytes):
    expected = load_tokens(text).tokens.tolist()
    (file,) = kept(text)
    file.write_bytes(file.read_bytes()[:-7] if damage == b"cut" else damage)
    assert load_tokens(text).tokens.tolist() == expected


def test_a_small_text_and_one_that_is_no_file_are_not_kept(
    text: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(token_files, "_KEPT_FROM", 1_000_000)
    corpus = load_corpus(text)
    found = load_tokens(text)
    assert found.tokenizer.decode(found.tokens.tolist()) == corpus.text
    story, corpus = (
        load_tokens("grammar", num_characters=500),
        load_corpus("grammar", num_characters=500),
    )
    assert story.tokenizer.decode(story.tokens.tolist()) == corpus.text
    assert (story.entropy, story.origin) == (corpus.entropy, corpus.origin)
    assert kept(text) == []


def test_where_nothing_can_be_kept_the_memory_serves(
    text: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    tokens = load_tokens(text)
    assert tokens.tokenizer.decode(tokens.tokens.tolist()) == load_corpus(text).text
    assert kept(text) == []


def test_a_text_is_never_whole_in_memory(text: Path, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    encode = CharTokenizer.encode_tensor

    def measured(self: CharTokenizer, piece: str, *, first: int) -> torch.Tensor:
        sizes.append(len(piece))
        return encode(self, piece, first=first)

    monkeypatch.setattr(CharTokenizer, "encode_tensor", measured)
    load_tokens(text)
    assert max(sizes) <= 97
    assert sum(sizes) > 40 * 97


class Words:
    """A tokenizer of one's own."""

    vocab_size = 5

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join("x" * token for token in ids)

    def to_dict(self) -> dict[str, object]:
        return {"kind": "words"}


def test_a_tokenizer_of_ones_own(text: Path):
    text.write_text("a bb ccc dddd\n" * 300)
    assert load_tokens(text, tokenizer=Words()).tokens.tolist() == [1, 2, 3, 4] * 300
    assert len(kept(text)) == 1
    text.write_text("a bb ccc " + "d" * 300 + " \n" * 900)
    with pytest.raises(
        ValueError, match=r"^token id 300 is beyond what the vocabulary has$"
    ):
        load_tokens(text, tokenizer=Words())


@pytest.mark.parametrize("name", ["many.txt", "one.txt"])
def test_a_text_of_one_character_is_refused(text: Path, name: str):
    path = text.with_name(name)
    path.write_text("a" * (5000 if name == "many.txt" else 1))
    message = f"^'{path}' has no character but 'a': there is nothing to predict$"
    for load in (load_corpus, load_tokens):
        with pytest.raises(ValueError, match=message):
            load(path)
    with pytest.raises(ValueError, match=message):
        load_tokens(path, tokenizer=CharTokenizer("ab"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sha256": "0" * 64},
            "is not the text that was meant: its sha256 is .*, and ",
        ),
        (
            {"tokenizer": CharTokenizer("abc")},
            r"^'n', 'é', ' ', '0', 't' and 12 more \(first at position 0\) not in ",
        ),
        (
            {"tokenizer": "bpe"},
            "^tokenizer='bpe' must be a tokenizer, or one of 'characters', "
            "'byte pairs'$",
        ),
        ({"vocab_size": 3}, "^vocab_size=3 goes with tokenizer='byte pairs' alone$"),
        ({"num_characters": 0}, "^num_characters=0 must be positive$"),
    ],
)
def test_what_does_not_fit_is_named(text: Path, change: dict, message: str):
    with pytest.raises(ValueError, match=message):
        load_tokens(text, **change)
    assert kept(text) == []


def test_a_character_that_is_missing_is_named_by_its_place(text: Path):
    alphabet = CharTokenizer.from_text(load_corpus(text).text).alphabet
    text.write_text("cats\n" * 1000 + "€")
    with pytest.raises(ValueError, match=r"^'€' \(first at position 5000\) not in"):
        load_tokens(text, tokenizer=CharTokenizer(alphabet))


def test_what_is_no_text_is_named_by_its_place(text: Path):
    text.write_bytes(b"abc" * 1000 + b"\xff")
    for load in (load_tokens, load_corpus):
        with pytest.raises(ValueError, match=r"byte 0xff at offset 3000$"):
            load(text)
    with pytest.raises(FileNotFoundError, match=r"^there is no file "):
        load_tokens(text.with_name("other"))
