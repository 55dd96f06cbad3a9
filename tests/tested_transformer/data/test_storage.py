import json
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tested_transformer.data import storage
from tested_transformer.data.batches import batch_at
from tested_transformer.data.storage import open_tokens, save_tokens


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
    monkeypatch.setattr(storage, "sys", type("sys", (), {"byteorder": "big"}))
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
