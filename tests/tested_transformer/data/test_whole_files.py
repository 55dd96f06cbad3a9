import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tested_transformer.data.corpora import whole_file


def write_whole(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    with whole_file(path) as file:
        for piece in pieces:
            file.write(piece)


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
    path = tmp_path / "new" / "file"
    steps: list[str] = []
    replace = os.replace

    def fsync(handle):
        assert os.fstat(handle).st_size == 5
        assert not path.exists()
        steps.append("on disk")

    def named(old, new):
        steps.append("named")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", named)
    write_whole(path, [b"abc", b"", memoryview(b"de")])
    assert steps == ["on disk", "named"]
    assert path.read_bytes() == b"abcde"
    # Others may read it as they may read any new file.
    (path.parent / "any").touch()
    assert len({file.stat().st_mode for file in path.parent.iterdir()}) == 1


def test_a_folder_in_its_place_is_named(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_whole(folder, [])
    assert error.value.filename == str(folder)
    assert [*tmp_path.iterdir()] == [folder]
