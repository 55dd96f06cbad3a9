"""Saving, with everything in its way: a kill, a full disk, no rights, another run."""

import builtins
import errno
import io
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tested_transformer.checkpoints import killing
from tests.tested_transformer.checkpoints.killing import (
    CONFIG,
    contents,
    number_in,
    save,
    weights_of,
)

from tested_transformer.checkpoints import (
    CheckpointError,
    CheckpointWriter,
    load_checkpoint,
    save_checkpoint,
    saving,
)

on_unix = pytest.mark.skipif(
    os.name == "nt", reason="Windows has no fork and no user ids"
)


def names_in(folder: Path) -> list[str]:
    """Give the kinds of files in a folder."""
    return sorted(file.name.partition("-")[0] for file in folder.iterdir())


ALL_NAMES = [".lock", "checkpoint.json", "model", "training"]


def test_the_second_checkpoint_takes_the_place_of_the_first(tmp_path):
    folder = tmp_path / "runs" / "first"
    save(folder, 1)
    assert (number_in(folder), names_in(folder)) == (1, ALL_NAMES)
    for _ in range(2):
        save(folder, 2)
        assert (number_in(folder), names_in(folder)) == (2, ALL_NAMES)
    save_checkpoint(folder, config=CONFIG, weights=weights_of(1))
    loaded = load_checkpoint(folder)
    assert (loaded.settings, loaded.training) == ({}, None)
    assert names_in(folder) == ALL_NAMES[:-1]


def test_what_a_killed_run_left_is_removed_and_what_is_not_ours_stays(tmp_path):
    save(tmp_path, 1)
    others = ["notes.txt", "zmodel.safetensors", "model_best.safetensors", ".hidden"]
    left = ["model.unfinished", "training.unfinished", "checkpoint.json.unfinished"]
    left += [f"model-{'0' * 16}.safetensors", f"training-{'f' * 16}.safetensors"]
    for name in [*others, *left]:
        (tmp_path / name).write_text("half of i")
    assert number_in(tmp_path) == 1
    save(tmp_path, 2)
    assert number_in(tmp_path) == 2
    for name in others:
        (tmp_path / name).unlink()
    assert names_in(tmp_path) == ALL_NAMES


# The order in which things reach the disk, which a power cut would find out.


@pytest.fixture
def steps(monkeypatch):
    """Write down what is done to the disk."""
    done: list[str] = []
    handles: dict[int, str] = {}

    def short(path):
        return Path(path).name.partition("-")[0]

    def opened(path, flags, *rest):
        handle = os_open(path, flags, *rest)
        handles[handle] = "folder" if Path(path).is_dir() else short(path)
        return handle

    def written(path, mode):
        file = io.BufferedWriter(io.FileIO(path, mode))
        handles[file.fileno()] = short(path)
        return file

    def synced(handle):
        # What is still in Python's own buffer would not get there.
        assert handles[handle] == "folder" or os.fstat(handle).st_size > 0
        done.append(f"sync {handles[handle]}")

    def replaced(source, target):
        done.append(f"{short(source)} becomes {short(target)}")
        os_replace(source, target)

    def removed(path):
        done.append(f"remove {short(path)}")
        os_unlink(path)

    os_open, os_replace, os_unlink = os.open, os.replace, os.unlink
    monkeypatch.setattr(saving, "open", written, raising=False)
    patches = {"open": opened, "fsync": synced, "replace": replaced, "unlink": removed}
    for name, function in patches.items():
        monkeypatch.setattr(os, name, function)
    return done


def test_each_step_is_on_the_disk_before_the_next(tmp_path, steps):
    folder = tmp_path / "a" / "b"
    save(folder, 1)
    # In a and in the folder around it.
    assert steps[:3] == ["sync folder", "sync folder", "sync model.unfinished"]
    # What may fill the disk goes before more is written.
    (folder / "model.unfinished").write_bytes(b"half of i")
    steps.clear()
    save(folder, 2)
    assert sorted(steps[-2:]) == ["remove model", "remove training"]
    assert steps[:-2] == [
        "remove model.unfinished",
        "sync model.unfinished",
        "model.unfinished becomes model",
        "sync training.unfinished",
        "training.unfinished becomes training",
        "sync checkpoint.json.unfinished",
        "sync folder",
        "checkpoint.json.unfinished becomes checkpoint.json",
        "sync folder",
    ]


@on_unix
@pytest.mark.slow
def test_a_run_killed_within_any_file_leaves_what_was_saved_before(tmp_path):
    command = [sys.executable, "-m", killing.__name__, str(tmp_path)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    save(tmp_path, 3)
    assert (number_in(tmp_path), names_in(tmp_path)) == (3, ALL_NAMES)


# A full disk.


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux alone has it")
def test_a_full_disk_is_one_error_and_the_checkpoint_stays(tmp_path, monkeypatch):
    save(tmp_path, 1)
    message = (
        f"[Errno {errno.ENOSPC}] the checkpoint was not saved; the previous one is "
        f"unchanged: {os.strerror(errno.ENOSPC)}: '{tmp_path}'"
    )
    for full in ("model", "training", "checkpoint.json"):

        def opened(path, mode, full=full):
            if path.name != f"{full}.unfinished":
                return builtins.open(path, mode)
            # A file on a disk that is always full; its name is taken all the same.
            path.touch()
            return builtins.open("/dev/full", mode)

        with monkeypatch.context() as patch:
            patch.setattr(saving, "open", opened, raising=False)
            with pytest.raises(OSError, match=f"^{re.escape(message)}$"):
                save(tmp_path, 2)
        assert (number_in(tmp_path), names_in(tmp_path)) == (1, ALL_NAMES)
    save(tmp_path, 3)
    assert (number_in(tmp_path), names_in(tmp_path)) == (3, ALL_NAMES)


def test_what_cannot_be_saved_leaves_nothing_behind(tmp_path):
    save(tmp_path, 1)
    strange = torch.ones(2, dtype=torch.complex128)
    changes: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"settings": {"path": Path("here")}}, ValueError),
        ({"training": ({"c": strange}, {})}, TypeError),
        ({"weights": weights_of(2) | {"head.weight": torch.ones(2)}}, CheckpointError),
        ({"weights": {}}, CheckpointError),
    ]
    for change, error in changes:
        with pytest.raises(error):
            save_checkpoint(tmp_path, **{**contents(2), **change})
        assert (number_in(tmp_path), names_in(tmp_path)) == (1, ALL_NAMES)


# No rights.


@contextmanager
def without_the_rights_of_root() -> Iterator[None]:
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def nothing_saved(number: int, folder: Path) -> str:
    """Return a pattern for what is said of a folder."""
    reason = os.strerror(number)
    return re.escape(
        f"[Errno {number}] nothing can be saved there: {reason}: '{folder}'"
    )


@on_unix
def test_a_folder_that_may_not_be_written_is_one_error():
    # Not under tmp_path, which is closed to others.
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        save(folder, 1)
        paths = [Path(place), folder, *folder.iterdir()]
        for path in paths:
            path.chmod(0o555)
        with without_the_rights_of_root():
            for saved in (folder, folder / "new"):
                message = nothing_saved(errno.EACCES, saved)
                with pytest.raises(PermissionError, match=f"^{message}$"):
                    save(saved, 2)
            assert (number_in(folder), names_in(folder)) == (1, ALL_NAMES)
        for path in paths:
            path.chmod(0o755)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    message = nothing_saved(errno.EEXIST, tmp_path / "file")
    with pytest.raises(FileExistsError, match=f"^{message}$"):
        save(tmp_path / "file", 1)


# Another run.


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path):
    with CheckpointWriter(tmp_path) as writer:
        writer.save(**contents(1))
        message = f"^{tmp_path} is in use: another run is saving there$"
        for second in (lambda: save(tmp_path, 2), lambda: CheckpointWriter(tmp_path)):
            with pytest.raises(CheckpointError, match=message):
                second()
        assert number_in(tmp_path) == 1
        writer.save(**contents(3))
    writer.close()
    with pytest.raises(ValueError, match=f"^the writer for {tmp_path} is closed$"):
        writer.save(**contents(2))
    assert number_in(tmp_path) == 3
    save(tmp_path, 4)
    assert number_in(tmp_path) == 4


def test_a_system_or_a_disk_without_locks_saves(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.EOPNOTSUPP, "no locks here")

    for flock in (None, no_locks):
        monkeypatch.setattr(saving, "flock", flock)
        with CheckpointWriter(tmp_path) as writer:
            writer.save(**contents(5))
        assert number_in(tmp_path) == 5


def test_a_disk_that_cannot_wait_for_names_saves(tmp_path, monkeypatch):
    save(tmp_path, 1)
    number, fsync = errno.EINVAL, os.fsync

    def synced(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    save(tmp_path, 2)
    number = errno.EIO  # another error than that it cannot
    with pytest.raises(OSError, match="not saved"):
        save(tmp_path, 3)
    assert number_in(tmp_path) == 2


def test_a_checkpoint_that_cannot_be_read_is_replaced_and_its_tensors_first_kept(
    tmp_path,
):
    save(tmp_path, 1)
    manifest = tmp_path / "checkpoint.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    before = {*tmp_path.iterdir()}
    strange = {"a": torch.ones(2, dtype=torch.complex128)}
    with pytest.raises(TypeError):
        save_checkpoint(tmp_path, **{**contents(2), "training": (strange, {})})
    assert before <= {*tmp_path.iterdir()}
    save(tmp_path, 3)
    assert (number_in(tmp_path), names_in(tmp_path)) == (3, ALL_NAMES)
