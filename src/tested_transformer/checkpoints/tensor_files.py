"""Read tensors from safetensors files one at a time, since all may be gigabytes.

A model is in ``model.safetensors``, or in several files and an index that says which
tensor is in which file.
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

    At first only the headers are read. Files are closed again after each access.

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
        self._tell, self._unread = tell, dict[str, Tensor]()
        for path in paths:
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    if name in self.places:
                        other = self.places[name].name
                        raise CheckpointError(f"{path} has {name}, and so has {other}")
                    self.places[name] = path
                    # Files are mapped into memory: no number is read here.
                    self._unread[name] = file.get_tensor(name).to("meta")
        self._on_meta = dict(self._unread)
        self._done, self._bytes = 0, sum(x.nbytes for x in self._unread.values())

    def on_meta(self) -> dict[str, Tensor]:
        """Return shapes and types, as tensors on the meta device."""
        return dict(self._on_meta)

    def __getitem__(self, name: str) -> Tensor:
        """Read a tensor.

        Raises:
            CheckpointError: If its file has changed since, and cannot be read.
        """
        with _opened(self.places[name]) as file:
            # Copy it: a mapped one would keep a removed file's space on the disk.
            tensor = file.get_tensor(name).clone()
        if self._tell is not None and self._unread.pop(name, None) is not None:
            self._done += tensor.nbytes
            self._tell(self._done, self._bytes)
        return tensor

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.places)

    def __len__(self) -> int:
        """Count the tensors."""
        return len(self.places)


def on_meta(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return tensors that have the same shapes, without reading any from files."""
    return tensors.on_meta() if isinstance(tensors, TensorFiles) else tensors


def find_tensors(
    origin: str,
    get: Callable[[str], Path | None],
    tell: Tell | None = None,
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
    whole = get(WEIGHTS)
    if whole is not None:
        return TensorFiles(whole, tell=tell)
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
    found = {name: path.name for name, path in tensors.places.items()}
    for name in [*places, *found]:
        if places.get(name) != found.get(name):
            raise CheckpointError(
                f"{index} says that {name} is in {places.get(name, 'no file')}, "
                f"but it is in {found.get(name, 'none')}"
            )
    return tensors


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    try:
        with safe_open(path, "pt") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} is cut short or not a safetensors file: {error}"
        ) from None
