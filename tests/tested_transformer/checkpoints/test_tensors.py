"""Files of tensors against the safetensors package, which knows nothing of ours."""

import hashlib
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from tested_transformer.checkpoints import CheckpointError
from tested_transformer.checkpoints.loading import check_file
from tested_transformer.checkpoints.saving import FileRecord, write_tensors
from tested_transformer.checkpoints.tensor_files import TensorFiles

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
BROKEN = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def some_tensors() -> dict[str, Tensor]:
    """Make tensors of every type and of odd shapes, in no good order."""
    numbers = torch.tensor([[0.0, -1.5, 2.0], [3.25, float("inf"), -0.0]])
    tensors = {f"whole/{dtype}": torch.arange(-3, 4).to(dtype) for dtype in INTEGERS}
    tensors |= {f"broken/{dtype}": numbers.to(dtype) for dtype in BROKEN}
    return {
        "true and false": torch.tensor([True, False, True]),
        **tensors,
        "one number": torch.tensor(7.5, dtype=torch.float64),
        "none": torch.zeros(3, 0, 2),
        "turned": torch.arange(15.0).view(3, 5).T,
        "a part": torch.arange(40).view(5, 8)[1:4, ::3],
        "every second": torch.arange(9)[::2],
        "wants a gradient": torch.ones(2, requires_grad=True),
        'an "odd" näme\n': torch.ones(1, dtype=torch.int8),
    }


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_the_package_reads_what_is_written(tmp_path):
    tensors = some_tensors()
    path = tmp_path / "some.safetensors"
    record = write_tensors(path, tensors)
    data = path.read_bytes()
    read = safetensors.torch.load(data)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype, name
        assert read[name].shape == tensor.shape, name
        assert bits(read[name]) == bits(tensor), name
    sha256 = hashlib.sha256(data).hexdigest()
    assert record == FileRecord("some.safetensors", len(data), sha256)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
    # The same tensors make the same file, in any order.
    again = write_tensors(tmp_path / "again", dict(reversed(tensors.items())))
    assert (again.bytes, again.sha256) == (len(data), sha256)


def test_a_file_that_was_read_is_let_go(tmp_path):
    """A mapped file that another replaces would keep its room on the disk."""
    path = tmp_path / "mapped"
    write_tensors(path, {"a": torch.arange(3.0)})
    maps = Path("/proc/self/maps")
    loaded = safetensors.torch.load_file(path)
    assert str(path) in maps.read_text()
    del loaded
    loaded = TensorFiles(path)
    assert loaded["a"].tolist() == [0.0, 1.0, 2.0]
    assert str(path) not in maps.read_text()


def test_numbers_that_the_format_lacks_are_refused(tmp_path):
    tensors = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.complex128)}
    with pytest.raises(
        TypeError, match=r"^safetensors cannot hold b, torch\.complex128$"
    ):
        write_tensors(tmp_path / "file", tensors)
    assert list(tmp_path.iterdir()) == []


def test_names_of_one_memory_are_written_twice(tmp_path):
    base = torch.arange(12.0)
    tensors = {"all": base, "again": base, "end": base[7:], "start": base[:5]}
    write_tensors(tmp_path / "file", tensors)
    loaded = TensorFiles(tmp_path / "file")
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_a_file_that_was_cut_short_anywhere_is_refused(tmp_path):
    path = tmp_path / "file"
    record = write_tensors(path, {"a": torch.arange(3.0), "b": torch.ones(2, 2)})
    data = path.read_bytes()
    assert check_file(tmp_path, record) == path
    for size in range(len(data)):
        path.write_bytes(data[:size])
        message = f"^{path} is cut short: {size} bytes, not {len(data)}$"
        with pytest.raises(CheckpointError, match=message):
            check_file(tmp_path, record)
        message = f"^{path} is cut short or not a safetensors file: "
        with pytest.raises(CheckpointError, match=message):
            TensorFiles(path)
    path.write_bytes(data + b"!")
    message = f"^{path} is too long: {len(data) + 1} bytes, not {len(data)}$"
    with pytest.raises(CheckpointError, match=message):
        check_file(tmp_path, record)


def test_a_file_with_a_bit_turned_in_any_byte_is_refused(tmp_path):
    path = tmp_path / "file"
    record = write_tensors(path, {"a": torch.arange(3.0)})
    data = path.read_bytes()
    for place in range(len(data)):
        altered = bytearray(data)
        altered[place] ^= 1 << place % 8
        path.write_bytes(altered)
        sha256 = hashlib.sha256(altered).hexdigest()
        message = (
            f"^{path} was altered: its sha256 begins with {sha256[:8]}, "
            f"not with {record.sha256[:8]}$"
        )
        with pytest.raises(CheckpointError, match=message):
            check_file(tmp_path, record)


def test_a_file_that_is_missing_is_named(tmp_path):
    message = f"^{tmp_path}/gone is missing$"
    with pytest.raises(CheckpointError, match=message):
        TensorFiles(tmp_path / "gone")
