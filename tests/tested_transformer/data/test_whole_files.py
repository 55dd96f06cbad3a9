import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tested_transformer.data.corpora import whole_file


def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    with whole_file(path) as file:
        for piece in pieces:
            file.write(piece)


def test_pieces_are_written_one_after_the_other(tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    for old in ([b"old and long"], [b"ab", b"", memoryview(b"cde")]):
        write_whole(path, old)
        assert path.read_bytes() == b"".join(old)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    def failing():
        yield b"half"
        raise KeyboardInterrupt

    path = tmp_path / "file"
    for before in ([], [path]):
        for file in before:
            file.write_bytes(b"old")
        with pytest.raises(KeyboardInterrupt):
            write_whole(path, failing())
        assert list(tmp_path.iterdir()) == before
    assert path.read_bytes() == b"old"


def test_the_name_is_taken_only_when_the_bytes_are_on_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "file"
    happened: list[str] = []
    replace = os.replace

    def fsync(handle):
        assert os.fstat(handle).st_size == 5
        assert not path.exists()
        happened.append("on disk")

    def named(old, new):
        happened.append("named")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", named)
    write_whole(path, [b"abc", b"de"])
    assert happened == ["on disk", "named"]


def test_others_may_read_it_as_they_may_read_any_new_file(tmp_path):
    (tmp_path / "any").touch()
    write_whole(tmp_path / "file", [b"abc"])
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
