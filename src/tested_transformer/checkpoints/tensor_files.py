"""Read tensors from safetensors files one at a time, since all may be gigabytes.

A model is in ``model.safetensors``, or in several files and an index that says which
tensor is in which file.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tested_transformer.checkpoints.configs import CheckpointError, read_json

__all__ = ["INDEX", "WEIGHTS", "Tell", "TensorFiles", "find_tensors", "on_meta"]

Tell = Callable[[int, int], None]
"""What is told how many bytes were read, and how many there are."""

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# A name without a slash that does not start with a dot stays in its folder.
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*")


class TensorFiles(Mapping[str, Tensor]):
    """The tensors of safetensors files by name, each read anew when it is asked for.

    At first only the headers are read. No file stays open.

    Args:
        paths: The files.
        tell: Is called after a tensor was read, with the bytes read so far and those
            of all tensors.

    Raises:
        CheckpointError: If a file is missing, cut short or not a safetensors file, or
            two of them have a tensor of the same name.
    """

    def __init__(self, *paths: Path, tell: Tell | None = None) -> None:
        self.places: dict[str, Path] = {}
        self._starts: dict[str, int] = {}
        self._shapes: dict[str, Tensor] = {}
        for path in paths:
            self._read_header(path)
        self._tell, self._unread, self._done = tell, set(self.places), 0
        self._bytes = sum(tensor.nbytes for tensor in self._shapes.values())

    def _read_header(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as file:
                # This maps the file into memory, and reads none of its numbers.
                names = file.offset_keys()
                shapes = {name: file.get_tensor(name).to("meta") for name in names}
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing") from None
        except SafetensorError as error:
            raise CheckpointError(
                f"{path} is cut short or not a safetensors file: {error}"
            ) from None
        # The tensors follow each other without gaps, up to the end of the file.
        start = path.stat().st_size - sum(tensor.nbytes for tensor in shapes.values())
        for name, tensor in shapes.items():
            if name in self.places:
                earlier = self.places[name].name
                raise CheckpointError(f"{path} has {name}, and so has {earlier}")
            self.places[name], self._starts[name] = path, start
            start += tensor.nbytes
        self._shapes |= shapes

    def on_meta(self) -> dict[str, Tensor]:
        """Return shapes and types, as tensors on the meta device."""
        return dict(self._shapes)

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor.

        Raises:
            CheckpointError: If its file was cut short since.
            OSError: If it cannot be read.
        """
        # Read rather than mapped, since the model gets a copy: mapped pages would stay
        # in memory, and keep a removed file's space on the disk.
        like = self._shapes[name]
        tensor = torch.empty(like.shape, dtype=like.dtype, device="cpu")
        with self.places[name].open("rb") as file:
            file.seek(self._starts[name])
            read = file.readinto(tensor.view(-1).view(torch.uint8).numpy().data)
        if read != tensor.nbytes:
            raise CheckpointError(f"{self.places[name]} is cut short")
        if self._tell is not None and name in self._unread:
            self._unread.remove(name)
            self._done += read
            self._tell(self._done, self._bytes)
        return tensor

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the files."""
        return iter(self.places)

    def __len__(self) -> int:
        """Count the tensors."""
        return len(self.places)


def on_meta(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return tensors that have the same shapes, without reading any from files."""
    return tensors.on_meta() if isinstance(tensors, TensorFiles) else tensors


def find_tensors(
    origin: str, get: Callable[[str], Path | None], tell: Tell | None = None
) -> TensorFiles:
    """Open the file with a model's weights, or the several files of a large model.

    Args:
        origin: Where the model comes from, for error messages.
        get: Returns the path of a file of the model, or ``None`` if it has none.
        tell: As for ``TensorFiles``.

    Raises:
        CheckpointError: If there are no such files, one is damaged, or the index does
            not say what they hold.
    """
    single = get(WEIGHTS)
    if single is not None:
        return TensorFiles(single, tell=tell)
    index = get(INDEX)
    if index is None:
        raise CheckpointError(
            f"{origin} has no {WEIGHTS} and no {INDEX}; pickles, such as "
            "pytorch_model.bin, are not read: they can run any code when opened"
        )
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise CheckpointError(f"{index} has no weight_map")
    paths: list[Path] = []
    for file in sorted({str(file) for file in places.values()}):
        if not _PLAIN.fullmatch(file):
            raise CheckpointError(f"{index} names an unexpected file, {file!r}")
        path = get(file)
        if path is None:
            raise CheckpointError(f"{origin} has no {file}, which {INDEX} names")
        paths.append(path)
    tensors = TensorFiles(*paths, tell=tell)
    actual = {name: path.name for name, path in tensors.places.items()}
    for name in [*places, *actual]:
        if places.get(name) != actual.get(name):
            raise CheckpointError(
                f"{index} says that {name} is in {places.get(name, 'no file')}, "
                f"but it is in {actual.get(name, 'none')}"
            )
    return tensors
